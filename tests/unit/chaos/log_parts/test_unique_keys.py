"""The naive rule of dedup keys, by hand."""

import numpy as np
import pytest

from chaos.log_parts.unique_keys import LEVEL, UniqueKeys
from hourwheel.formats.dedup_key import make_dedup_key
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import DedupOutcome, IfPending


def batch_of(*keys: tuple[str, int]) -> RecordBatch:
    queues = np.full(len(keys), 0x100, np.uint32)
    made = [make_dedup_key(*one) for one in keys]
    return RecordBatch(
        build_publish([5] * len(keys), [b""] * len(keys), topic_queues=queues, dedup=made)
    )


def test_keys_when_one_is_pending_are_taken() -> None:
    keys = UniqueKeys(level=LEVEL)
    batch = batch_of(
        ("a", IfPending.KEEP),
        ("a", IfPending.REJECT),
        ("a", IfPending.KEEP),
        ("", 0),
        ("a", IfPending.REPLACE),
    )
    waiting = {(0, 0)}
    assert keys.decide(batch, 0, set()) == (True, None)
    assert keys.decide(batch, 1, waiting) == (False, None)
    assert keys.decide(batch, 2, waiting) == (False, None)
    assert keys.decide(batch, 3, waiting) == (True, None)
    assert keys.decide(batch, 4, waiting) == (True, 0)
    assert keys.answers_from(0, 5) == {
        1: (DedupOutcome.REJECTED, 0),
        2: (DedupOutcome.KEPT, 0),
        4: (DedupOutcome.REPLACED, 0),
    }
    keys.check({4})
    with pytest.raises(AssertionError):
        keys.check({0, 4})


def test_keys_when_the_level_is_too_low_say_nothing() -> None:
    keys = UniqueKeys(level=LEVEL - 1)
    batch = batch_of(("a", IfPending.REJECT), ("a", IfPending.REJECT))
    assert [keys.decide(batch, at, {(0, 0)}) for at in (0, 1)] == [(True, None)] * 2
