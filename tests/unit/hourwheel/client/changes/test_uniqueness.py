"""One pending message of a dedup key, as a producer hears of it."""

from collections.abc import Sequence

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import draft_messages, join
from hourwheel.client.changes.uniqueness import debounce, publish_unique
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer, Deduped, PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import DedupOutcome, IfPending
from hourwheel.v1.broker_pb2 import PublishedBatch
from tests.support.fake_node import FakeNode

OTHER = MessageId(0, 3, 9, 50)


class Node:
    """Answers a list with what it was given."""

    def __init__(self, ids: PublishedIds) -> None:
        self.messages: list[Message] = []
        self._ids = ids

    async def publish_many(self, _topic: str, messages: Sequence[Message]) -> PublishedIds:
        self.messages += messages
        return self._ids


def answered(outcome: DedupOutcome) -> tuple[PublishedIds, MessageId]:
    """Two messages, of which the second had a pending one's key."""
    taken = PublishedBatch(
        dedup_ordinals=[1], dedup_outcomes=[outcome], dedup_message_ids=bytes.fromhex(str(OTHER))
    )
    ids = PublishedIds.of_batch(0, 3, 20, np.array([5, 6]))
    return ids.with_deduped(Deduped.of(taken).of_part(0, 2)), ids[1]


@pytest.mark.parametrize("outcome", [DedupOutcome.REJECTED, DedupOutcome.KEPT])
def test_ids_when_a_message_is_not_stored_have_the_pending_one(outcome: DedupOutcome) -> None:
    ids, _ = answered(outcome)
    assert ids.deduped == {1: DedupAnswer(outcome, OTHER)}
    assert ids[1] == OTHER


def test_ids_when_a_message_replaces_another_have_both() -> None:
    ids, own = answered(DedupOutcome.REPLACED)
    assert ids.deduped == {1: DedupAnswer(DedupOutcome.REPLACED, own, OTHER)}
    assert ids[1] == own
    assert Deduped.of(PublishedBatch()).of_part(0, 5) == {}


async def test_debounce_when_it_is_called_replaces() -> None:
    node = Node(PublishedIds.of_batch(0, 3, 20, np.array([5])))
    answer = await debounce(node, "t", "k", Message(b"x", delay_ms=5))
    assert answer == DedupAnswer(DedupOutcome.PUBLISHED, MessageId(0, 3, 20, 5))
    (sent,) = node.messages
    assert (sent.dedup_key, sent.if_pending) == ("k", IfPending.REPLACE)
    other = Message(b"x", dedup_key="other", if_pending=IfPending.KEEP)
    for call in (debounce(node, "t", "k", other), publish_unique(node, "t", Message(b"x"))):
        with pytest.raises(errors.InvalidArgument):
            await call


async def test_batches_when_some_messages_have_keys_hold_only_these(node: FakeNode) -> None:
    async with AsyncProducer(node.address, linger_ms=5) as producer:
        keyed = Message(b"x", dedup_key="k", if_pending=IfPending.KEEP)
        futures = [await producer.publish_soon("t", one) for one in (Message(b"y"), keyed)]
        for one in futures:
            await one
        answer = await producer.publish_unique("t", keyed)
        assert answer.outcome is DedupOutcome.PUBLISHED
    batches = node.calls["PublishStream"]
    assert len(batches) == 3


def test_drafts_when_a_key_is_wrong_are_refused() -> None:
    for wrong in (
        Message(b"x", dedup_key="k"),
        Message(b"x", if_pending=IfPending.KEEP),
        Message(b"x", dedup_key="k" * 256, if_pending=IfPending.KEEP),
        Message(b"x", dedup_key="\ud800", if_pending=IfPending.KEEP),
    ):
        with pytest.raises(errors.InvalidArgument):
            draft_messages([wrong])
    keyed = Message(b"x", dedup_key="k", if_pending=IfPending.KEEP)
    (first, _), (second, _) = draft_messages([keyed])[0], draft_messages([Message(b"y")])[0]
    joined = join([first, second]).dedup
    assert joined is not None
    assert [one.if_pending for one in joined] == [IfPending.KEEP, 0]
