"""Entries and pending units that point to other bytes than their messages', on one replica."""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest

from spark_jobs.audit.bodies import _crcs, _pieces
from tests.support.audit_runs import errors_of, run_audit
from tests.support.broken_logs import lose_beginning, read_queue, rewrite_queue
from tests.support.log_maker import make_log


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's directory with a queue whose entries lie in the log and in delay logs."""
    place = tmp_path_factory.mktemp("made") / "node-1"
    asyncio.run(make_log(place, seed=3, rounds=4))
    return place


@pytest.fixture
def node(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "node-1"))


def queue_with(node: Path, *, in_log: bool) -> tuple[int, int]:
    """(a queue, the position of an entry whose message lies there)."""
    for folder in sorted((node / "shard-0" / "queues").iterdir()):
        units = read_queue(node, int(folder.name, 16))
        found = np.flatnonzero((units["dlog_id"] == 0) == in_log)
        if len(found):
            return int(folder.name, 16), int(found[len(found) // 2])
    raise AssertionError("no such entry")


@pytest.mark.parametrize("in_log", [True, False])
@pytest.mark.parametrize("field", ["position", "dlog_id"])
@pytest.mark.parametrize("shift", [1, 8, 1 << 30])
def test_entry_that_points_elsewhere_is_named(
    node: Path, in_log: bool, field: str, shift: int
) -> None:
    queue, at = queue_with(node, in_log=in_log)
    units = read_queue(node, queue)
    sequence = int(units["sequence"][at])
    units[field][at] += shift
    rewrite_queue(node, queue, units)
    (found,) = errors_of(run_audit(node))
    assert (found.check, found.sequence, found.position) == ("body-wrong", sequence, at)
    assert found.file == f"shard-0/queues/{queue:08x}/{0:012}.cq"


def test_entry_is_looked_for_in_the_log_when_its_beginning_is_gone(node: Path) -> None:
    lose_beginning(node)
    assert errors_of(run_audit(node)) == []
    queue, at = queue_with(node, in_log=True)
    units = read_queue(node, queue)
    units["position"][at] += 8
    rewrite_queue(node, queue, units)
    (found,) = errors_of(run_audit(node))
    assert (found.check, found.sequence) == ("body-wrong", int(units["sequence"][at]))


def test_flipped_bit_of_a_delay_log_is_named_by_whoever_points_there(node: Path) -> None:
    path = max((node / "shard-0" / "wheel").glob("*.dlog"))
    raw = bytearray(path.read_bytes())
    raw[64] ^= 1
    path.write_bytes(raw)
    found = errors_of(run_audit(node))
    assert {one.check for one in found} == {"body-wrong"}
    assert len({one.sequence for one in found}) == 1
    assert all(path.name in one.detail and " 64 of " in one.detail for one in found)


def test_crcs_of_what_is_not_there_equal_nothing() -> None:
    starts, sizes = np.array([0, 2, -1, 9]), np.array([2, 2, 3, 2])
    found = _crcs(b"abcdefghij", starts, sizes)
    assert (found[2], found[3]) == (-1, -1)
    assert found[0] == _crcs(b"ab", np.array([0]), np.array([2]))[0]
    assert found[0] != found[1]


def test_far_places_are_read_apart() -> None:
    starts = np.array([0, 10, 100_000, 100_010])
    assert list(_pieces(starts, starts + 10)) == [(0, 2), (2, 4)]
    big = np.arange(4) * (3 << 20)
    assert list(_pieces(big, big + (3 << 20))) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert list(_pieces(starts[:0], starts[:0])) == []
