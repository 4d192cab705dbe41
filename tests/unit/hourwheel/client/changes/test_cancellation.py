from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.client.changes import cancellation
from hourwheel.client.message_ids import PublishedIds
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.channel import Channel
from tests.support.fake_node import EPOCH, SHARD, FakeNode

IDS = PublishedIds.of_batch(SHARD, EPOCH, 0, np.arange(3))


def test_pack_when_ids_come_in_every_form() -> None:
    packed = IDS.packed()
    assert len(packed) == 72
    assert cancellation.pack(IDS) == packed
    assert cancellation.pack(list(IDS)) == packed
    assert cancellation.pack(IDS.texts()) == packed
    assert cancellation.pack([IDS[0], str(IDS[1]), IDS[2]]) == packed
    assert cancellation.pack([]) == b""


def test_pack_when_one_is_no_id() -> None:
    with pytest.raises(errors.InvalidMessageId, match="nonsense"):
        cancellation.pack([str(IDS[0]), "nonsense"])


@pytest.mark.parametrize("wrong", [-1, 1 << 64, 1.5, "7", None])
def test_pack_when_an_id_has_a_number_that_no_id_has(wrong: Any) -> None:
    with pytest.raises(errors.InvalidMessageId, match="number"):
        cancellation.pack([IDS[0], IDS[1]._replace(due_ms=wrong)])


async def test_cancel_many_when_each_has_its_outcome(node: FakeNode, channel: Channel) -> None:
    node.add_topic("t", b"0", b"1")
    await node.lease("t", 1, 0)
    ids = [MessageId(SHARD, EPOCH, n, 5) for n in range(3)]
    node.leases["r"] = [node.messages[0]]
    assert await cancellation.cancel_many(channel, ids) == [
        CancelOutcome.ALREADY_RELEASED,
        CancelOutcome.CANCELLED,
        CancelOutcome.UNKNOWN,
    ]
    assert await cancellation.cancel_packed(channel, b"") == []


async def test_cancel_keys_counts_what_it_has_cancelled_or_says_that_nobody_knows(
    node: FakeNode, channel: Channel
) -> None:
    node.fail_next("Cancel", errors.Overloaded())  # nothing was done: it goes again
    assert await cancellation.cancel_keys(channel, "t", ["k"]) == [(CancelOutcome.UNKNOWN, 0)]
    node.fail_next("Cancel", errors.Timeout())
    with pytest.raises(errors.Timeout):
        await cancellation.cancel_keys(channel, "t", ["k"])
    assert len(node.calls["Cancel"]) == 3
