"""RecurrenceService: requests checked, recurrences shown."""

from typing import Final

import numpy as np

from hourwheel import errors, limits
from hourwheel.formats import meta as metas
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.v1 import recurrence_pb2 as wire
from node.api.calls import Context
from node.api.checks import check_at_most, check_topic
from node.api.quota_gate import QuotaGate
from node.broker.recurring.occurrence_times import dates_of, excluded_days
from node.contracts.broker import EnginePort
from node.contracts.recurring import RecurrenceInfo

_PAGE_SIZE_DEFAULT: Final = 100
_NEXT_TIMES_DEFAULT: Final = 10


class Recurring:
    """The service's methods."""

    def __init__(self, engine: EnginePort, quotas: QuotaGate) -> None:
        """Ask an engine. To make a recurrence counts as publishing a message."""
        self._engine, self._quotas = engine, quotas

    async def put_recurrence(
        self, request: wire.PutRecurrenceRequest, _context: Context
    ) -> wire.PutRecurrenceResponse:
        """Make a recurrence, or define it anew."""
        check_topic(request.topic)
        body_bytes_max = limits.RECURRENCE_BODY_BYTES_MAX
        if len(request.body) > body_bytes_max:
            raise errors.MessageTooLarge(
                f"a body of {len(request.body)} bytes; of a recurrence at most {body_bytes_max}",
                bytes=len(request.body),
                bytes_max=body_bytes_max,
            )
        if request.missed not in wire.MissedPolicy.values():
            raise errors.InvalidRecurrence("no such policy", field="missed")
        config = _config_of(request.times)
        config.topic, config.body = request.topic, request.body
        config.missed = request.missed or wire.MISSED_POLICY_ALL
        if request.HasField("meta"):
            config.meta = metas.from_wire(request.meta).raw
        expected = request.expected_version if request.HasField("expected_version") else None
        if not self._quotas.is_on:
            version = await self._engine.recurring.put(config, request.name, expected)
            return wire.PutRecurrenceResponse(version=version)
        size, due_ms = len(config.body) + len(config.meta), self._engine.now_ms()
        with self._quotas.publishing(1, size, lambda: np.array([due_ms], np.int64)):
            version = await self._engine.recurring.put(config, request.name, expected)
        return wire.PutRecurrenceResponse(version=version)

    async def get_recurrence(
        self, request: wire.GetRecurrenceRequest, _context: Context
    ) -> wire.GetRecurrenceResponse:
        """One of them."""
        check_topic(request.topic)
        found = self._engine.recurring.get(request.topic, request.name)
        return wire.GetRecurrenceResponse(recurrence=_recurrence(found))

    async def list_recurrences(
        self, request: wire.ListRecurrencesRequest, _context: Context
    ) -> wire.ListRecurrencesResponse:
        """A page of them."""
        if request.topic:
            check_topic(request.topic)
        count = request.page_size or _PAGE_SIZE_DEFAULT
        check_at_most("page_size", count, limits.RECURRENCE_PAGE_SIZE_MAX)
        # The token is the name that the page before ended with.
        found, token = self._engine.recurring.page(request.topic, request.page_token, count)
        return wire.ListRecurrencesResponse(
            recurrences=map(_recurrence, found), next_page_token=token
        )

    async def pause_recurrence(
        self, request: wire.PauseRecurrenceRequest, _context: Context
    ) -> wire.PauseRecurrenceResponse:
        """No more occurrences."""
        check_topic(request.topic)
        recurring = self._engine.recurring
        version = await recurring.set_paused(request.topic, request.name, is_paused=True)
        return wire.PauseRecurrenceResponse(version=version)

    async def resume_recurrence(
        self, request: wire.ResumeRecurrenceRequest, _context: Context
    ) -> wire.ResumeRecurrenceResponse:
        """Occurrences again."""
        check_topic(request.topic)
        recurring = self._engine.recurring
        version = await recurring.set_paused(request.topic, request.name, is_paused=False)
        return wire.ResumeRecurrenceResponse(version=version)

    async def delete_recurrence(
        self, request: wire.DeleteRecurrenceRequest, _context: Context
    ) -> wire.DeleteRecurrenceResponse:
        """It is gone."""
        check_topic(request.topic)
        await self._engine.recurring.delete(request.topic, request.name)
        return wire.DeleteRecurrenceResponse()

    async def list_next_times(
        self, request: wire.ListNextTimesRequest, _context: Context
    ) -> wire.ListNextTimesResponse:
        """The times to come."""
        check_topic(request.topic)
        count = request.count or _NEXT_TIMES_DEFAULT
        check_at_most("count", count, limits.NEXT_TIME_COUNT_MAX)
        recurring = self._engine.recurring
        if request.name:
            if request.HasField("times"):
                raise errors.InvalidArgument("name and times exclude each other", field="times")
            times = await recurring.next_times_of(request.topic, request.name, count)
        else:
            times = await recurring.next_times(_config_of(request.times), count)
        return wire.ListNextTimesResponse(due_ms=times)


def _config_of(times: wire.RecurrenceTimes) -> RecurrenceConfig:
    """Raises InvalidRecurrence: what is looked at here is that all numbers are in their range."""
    return RecurrenceConfig(
        cron=" ".join(times.cron.split()),
        zone=times.time_zone,
        every_ms=times.every_ms,
        start_ms=times.start_ms,
        end_ms=times.end_ms,
        count_max=times.count_max,
        excluded_days=excluded_days(list(times.excluded_dates)),
    )


def _recurrence(found: RecurrenceInfo) -> wire.Recurrence:
    config = found.config
    recurrence = wire.Recurrence(
        topic=config.topic,
        name=found.name,
        times=wire.RecurrenceTimes(
            cron=config.cron,
            time_zone=config.zone,
            every_ms=config.every_ms,
            start_ms=config.start_ms,
            end_ms=config.end_ms,
            count_max=config.count_max,
            excluded_dates=dates_of(list(config.excluded_days)),
        ),
        missed=wire.MissedPolicy.Name(config.missed),
        version=found.version,
        is_paused=found.is_paused,
        occurrence_count=found.occurrence_count,
        last_message_id=found.last_message_id,
        last_due_ms=found.last_due_ms,
        body_bytes=len(config.body),
    )
    if config.meta:
        recurrence.meta.MergeFromString(config.meta)
    return recurrence
