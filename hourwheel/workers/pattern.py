"""Serves a handler with the messages of all topics whose names fit a pattern.

Topics are looked up every few seconds. Each has a service of its own, with long polls; the
handler's concurrency is that of all of them together.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.groups.topic_polls import TopicChoice
from hourwheel.workers.handler import Handler, about
from hourwheel.workers.service import Parts, Service, Slots, Stopping

REFRESH_S: Final = 10.0
"""So often topics are looked up."""
TOPICS_MAX: Final = 256
"""Of one pattern: each has a long poll. Of more of them the first ones by name."""
_log = logging.getLogger("hourwheel.worker")


async def find_topics(admin: AsyncAdmin, pattern: str) -> list[str]:
    """The names that fit, in their order. Raises HourwheelError."""
    choice = TopicChoice(pattern=pattern)
    found = sorted(one.name for one in await admin.topics() if choice.matches(one.name))
    if len(found) > TOPICS_MAX:
        _log.warning("%d topics fit %s: the first %d are received", len(found), pattern, TOPICS_MAX)
    return found[:TOPICS_MAX]


class PatternService:
    """Of one handler with a pattern."""

    def __init__(self, parts: Parts, handler: Handler, slots: Slots) -> None:
        """Nothing is served yet."""
        self._parts, self._handler, self._slots = parts, handler, slots
        self._admin = AsyncAdmin(parts.channel)
        self._serving: dict[str, tuple[Service, asyncio.Task[None]]] = {}

    @property
    def services(self) -> Sequence[Service]:
        """One for each topic. May be called in another thread."""
        return [service for service, _ in self._serving.copy().values()]

    async def serve(self, stopping: Stopping) -> None:
        """Serve until `stopping` is set. A failure is one of that, as in `Service.serve`."""
        stop = asyncio.create_task(stopping.wait())
        try:
            try:
                while not stopping.is_set():
                    await self._serve_once(stopping, stop)
            except errors.HourwheelError as error:
                stopping.fail(error)
            if self._serving:
                await asyncio.wait([task for _, task in self._serving.values()])
        finally:
            ending: list[asyncio.Task[Any]] = [stop]
            ending += [task for _, task in self._serving.values()]
            for one in ending:
                one.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _serve_once(self, stopping: Stopping, stop: "asyncio.Task[bool]") -> None:
        """Until topics are to be looked up again, or something ends."""
        await self._follow_topics(stopping)
        tasks = [task for _, task in self._serving.values()]
        await asyncio.wait({stop, *tasks}, timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
        for name, (_, task) in list(self._serving.items()):
            if task.done() and not stopping.is_set():
                del self._serving[name]
                task.result()

    async def _follow_topics(self, stopping: Stopping) -> None:
        try:
            names = await find_topics(self._admin, self._handler.topic)
        except errors.HourwheelError as error:
            if not error.retriable:
                raise about(self._handler.name, error) from error
            _log.warning("topics cannot be looked up: %s", error)
            return
        for name in names:
            if name not in self._serving:
                service = Service(self._parts, self._handler, name, self._slots)
                self._serving[name] = service, asyncio.create_task(service.serve(stopping))
        for name in self._serving.keys() - set(names):
            service, task = self._serving[name]
            if not service.running_count:  # its topic was deleted
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del self._serving[name]
