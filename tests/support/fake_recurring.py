"""Recurrences for tests of the API and of clients: kept in a dict, and nothing comes of them."""

from types import SimpleNamespace
from typing import Any

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.v1 import recurrence_pb2_grpc
from node.api.recurring.service import Recurring
from node.contracts.recurring import RecurrenceInfo
from tests.support.fake_services import to_status

FIRST_MS = 1_800_000_000_000


class FakeRecurring:
    """A `node.contracts.recurring.RecurrencePort`."""

    def __init__(self) -> None:
        self.infos: dict[tuple[str, str], RecurrenceInfo] = {}
        self.version = 0

    async def put(self, config: RecurrenceConfig, name: str, expected_version: int | None) -> int:
        old = self.infos.get((config.topic, name))
        if expected_version is not None and expected_version != (old.version if old else 0):
            raise errors.RecurrenceChanged
        self.version += 1
        last = f"{1:08x}{2:08x}{3:016x}{FIRST_MS:016x}"
        info = RecurrenceInfo(config, name, self.version, *(False, 1, last, FIRST_MS))
        self.infos[config.topic, name] = info
        return self.version

    async def set_paused(self, topic: str, name: str, *, is_paused: bool) -> int:
        self.version += 1
        info = self.get(topic, name)
        self.infos[topic, name] = info._replace(version=self.version, is_paused=is_paused)
        return self.version

    async def delete(self, topic: str, name: str) -> None:
        self.get(topic, name)
        del self.infos[topic, name]

    def get(self, topic: str, name: str) -> RecurrenceInfo:
        if (topic, name) not in self.infos:
            raise errors.UnknownRecurrence
        return self.infos[topic, name]

    def page(self, topic: str, after: str, count_max: int) -> tuple[list[RecurrenceInfo], str]:
        """Two at a time."""
        keys = [key for key in sorted(self.infos) if topic in {"", key[0]}]
        keys = [key for key in keys if "/".join(key) > after]
        found = keys[: min(2, count_max)]
        token = "/".join(found[-1]) if len(keys) > len(found) else ""
        return [self.infos[key] for key in found], token

    async def next_times(self, config: RecurrenceConfig, count: int) -> list[int]:
        return [FIRST_MS + at * config.every_ms for at in range(count)]

    async def next_times_of(self, topic: str, name: str, count: int) -> list[int]:
        return await self.next_times(self.get(topic, name).config, count)


class RecurrenceService(recurrence_pb2_grpc.RecurrenceServiceServicer):
    """The node's own checks, over such a port."""

    def __init__(self, node: Any) -> None:
        engine: Any = SimpleNamespace(recurring=node.recurring)
        quotas: Any = SimpleNamespace(is_on=False)
        self._served = Recurring(engine, quotas)

    async def _serve(self, method: Any, request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except errors.HourwheelError as error:
            await context.abort_with_status(to_status(error))

    async def PutRecurrence(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.put_recurrence, request, context)

    async def GetRecurrence(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.get_recurrence, request, context)

    async def ListRecurrences(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.list_recurrences, request, context)

    async def PauseRecurrence(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.pause_recurrence, request, context)

    async def ResumeRecurrence(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.resume_recurrence, request, context)

    async def DeleteRecurrence(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.delete_recurrence, request, context)

    async def ListNextTimes(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._serve(self._served.list_next_times, request, context)
