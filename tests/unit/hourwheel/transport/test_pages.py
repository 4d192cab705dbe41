"""Calls that answer page by page."""

from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.pending import PendingRescheduled
from hourwheel.transport.methods import LIST_PENDING, RESCHEDULE_PENDING
from hourwheel.transport.pages import pages_of, sum_of_pages
from hourwheel.v1 import admin_pb2, pending_pb2


class Scripted:
    """A channel with answers; an error is raised in its turn."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.tokens: list[bytes] = []

    async def call(self, method: Any, request: Any) -> Any:
        self.tokens.append(request.page_token)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def moved(count: int, token: bytes = b"") -> pending_pb2.ReschedulePendingResponse:
    return pending_pb2.ReschedulePendingResponse(
        rescheduled_count=count, scanned_count=2 * count, next_page_token=token
    )


async def test_each_page_goes_on_where_the_one_before_has_ended() -> None:
    answers = [admin_pb2.ListPendingResponse(next_page_token=one) for one in (b"a", b"b", b"")]
    channel: Any = Scripted(*answers)
    found = [one async for one in pages_of(channel, LIST_PENDING, admin_pb2.ListPendingRequest())]
    assert found == answers
    assert channel.tokens == [b"", b"a", b"b"]


async def test_counts_of_all_pages_are_added_and_told_on_the_way() -> None:
    channel: Any = Scripted(moved(3, b"a"), moved(4))
    told = list[PendingRescheduled]()
    begun = PendingRescheduled(rescheduled_count=10)
    request = pending_pb2.ReschedulePendingRequest()
    done = await sum_of_pages(channel, RESCHEDULE_PENDING, request, begun, told.append)
    assert done == PendingRescheduled(17, 0, 14, 0)
    assert told == [PendingRescheduled(13, 0, 6, 0), done]


async def test_what_was_told_stands_when_a_later_page_fails() -> None:
    channel: Any = Scripted(moved(3, b"a"), errors.Unavailable("gone"))
    told = list[PendingRescheduled]()
    request = pending_pb2.ReschedulePendingRequest()
    with pytest.raises(errors.Unavailable):
        await sum_of_pages(channel, RESCHEDULE_PENDING, request, PendingRescheduled(), told.append)
    assert told == [PendingRescheduled(3, 0, 6, 0)]
    assert request.page_token == b"a", "from where it may go on"
