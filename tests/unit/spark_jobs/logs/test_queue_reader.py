"""Queue entries are read as far as the checkpoint vouches for them, and damage is told."""

from pathlib import Path

import numpy as np
import pytest

from chaos.log_model import LogModel
from spark_jobs.logs.block_table import CORRUPT_FILE, Damage
from spark_jobs.logs.queue_reader import QueuePiece, plan_by_seals, plan_queues, read_queue
from tests.bench.audit_log import CHUNK_ENTRIES, write_log
from tests.support.audited import copied, only_copy, tables_of
from tests.support.log_maker import TOPICS, Made


def read(directory: Path, partition_entries: int = 1 << 20) -> list[QueuePiece | Damage]:
    replica, copy = only_copy(directory)
    ranges = plan_queues(replica, copy, partition_entries=partition_entries)
    return [piece for one in ranges for piece in read_queue(one)]


def model_of(directory: Path) -> LogModel:
    """The naive reading of the log."""
    model = LogModel()
    for table in tables_of(*only_copy(directory)):
        for ordinal in range(len(table)):
            model.read(table.batch(ordinal))
    return model


def entries_of(directory: Path) -> dict[int, list[tuple[int, int, int]]]:
    """topic_queue -> (due_ms, sequence, attempt) of each position."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for piece in read(directory):
        assert isinstance(piece, QueuePiece)
        own = found.setdefault(piece.where.topic_queue, [])
        assert piece.first_position == len(own)
        assert set(piece.units["topic_queue"].tolist()) == {piece.where.topic_queue}
        own += piece.units[["due_ms", "sequence", "attempt"]].tolist()
    return found


def expected_of(model: LogModel) -> dict[int, list[tuple[int, int, int]]]:
    return {
        number: [(one.due_ms, one.sequence, one.attempt) for one in entries]
        for number, entries in model.queues.items()
        if entries
    }


def test_entries_when_an_engine_wrote_them_are_what_the_log_says(made: Made) -> None:
    model = model_of(made.directory)
    assert entries_of(made.directory) == expected_of(model)
    firsts = {e.sequence for q in model.queues.values() for e in q if e.attempt == 1}
    assert made.released == {one for one in firsts if one in made.accepted}
    assert {name for name in model.topics.values() if "%" not in name} == set(TOPICS)


def test_large_log_when_made_is_what_a_node_would_have_written(tmp_path: Path) -> None:
    """tests/bench/audit_log.py: the benchmarks' logs are sound, as their queues are."""
    large = write_log(tmp_path / "node-1", messages=20_000, per_ms=20, segment_bytes=1 << 20)
    model = model_of(large.directory)
    assert entries_of(large.directory) == expected_of(model)
    assert (large.messages, large.cancelled) == (len(model.messages), len(model.cancelled))
    assert large.cancelled > 0
    assert not model.waiting
    model.check()
    _, copy = only_copy(large.directory)
    assert len(copy.segments) > 1
    assert copy.end_offset == large.log_bytes


def test_ranges_when_small_cut_queues_between_chunks(made: Made) -> None:
    whole = [piece for piece in read(made.directory) if isinstance(piece, QueuePiece)]
    small = [piece for piece in read(made.directory, 1) if isinstance(piece, QueuePiece)]
    assert all(len(piece.units) <= CHUNK_ENTRIES for piece in small)
    assert np.array_equal(
        np.concatenate([piece.units for piece in whole]),
        np.concatenate([piece.units for piece in small]),
    )


def test_range_when_it_begins_inside_a_chunk_has_the_entries_from_there(made: Made) -> None:
    replica, copy = only_copy(made.directory)
    whole = plan_queues(replica, copy)[0]
    (all_of_it,) = read_queue(whole)
    (some,) = read_queue(whole._replace(start_position=3, end_position=9))
    assert isinstance(all_of_it, QueuePiece)
    assert isinstance(some, QueuePiece)
    assert some.first_position == 3
    assert np.array_equal(some.units, all_of_it.units[3:9])


def test_queue_when_it_has_no_checkpoint_has_nothing_to_read(made: Made, tmp_path: Path) -> None:
    directory = copied(made.directory, tmp_path)
    (directory / "shard-0" / "checkpoint").unlink()
    assert read(directory) == []


@pytest.mark.parametrize("what", ["entry", "seal", "header", "gone"])
def test_chunk_when_damaged_is_told_and_the_others_are_read(
    made: Made, tmp_path: Path, what: str
) -> None:
    directory = copied(made.directory, tmp_path)
    chunk = directory / "shard-0" / "queues" / "00000100" / f"{0:012d}.cq"
    raw = bytearray(chunk.read_bytes())
    for place in {"entry": [300], "seal": [64, 128], "header": [8], "gone": []}[what]:
        raw[place] ^= 1
    chunk.write_bytes(raw)
    if what == "gone":
        chunk.unlink()
    found = read(directory)
    (one,) = [each for each in found if isinstance(each, Damage)]
    assert (one.reason, one.node, one.offset) == (CORRUPT_FILE, "node-1", -1)
    assert "queue 00000100" in one.detail
    assert len(found) == len(read(made.directory))


def test_chunk_when_the_first_is_cut_off_does_not_change_where_the_others_are(
    tmp_path: Path,
) -> None:
    large = write_log(tmp_path / "node-1", messages=600_000, per_ms=1_000)
    whole = [each for each in read(large.directory) if isinstance(each, QueuePiece)]
    number = whole[0].where.topic_queue
    mine = [each for each in whole if each.where.topic_queue == number]
    assert len(mine) > 1
    chunk = large.directory / "shard-0" / "queues" / f"{number:08x}" / f"{0:012d}.cq"
    chunk.write_bytes(chunk.read_bytes()[: 1 << 16])
    found = read(large.directory)
    assert sum(isinstance(each, Damage) for each in found) == 1
    rest = [
        each for each in found if isinstance(each, QueuePiece) and each.where.topic_queue == number
    ]
    assert [each.first_position for each in rest] == [each.first_position for each in mine[1:]]


# --- without a checkpoint: by the chunks' own seals -----------------------------------------------


def sealed(directory: Path) -> list[QueuePiece | Damage]:
    return [piece for one in plan_by_seals(*only_copy(directory)) for piece in read_queue(one)]


def pieces_of(found: list[QueuePiece | Damage]) -> list[tuple[str, int, bytes]]:
    pieces = [one for one in found if isinstance(one, QueuePiece)]
    return sorted((one.file, one.first_position, one.units.tobytes()) for one in pieces)


def test_chunks_when_there_is_no_checkpoint_are_read_by_their_seals(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    (directory / "shard-0" / "checkpoint").unlink()
    assert pieces_of(sealed(directory)) == pieces_of(read(made.directory))


@pytest.mark.parametrize("what", ["header", "nothing"])
def test_chunk_when_no_checkpoint_relied_on_it_vouches_for_nothing(
    made: Made, tmp_path: Path, what: str
) -> None:
    directory = copied(made.directory, tmp_path)
    chunk = directory / "shard-0" / "queues" / "00000100" / f"{0:012d}.cq"
    raw = bytearray(chunk.read_bytes())
    low = 64 if what == "header" else 0
    raw[low:256] = bytes(256 - low)
    chunk.write_bytes(raw)
    found = sealed(directory)
    assert not any(isinstance(one, Damage) for one in found)
    assert not any("00000100" in file for file, _, _ in pieces_of(found))


@pytest.mark.parametrize("what", ["entry", "seals", "header", "cut off"])
def test_chunk_when_it_fails_its_own_checks_is_told(made: Made, tmp_path: Path, what: str) -> None:
    directory = copied(made.directory, tmp_path)
    chunk = directory / "shard-0" / "queues" / "00000100" / f"{0:012d}.cq"
    raw = bytearray(chunk.read_bytes())
    for place in {"entry": [300], "seals": [64, 128], "header": [8], "cut off": []}[what]:
        raw[place] ^= 1
    chunk.write_bytes(raw[:400] if what == "cut off" else raw)
    (one,) = [each for each in sealed(directory) if isinstance(each, Damage)]
    assert (one.reason, one.is_expected) == (CORRUPT_FILE, False)
    assert one.file.endswith(f"00000100/{0:012d}.cq")


def test_chunk_when_it_is_missing_between_others_is_told(tmp_path: Path) -> None:
    large = write_log(tmp_path / "node-1", messages=600_000, per_ms=1_000)
    whole = [one for one in sealed(large.directory) if isinstance(one, QueuePiece)]
    number = next(one.where.topic_queue for one in whole if one.first_position > CHUNK_ENTRIES)
    folder = large.directory / "shard-0" / "queues" / f"{number:08x}"
    (folder / f"{1:012d}.cq").unlink()
    found = sealed(large.directory)
    (gone,) = [one for one in found if isinstance(one, Damage)]
    assert gone.file.endswith(f"{1:012d}.cq")
    assert len(found) == len(whole)
    (folder / f"{0:012d}.cq").unlink()  # as if retention had trimmed it
    assert len(sealed(large.directory)) == len(whole) - 2
