"""Of a trimmed log the nodes' sequence indexes say which first requests are void."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.checks.trimmed_requests import first_sequences, rejected_firsts
from spark_jobs.audit.facts.requests import FIRSTS, REQUEST, Request
from spark_jobs.logs.block_table import Array
from spark_jobs.logs.discovery import discover
from tests.support.audit_states import state_of
from tests.support.audited import copied
from tests.support.broken_logs import batches_of
from tests.support.log_maker import make_log, replicate

NO_EXPIRES = np.empty(0, REQUEST)


def rows(*given: tuple[int, int, int, int]) -> Array:
    """(producer, first, sequence, count), one record each."""
    found = np.zeros(len(given), REQUEST)
    for at, row in enumerate(given):
        for name, value in zip(("producer", "first", "sequence", "count"), row, strict=True):
            found[name][at] = value
    found["offset"], found["requests"] = 800 * np.arange(1, len(given) + 1), 1
    return found


def test_first_requests_are_a_few_of_each_producer() -> None:
    many = [(7, at, 10 * at, 1) for at in range(20)]
    assert first_sequences(rows(*many, (9, 0, 999, 1))).tolist() == [
        *(10 * at for at in range(FIRSTS)),
        999,
    ]
    assert len(first_sequences(rows())) == 0


def test_request_when_it_repeats_one_before_the_log_begins_is_void() -> None:
    found = rows((7, 0, 118, 5), (7, 5, 254, 5), (7, 5, 259, 5), (7, 10, 422, 5))
    told = Request.find_rejected(found, NO_EXPIRES, {}, is_whole=False, rejected_before={118})
    assert told.starts.tolist() == [118, 259]
    assert told.is_certain
    # Without a word of the nodes it counts as new: most first requests are.
    assert Request.find_rejected(found, NO_EXPIRES, {}, is_whole=False).starts.tolist() == [259]
    # What is known by the log itself is not asked for.
    told = Request.find_rejected(found, NO_EXPIRES, {}, is_whole=False, rejected_before={118, 422})
    assert told.starts.tolist() == [118, 259]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("nodes") / "node-1"
    made = asyncio.run(make_log(place, seed=5, rounds=2, segment_bytes=8_192))
    return replicate(made.directory, 2)


def test_indexes_say_which_requests_were_sent_twice(nodes: list[Path], tmp_path: Path) -> None:
    sent = [
        one.header
        for one in batches_of(nodes[0])
        if one.header.kind == Kind.PUBLISH and one.header.producer_id
    ]
    again = sent[1].base_sequence
    assert sent[1].producer_sequence == sent[0].producer_sequence
    requests = state_of(*nodes, ledger=False).facts.requests
    copies = discover([str(one) for one in nodes]).copies(0)
    found = rejected_firsts(copies, requests)
    assert again in found
    assert sent[0].base_sequence not in found
    # What one node cannot read, the other says; without any nothing is said.
    broken = [copied(one, tmp_path) for one in nodes]
    (index,) = (broken[0] / "shard-0" / "sequences").glob("*.seq")
    index.write_bytes(b"")
    copies = discover([str(one) for one in broken]).copies(0)
    assert rejected_firsts(copies, requests) == found
    (index,) = (broken[1] / "shard-0" / "sequences").glob("*.seq")
    index.unlink()
    assert rejected_firsts(copies, requests) == frozenset()
