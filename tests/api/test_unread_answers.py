"""Answers of reads that no client reads: they count, and give way to everything else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.v1 import admin_pb2, lookup_pb2
from hourwheel.v1.broker_pb2 import CancelRequest
from hourwheel.v1.consumer_pb2 import ReceiveRequest
from node.access.permissions import RULES
from node.api.unread_answers import UnreadAnswers, is_list, is_read
from node.contracts.access import Operation
from node.contracts.answer_budget import AnswerBudget
from node.contracts.pending_page import KeyPage, KeyPart
from tests.support.api_world import ApiWorld, refused
from tests.support.eventually import until
from tests.support.fake_engine import FakeEngine
from tests.support.raw_http2 import unread_calls

BUDGET_BYTES = 8 << 20
LIST = b"/hourwheel.v1.LookupService/ListByKey"
REQUEST = lookup_pb2.ListByKeyRequest(topic="orders", key="k")


def page_of(count: int) -> KeyPage:
    ids = np.zeros(count, ID_DTYPE)
    return KeyPage([KeyPart(ids, np.ones(count, np.uint8), np.ones(count, np.int64))], count)


def world() -> ApiWorld:
    """Whose lists have some 600 KB."""
    engine = FakeEngine(answers=AnswerBudget(BUDGET_BYTES), key_page=page_of(10_000))
    return ApiWorld(engine=engine)


async def test_reads_hold_a_quarter_of_the_room_at_most_and_others_are_served() -> None:
    async with world() as asked:
        answers, stats = asked.engine.answers, asked.stats
        with unread_calls(asked.address, LIST, REQUEST.SerializeToString(), 40):
            await until(lambda: stats.rejected.get("OVERLOADED", 0) > 30)
            assert BUDGET_BYTES // 8 < answers.held_bytes <= BUDGET_BYTES // 4
            refusal = await refused(asked.lookup.ListByKey(REQUEST))
            assert (refusal.reason, refusal.params["limit"]) == (
                "OVERLOADED",
                "limits.answer_bytes",
            )
            (published,) = (await asked.publish(b"x")).messages
            poll = ReceiveRequest(group="g", topic="orders", wait_ms=0)
            assert len((await asked.consumer.Receive(poll)).messages) == 1
            cancel = CancelRequest(message_ids=[published.message_id])
            assert len((await asked.producer.Cancel(cancel)).outcomes) == 1
        await until(lambda: answers.held_bytes == 0)
        assert len((await asked.lookup.ListByKey(REQUEST)).messages) == 10_000
        await until(lambda: answers.held_bytes == 0)


async def test_small_reads_are_answered_where_lists_that_nobody_reads_take_all_room() -> None:
    """Clients find the master by one."""
    async with world() as asked:
        asked.engine.key_page = page_of(60_000)
        rejected = asked.stats.rejected
        with unread_calls(asked.address, LIST, REQUEST.SerializeToString(), 8):
            await until(lambda: rejected.get("OVERLOADED", 0) == 7)
            assert asked.engine.answers.held_bytes > BUDGET_BYTES // 4
            await asked.admin.CreateTopic(admin_pb2.CreateTopicRequest(name="orders"))
            name = admin_pb2.GetTopicRequest(name="orders")
            assert (await asked.admin.GetTopic(name)).topic.name == "orders"
            assert (await asked.admin.GetStatus(admin_pb2.GetStatusRequest())).version


async def test_small_answers_are_given_always_when_there_is_room_for_any() -> None:
    async with world() as asked:
        asked.engine.key_page = page_of(3)
        with unread_calls(asked.address, LIST, REQUEST.SerializeToString(), 40):
            await until(lambda: len(asked.engine.asked("list_by_key")) == 40)
            assert asked.engine.answers.held_bytes == 0


class Call:
    """A call's context."""

    def __init__(self) -> None:
        self.ends: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.ends.append(callback)

    def end(self) -> None:
        for callback in self.ends:
            callback(self)


def test_answer_of_a_write_counts_and_is_given_when_there_is_no_room() -> None:
    budget = AnswerBudget(1 << 20)
    unread_answers = UnreadAnswers(budget)
    calls = [Call() for _ in range(3)]
    for call in calls:
        unread_answers.hold_write(1 << 20, call)
    assert budget.held_bytes == 3 << 20
    with pytest.raises(errors.Overloaded):
        unread_answers.check_list()
    unread_answers.hold_write(100, calls[0])
    for call in calls:
        call.end()
    assert budget.held_bytes == 0
    unread_answers.check_list()
    unread_answers.hold_read(1 << 20, calls[0])
    with pytest.raises(errors.Overloaded):
        unread_answers.hold_read(1 << 16, calls[0])


def test_methods_that_change_nothing_are_reads() -> None:
    methods = {name.rpartition(".")[2]: rule for name, rule in RULES.items()}
    reads = {"ListPending", "GetHistory", "DescribeWheel", "ListUsers"}
    assert reads <= set(filter(is_read, methods))
    assert {name for name in reads if is_list(name)} == reads - {"DescribeWheel"}
    changing = {Operation.PUBLISH, Operation.CANCEL}
    for method in filter(is_read, methods):
        assert methods[method].operation not in changing, method
    assert not any(map(is_read, ("Receive", "Ack", "Nack", "PutUser", "Skip", "TransferMaster")))
