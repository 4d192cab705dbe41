"""Callers whose messages share a batch, or whose rows share a record."""

import asyncio
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists
from numpy.typing import NDArray

from hourwheel import errors
from node.broker.small_calls import MergedProposer, RowBuffer
from node.replica.mastership import Proposer
from node.shard.deduplication import Published


def futures(count: int) -> list["asyncio.Future[object]"]:
    loop = asyncio.get_running_loop()
    return [loop.create_future() for _ in range(count)]


async def test_each_caller_gets_the_result_of_its_first_message() -> None:
    first, second = futures(2)
    results = {0: Published(1, 7, 3, 0), 3: Published(1, 10, 1, 0)}
    MergedProposer([(first, 0, 3), (second, 3, 1)]).answer(results, None)
    assert (await first, await second) == (results[0], results[3])


async def test_result_that_is_an_error_is_raised_for_its_caller_alone() -> None:
    first, second = futures(2)
    refused = errors.OutOfOrderSequence("7 is next")
    accepted = Published(1, 8, 1, 0)
    MergedProposer([(first, 0, 1), (second, 1, 1)]).answer({0: refused, 1: accepted}, None)
    with pytest.raises(errors.OutOfOrderSequence):
        await first
    assert await second == accepted


async def test_error_is_told_to_all_but_those_who_left() -> None:
    first, second = futures(2)
    first.cancel()
    MergedProposer([(first, 0, 1), (second, 1, 1)]).answer({}, errors.Timeout("gone"))
    with pytest.raises(errors.Timeout):
        await second
    assert first.cancelled()


class Log:
    """Takes records of rows, and gives each row itself as its result."""

    def __init__(self) -> None:
        self.records: list[list[int]] = []
        self.proposers: list[Proposer] = []

    def append(self, rows: NDArray[Any], proposer: Proposer) -> None:
        self.records.append(rows.tolist())
        self.proposers.append(proposer)

    def answer(self) -> None:
        for rows, proposer in zip(self.records, self.proposers, strict=True):
            proposer.answer(rows, None)


def count_records(sizes: list[int], most: int) -> int:
    """As few as the order of the calls allows, if each is filled before the next is begun."""
    count, room = 0, 0
    for size in sizes:
        if size > room:
            count, room = count + 1, max(most, size)
        room -= size
    return count


@given(lists(lists(integers(0, 99), min_size=1, max_size=12), max_size=20), integers(1, 20))
def test_rows_of_calls_share_records_in_their_order(calls: list[list[int]], most: int) -> None:
    async def check() -> None:
        log = Log()
        buffer = RowBuffer()
        waiting = futures(len(calls))
        for rows, future in zip(calls, waiting, strict=True):
            buffer.add(np.array(rows), future)
        assert bool(buffer) == bool(calls)
        buffer.append(log.append, most)
        assert not buffer
        assert list(chain.from_iterable(log.records)) == list(chain.from_iterable(calls))
        for record in log.records:
            assert len(record) <= most or record in calls
        assert len(log.records) == count_records([len(rows) for rows in calls], most)
        log.answer()
        assert [await future for future in waiting] == calls

    asyncio.run(check())


async def test_rows_that_wait_are_refused_at_the_end() -> None:
    log = Log()
    buffer = RowBuffer()
    gone, waits = futures(2)
    buffer.add(np.array([1]), gone)
    buffer.add(np.array([2]), waits)
    gone.cancel()
    buffer.close(errors.NotMaster("another is"))
    with pytest.raises(errors.NotMaster):
        await waits
    buffer.append(log.append, 9)
    assert not log.records


async def test_error_of_a_record_is_told_to_all_whose_rows_it_holds() -> None:
    log = Log()
    buffer = RowBuffer()
    waiting = futures(2)
    for future in waiting:
        buffer.add(np.array([1]), future)
    buffer.append(log.append, 9)
    log.proposers[0].answer(None, errors.DiskFull("no room"))
    for future in waiting:
        with pytest.raises(errors.DiskFull):
            await future
