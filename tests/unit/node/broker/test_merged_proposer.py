"""Callers whose messages share a batch."""

import asyncio

import pytest

from hourwheel import errors
from node.broker.group_commit import MergedProposer


def futures(count: int) -> list["asyncio.Future[object]"]:
    loop = asyncio.get_running_loop()
    return [loop.create_future() for _ in range(count)]


async def test_each_caller_gets_the_verdict_of_its_first_message() -> None:
    first, second = futures(2)
    MergedProposer([(first, 0, 3), (second, 3, 1)]).answer({0: "a", 3: "b"}, None)
    assert (await first, await second) == ("a", "b")


async def test_verdict_that_is_an_error_is_raised_for_its_caller_alone() -> None:
    first, second = futures(2)
    refused = errors.OutOfOrderSequence("7 is next")
    MergedProposer([(first, 0, 1), (second, 1, 1)]).answer({0: refused, 1: "b"}, None)
    with pytest.raises(errors.OutOfOrderSequence):
        await first
    assert await second == "b"


async def test_error_is_told_to_all_but_those_who_left() -> None:
    first, second = futures(2)
    first.cancel()
    MergedProposer([(first, 0, 1), (second, 1, 1)]).answer({}, errors.Timeout("gone"))
    with pytest.raises(errors.Timeout):
        await second
    assert first.cancelled()
