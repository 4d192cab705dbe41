"""Serves all handlers of a program, by a service for each topic; puts its recurrences."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.groups.membership import Broadcast
from hourwheel.transport.channel import Channel
from hourwheel.workers.handler import Handler
from hourwheel.workers.pattern import PatternService
from hourwheel.workers.recurring import Recurring, put_patiently
from hourwheel.workers.service import Parts, Service, Slots, Stopping

STOP_MS: Final = 25_000
"""How long handlers may take to end. With what follows it is within the 30 s of Kubernetes."""
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
        stop_ms: int | None = None,
    ) -> None:
        """Nothing is begun yet.

        Args:
            parts: the way to the nodes, what runs handlers, a clock.
            handlers: of the program.
            recurring: what the program has published again and again: put as it begins.
            process_count: each handler's concurrency is multiplied by it.
            stop_ms: how long handlers may take to end when another one's messages cannot be
                received any more; None: the caller of `run` sees to it.
        """
        self._channel, self._stop_ms = parts.channel, stop_ms
        self._admin, self._recurring = AsyncAdmin(parts.channel), recurring
        self._services: list[Service] = []
        self._patterns: list[PatternService] = []
        members = members_of(handlers)
        for handler in handlers:
            slots = Slots(handler.concurrency * process_count)
            if handler.has_pattern:
                self._patterns.append(PatternService(parts, handler, slots))
            else:
                broadcast = members.get(handler)
                self._services.append(Service(parts, handler, handler.topic, slots, broadcast))
        self._stopping = Stopping()
        self._is_stop_requested = False

    @property
    def services(self) -> Sequence[Service]:
        """One for each handler and topic, for health and metrics."""
        return [*self._services, *(one for each in self._patterns for one in each.services)]

    def stop(self) -> None:
        """Receive no more. `run` returns when all that is in work is done with."""
        self._is_stop_requested = True
        self._stopping.set()

    async def wait_for_stop(self) -> None:
        """Return when it receives no more: `stop`, or something has failed (`error`)."""
        await self._stopping.wait()

    @property
    def error(self) -> BaseException | None:
        """What has failed first, and is the reason for its end."""
        return self._stopping.error

    async def run(self) -> None:
        """Serve until `stop`, or until a part fails. Then what is in work may end, too.

        Raises:
            HourwheelError: a failure that trying again does not mend: no permission, another filter
                in the group, a cron expression that is none, and the like. The first one.
        """
        serving: list[Service | PatternService] = [*self._services, *self._patterns]
        tasks = [asyncio.create_task(one.serve(self._stopping)) for one in serving]
        putting = put_patiently(self._admin, self._recurring, self._stopping)
        tasks.append(asyncio.create_task(putting))
        for one in tasks:
            one.add_done_callback(self._on_end)
        telling = asyncio.create_task(tell_of_connection(self._channel))
        try:
            await self._stopping.wait()
            bound_s: float | None = None
            if not self._is_stop_requested and self._stop_ms is not None:
                bound_s = self._stop_ms / 1_000
            _, late = await asyncio.wait(tasks, timeout=bound_s)
            if late:
                _log.warning("ended with messages in work: they come again")
        finally:
            self._stopping.set()
            for one in (*tasks, telling):
                one.cancel()
            await asyncio.gather(*tasks, telling, return_exceptions=True)
        if self._stopping.error is not None:
            raise self._stopping.error

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stopping.fail(error)


def members_of(handlers: Sequence[Handler]) -> dict[Handler, Broadcast]:
    """As what each is the member of its broadcast, if it is one.

    What names a member is one member, for however many topics it has handlers.
    """
    tokens: dict[tuple[str, str], int] = {}
    found: dict[Handler, Broadcast] = {}
    for one in handlers:
        broadcast = one.broadcast
        if broadcast is not None and broadcast.member:
            token = tokens.setdefault((one.group, broadcast.member), secrets.randbits(64) or 1)
            found[one] = replace(broadcast, token=broadcast.token or token)
        elif broadcast is not None:
            found[one] = broadcast
    return found


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
