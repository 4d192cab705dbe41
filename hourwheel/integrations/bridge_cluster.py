"""What callers of a bridge process share that use one cluster as one principal.

A program whose threads publish has a connection to its bridge process for each of them, as kombu's
pools have it. Here their messages come together, and go to the node in one batch, which costs it
about as much as a batch of one message does.
"""

import asyncio
import json
from typing import Any, Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId
from hourwheel.transport.access import Tls
from hourwheel.transport.channel import Channel

GATHER_MS: Final = 2.0
"""How long a message waits for others while messages of other callers are under way."""
ALONE_MAX: Final = 1
"""So many of them are no reason to wait."""


class Cluster:
    """The way to its nodes. Belongs to one event loop."""

    def __init__(
        self, servers: str, user: list[str] | None, tls: Any, *, gather_ms: float = GATHER_MS
    ) -> None:
        """`servers`, `user` and `tls` as a `Target` has them. Raises InvalidArgument."""
        self.channel = Channel(
            servers,
            tls=Tls(**tls) if isinstance(tls, dict) else tls,
            user=None if user is None else (user[0], user[1]),
        )
        self.producer = AsyncProducer(self.channel)
        self._gathering = AsyncProducer(self.channel, linger_ms=gather_ms)
        self._under_way = 0
        self.admin = AsyncAdmin(self.channel)
        self.users = 0

    async def publish_soon(self, topic: str, message: Message) -> "asyncio.Future[MessageId]":
        """As `AsyncProducer.publish_soon`: at once, or with those that come in a moment.

        A caller waits for the answer before it publishes the next message of a thread, so that
        none overtakes another.
        """
        producer = self.producer if self._under_way <= ALONE_MAX else self._gathering
        self._under_way += 1
        try:
            soon = await producer.publish_soon(topic, message)
        except BaseException:
            self._under_way -= 1
            raise
        soon.add_done_callback(self._on_published)
        return soon

    def _on_published(self, _: "asyncio.Future[MessageId]") -> None:
        self._under_way -= 1

    async def close(self) -> None:
        """Publish what is under way, and end."""
        await asyncio.gather(self.producer.close(), self._gathering.close())
        await self.channel.close()


class Clusters:
    """Those that a bridge process has callers for."""

    def __init__(self, gather_ms: float = GATHER_MS) -> None:
        """None so far."""
        self._gather_ms = gather_ms
        self._found: dict[str, Cluster] = {}

    def enter(self, hello: dict[str, Any]) -> Cluster:
        """That which a caller's first frame names, until it leaves. Raises InvalidArgument."""
        choice = [hello["servers"], hello["user"], hello["tls"]]
        key = json.dumps(choice)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Cluster(*choice, gather_ms=self._gather_ms)
        found.users += 1
        return found

    async def leave(self, cluster: Cluster) -> None:
        """The last one closes it."""
        cluster.users -= 1
        if not cluster.users:
            self._found = {key: one for key, one in self._found.items() if one is not cluster}
            await cluster.close()
