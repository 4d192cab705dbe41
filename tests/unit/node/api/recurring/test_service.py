"""RecurrenceService as a client of any language sees it."""

from typing import Any

import pytest

from hourwheel.v1 import meta_pb2
from hourwheel.v1 import recurrence_pb2 as wire
from tests.support.api_world import ApiWorld, refused
from tests.support.fake_recurring import FIRST_MS


def put(name: str = "nightly", **more: Any) -> wire.PutRecurrenceRequest:
    given: dict[str, Any] = {"topic": "orders", "name": name, "body": b"x"}
    given["times"] = wire.RecurrenceTimes(cron=" 0  9 * * * ", time_zone="Europe/Berlin")
    return wire.PutRecurrenceRequest(**(given | more))


async def test_recurrence_when_put_is_told_in_canonical_form() -> None:
    async with ApiWorld() as world:
        meta = meta_pb2.MessageMeta(tags=["t"], keys=["k"])
        dates = wire.RecurrenceTimes(every_ms=60_000, excluded_dates=["2027-12-25", "2027-01-01"])
        await world.recurring.PutRecurrence(put(times=dates, meta=meta))
        await world.recurring.PutRecurrence(put("other", missed=wire.MISSED_POLICY_NONE))
        request = wire.GetRecurrenceRequest(topic="orders", name="nightly")
        found = (await world.recurring.GetRecurrence(request)).recurrence
        assert list(found.times.excluded_dates) == ["2027-01-01", "2027-12-25"]
        assert (found.missed, found.meta, found.body_bytes) == (wire.MISSED_POLICY_ALL, meta, 1)
        assert (found.version, found.last_due_ms) == (1, FIRST_MS)
        request = wire.GetRecurrenceRequest(topic="orders", name="other")
        found = (await world.recurring.GetRecurrence(request)).recurrence
        assert (found.times.cron, found.missed) == ("0 9 * * *", wire.MISSED_POLICY_NONE)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"topic": ""}, "INVALID_TOPIC"),
        ({"body": b"x" * 65_537}, "MESSAGE_TOO_LARGE"),
        ({"missed": 9}, "INVALID_RECURRENCE"),
        ({"times": wire.RecurrenceTimes(excluded_dates=["soon"])}, "INVALID_RECURRENCE"),
        ({"expected_version": 7}, "RECURRENCE_CHANGED"),
    ],
)
async def test_put_that_is_wrong_is_refused(more: dict[str, Any], reason: str) -> None:
    async with ApiWorld() as world:
        assert (await refused(world.recurring.PutRecurrence(put(**more)))).reason == reason


async def test_pages_and_next_times_have_bounds() -> None:
    async with ApiWorld() as world:
        for name in "abc":
            await world.recurring.PutRecurrence(put(name))
        page = await world.recurring.ListRecurrences(wire.ListRecurrencesRequest(topic="orders"))
        assert [one.name for one in page.recurrences] == ["a", "b"]
        request = wire.ListRecurrencesRequest(page_token=page.next_page_token)
        assert [
            one.name for one in (await world.recurring.ListRecurrences(request)).recurrences
        ] == ["c"]
        many = wire.ListRecurrencesRequest(page_size=201)
        assert (await refused(world.recurring.ListRecurrences(many))).reason == "INVALID_ARGUMENT"
        both = wire.ListNextTimesRequest(topic="orders", name="a", times=put().times)
        assert (await refused(world.recurring.ListNextTimes(both))).reason == "INVALID_ARGUMENT"
        times = wire.ListNextTimesRequest(topic="orders", name="a", count=2)
        assert len((await world.recurring.ListNextTimes(times)).due_ms) == 2


async def test_pause_resume_and_delete_when_there_is_none() -> None:
    async with ApiWorld() as world:
        for call, request in (
            (world.recurring.PauseRecurrence, wire.PauseRecurrenceRequest),
            (world.recurring.ResumeRecurrence, wire.ResumeRecurrenceRequest),
            (world.recurring.DeleteRecurrence, wire.DeleteRecurrenceRequest),
            (world.recurring.GetRecurrence, wire.GetRecurrenceRequest),
        ):
            refusal = await refused(call(request(topic="orders", name="gone")))
            assert refusal.reason == "UNKNOWN_RECURRENCE"
