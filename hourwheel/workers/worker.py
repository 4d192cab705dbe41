"""Serves all handlers of a program, by a service for each topic; puts its recurrences."""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.channel import Channel
from hourwheel.workers.handler import Handler
from hourwheel.workers.pattern import PatternService
from hourwheel.workers.recurring import Recurring, put_patiently
from hourwheel.workers.service import Parts, Service, Slots

LOOK_S: Final = 1.0
"""So often the worker looks whether its nodes are in reach."""
UNREACHED_LOOKS: Final = 3
"""So many looks in a row until it says that they are not: a takeover is no news."""
QUIET_LOOKS_MAX: Final = 300
"""It says so again after twice as many looks each time, up to this."""
_log = logging.getLogger("hourwheel.worker")


class Worker:
    """Serves all handlers of a program in one event loop."""

    def __init__(
        self,
        parts: Parts,
        handlers: Sequence[Handler],
        *,
        recurring: Sequence[Recurring] = (),
        process_count: int = 1,
    ) -> None:
        """Nothing is begun yet.

        Args:
            parts: the way to the nodes, what runs handlers, a clock.
            handlers: of the program.
            recurring: what the program has published again and again: put as it begins.
            process_count: each handler's concurrency is multiplied by it.
        """
        self._channel = parts.channel
        self._admin, self._recurring = AsyncAdmin(parts.channel), recurring
        self._services: list[Service] = []
        self._patterns: list[PatternService] = []
        for handler in _with_tokens(handlers):
            slots = Slots(handler.concurrency * process_count)
            if handler.has_pattern:
                self._patterns.append(PatternService(parts, handler, slots))
            else:
                self._services.append(Service(parts, handler, handler.topic, slots))
        self._stopping = asyncio.Event()

    @property
    def services(self) -> Sequence[Service]:
        """One for each handler and topic, for health and metrics."""
        return [*self._services, *(one for each in self._patterns for one in each.services)]

    def stop(self) -> None:
        """Receive no more. `run` returns when all that is in work is done with."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`.

        Raises:
            HourwheelError: a failure that trying again does not mend: no permission, another filter
                in the group, a cron expression that is none, and the like.
        """
        serving: list[Service | PatternService] = [*self._services, *self._patterns]
        tasks = [asyncio.create_task(one.serve(self._stopping)) for one in serving]
        putting = put_patiently(self._admin, self._recurring, self._stopping)
        tasks.append(asyncio.create_task(putting))
        telling = asyncio.create_task(tell_of_connection(self._channel))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            self._stopping.set()
            for one in (*tasks, telling):
                one.cancel()
            await asyncio.gather(*tasks, telling, return_exceptions=True)


def _with_tokens(handlers: Sequence[Handler]) -> Iterator[Handler]:
    """What names a member of a broadcast is one member, for however many topics it has handlers."""
    tokens: dict[tuple[str, str], int] = {}
    for one in handlers:
        broadcast = one.broadcast
        if broadcast is not None and broadcast.member:
            token = tokens.setdefault((one.group, broadcast.member), secrets.randbits(64) or 1)
            yield replace(one, broadcast=replace(broadcast, token=broadcast.token or token))
        else:
            yield one


async def tell_of_connection(channel: Channel) -> None:
    """Log that the nodes are out of reach, soon and then seldom; and when they are back. Endless.

    Polls are patient with a cluster that is away for a while, and so say nothing of an address that
    is wrong.
    """
    missed, say_at = 0, UNREACHED_LOOKS
    while True:
        if channel.is_connected:
            if say_at > UNREACHED_LOOKS:
                _log.info("%s is reached", channel.server)
            missed, say_at = 0, UNREACHED_LOOKS
        else:
            missed += 1
            if missed == say_at:
                _log.warning("cannot reach %s: %s", channel.server, channel.unreached)
                say_at += min(say_at, QUIET_LOOKS_MAX)
        await asyncio.sleep(LOOK_S)
