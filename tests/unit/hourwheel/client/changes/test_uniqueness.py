"""One pending message of a dedup key, as a producer hears of it."""

import asyncio

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import draft_messages, join
from hourwheel.client.changes.uniqueness import debounce
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer, Deduped, PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import DedupOutcome, IfPending
from hourwheel.v1.broker_pb2 import PublishedBatch, PublishStreamRequest
from tests.support.fake_node import FakeNode

OTHER = MessageId(0, 3, 9, 50)


class Producer:
    """Publishes all that it is given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def publish_unique(self, _topic: str, message: Message) -> DedupAnswer:
        self.messages.append(message)
        return DedupAnswer(DedupOutcome.PUBLISHED, OTHER)


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
    producer = Producer()
    answer = await debounce(producer, "t", "k", Message(b"x", delay_ms=5))
    assert answer == DedupAnswer(DedupOutcome.PUBLISHED, OTHER)
    (sent,) = producer.messages
    assert (sent.dedup_key, sent.if_pending) == ("k", IfPending.REPLACE)
    other = Message(b"x", dedup_key="other", if_pending=IfPending.KEEP)
    with pytest.raises(errors.InvalidArgument):
        await debounce(producer, "t", "k", other)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 1), (1, 3), (2, 2), (4, 9), (5, 1)])
def test_deduped_when_a_part_is_asked_for_counts_from_its_first(first: int, count: int) -> None:
    kept = DedupOutcome.KEPT
    deduped = Deduped((1, 3, 4), (kept, kept, kept), (OTHER, OTHER, OTHER))
    expected = {at - first: (kept, OTHER) for at in (1, 3, 4) if first <= at < first + count}
    assert deduped.of_part(first, count) == expected


async def test_batches_when_some_messages_have_keys_hold_only_these(node: FakeNode) -> None:
    async with AsyncProducer(node.address, linger_ms=5) as producer:
        keyed = Message(b"x", dedup_key="k", if_pending=IfPending.KEEP)
        futures = [await producer.publish_soon("t", one) for one in (Message(b"y"), keyed)]
        for one in futures:
            await one
        answer = await producer.publish_unique("t", keyed)
        assert answer.outcome is DedupOutcome.PUBLISHED
        with pytest.raises(errors.InvalidArgument):
            await producer.publish_unique("t", Message(b"x"))
    batches = node.calls["PublishStream"]
    assert len(batches) == 3


async def test_publish_unique_when_calls_share_a_batch_tells_each_its_own(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = (DedupOutcome.REJECTED, DedupOutcome.KEPT, DedupOutcome.REPLACED)
    take = node.publish

    def publish(request: PublishStreamRequest) -> PublishedBatch:
        answer = take(request)
        answer.dedup_ordinals.extend([1, 2, 3])
        answer.dedup_outcomes.extend(outcomes)  # type: ignore[arg-type]
        answer.dedup_message_ids = 3 * bytes.fromhex(str(OTHER))
        return answer

    monkeypatch.setattr(node, "publish", publish)
    keyed = [Message(b"x", dedup_key=f"k{at}", if_pending=IfPending.KEEP) for at in range(5)]
    async with AsyncProducer(node.address, linger_ms=200, batch_messages=5) as producer:
        answers = await asyncio.gather(*(producer.publish_unique("t", one) for one in keyed))
    assert len(node.calls["PublishStream"]) == 1
    first, *told, last = answers
    assert (first.outcome, last.outcome) == 2 * (DedupOutcome.PUBLISHED,)
    assert tuple(one.outcome for one in told) == outcomes
    own = MessageId(first.message_id.shard, first.message_id.epoch, 3, first.message_id.due_ms)
    assert [one.message_id for one in told] == [OTHER, OTHER, own]
    assert [one.replaced_id for one in told] == [None, None, OTHER]


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
