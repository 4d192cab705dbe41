"""ProducerStates against a list of all that each producer ever published."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from storage.views.producer_state import NEW, Duplicate, ProducerStates, Verdict

PRODUCERS = st.integers(0, 3)
SEQUENCES = st.integers(0, 12)
BATCHES = st.tuples(PRODUCERS, SEQUENCES, st.integers(1, 4))


class Model:
    """All batches of each producer, oldest first: (first, count, base)."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, int]]] = {}

    def judge(self, producer: int, first: int, count: int) -> Verdict | int:
        """A verdict, or the base sequence of the same messages."""
        if producer == 0:
            return Verdict.NEW
        batches = self.batches.get(producer)
        if batches is None:
            return Verdict.UNKNOWN_PRODUCER if first else Verdict.NEW
        if first == batches[-1][0] + batches[-1][1]:
            return Verdict.NEW
        for known, length, base in batches[-5:]:
            if known <= first and first + count <= known + length:
                return base + first - known
        return Verdict.OUT_OF_ORDER

    def record(self, producer: int, first: int, count: int, base: int) -> None:
        if producer:
            self.batches.setdefault(producer, []).append((first, count, base))


def judged(producers: ProducerStates, batch: tuple[int, int, int]) -> Verdict | int:
    try:
        found = producers.check(*batch)
    except errors.OutOfOrderSequence:
        return Verdict.OUT_OF_ORDER
    except errors.UnknownProducer:
        return Verdict.UNKNOWN_PRODUCER
    if isinstance(found, Duplicate):
        return found.base_sequence
    assert found is NEW
    return Verdict.NEW


@given(st.lists(BATCHES, max_size=60))
def test_producers_when_batches_come_in_any_order(batches: list[tuple[int, int, int]]) -> None:
    producers, model, base = ProducerStates(), Model(), 100
    for batch in batches:
        expected = model.judge(*batch)
        assert judged(producers, batch) == expected
        if expected is Verdict.NEW:
            producers.record(*batch, base, 5, 1)
            model.record(*batch, base)
        base += batch[2]
        producers = ProducerStates(producers.state())


@given(st.lists(st.lists(st.tuples(PRODUCERS, SEQUENCES), min_size=1, max_size=20), max_size=6))
def test_producers_when_singles_are_merged(merged: list[list[tuple[int, int]]]) -> None:
    """A merged batch is judged as its messages would be, one after the other.

    What is remembered is not the same: neighbours are kept as one batch, so that more of a
    producer's latest messages are known again. So only batches that are not too old are compared.
    """
    producers, accepted, base = ProducerStates(), dict[tuple[int, int], int](), 100
    for batch in merged:
        ids, sequences = np.array(batch, np.uint64).T
        found = producers.record_many(ids, sequences, base, 5, 1)
        for at, (producer, sequence) in enumerate(batch):
            verdict = found.verdict[at]
            known = {number for owner, number in accepted if owner == producer}
            if producer == 0 or sequence == len(known):
                assert verdict == Verdict.NEW
                if producer:
                    accepted[producer, sequence] = base + at
            elif not known:
                assert verdict == Verdict.UNKNOWN_PRODUCER
            elif verdict == Verdict.DUPLICATE:
                assert found.base_sequence[at] == accepted[producer, sequence]
            else:
                assert verdict == Verdict.OUT_OF_ORDER
                assert sequence > len(known) or sequence < len(known) - 5
        base += len(batch)
