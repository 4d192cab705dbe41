"""A stream reads every committed batch once, nothing above, and says when it was too slow."""

from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from spark_jobs.logs.options import parse_options
from spark_jobs.logs.stream import LogStream
from tests.support.audited import copied, only_copy, tables_of
from tests.support.log_maker import Made, log_end, replicate, segments, set_high_watermark


def stream(directory: Path, **options: str) -> LogStream:
    return LogStream(parse_options({"path": str(directory), "rows": "batches", **options}))


def read(one: LogStream, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [
        row
        for part in one.plan(start, end)
        for batch in one.scan.read(part)
        for row in batch.to_pylist()
    ]


def offsets_of(directory: Path) -> list[int]:
    return [
        int(offset)
        for table in tables_of(*only_copy(directory))
        for offset in table.headers["offset"]
    ]


@pytest.fixture
def replica(made: Made, tmp_path: Path) -> Path:
    """A node with peers, and nothing committed by its checkpoint."""
    (directory,) = replicate(copied(made.directory, tmp_path), 1)
    (directory / "shard-0" / "checkpoint").unlink()
    return directory


def test_stream_when_more_is_committed_reads_just_that(replica: Path) -> None:
    offsets, one = offsets_of(replica), stream(replica, partition_bytes="4096")
    start, found = one.initial(), list[int]()
    assert start == {"node-1/0": 0}
    for count in (0, 7, 7, 30, len(offsets) - 1):
        set_high_watermark(replica, offsets[count])
        end = one.latest(start)
        assert end == {"node-1/0": offsets[count]}
        found += [row["offset"] for row in read(one, start, end)]
        assert found == offsets[:count]
        start = end


def test_stream_when_nothing_is_new_has_no_parts(replica: Path) -> None:
    one = stream(replica)
    end = one.latest(one.initial())
    assert one.plan(end, end) == []


def test_stream_when_it_begins_at_the_end_skips_what_is_there(replica: Path) -> None:
    assert stream(replica, starting="latest").initial() == {"node-1/0": log_end(replica)}


def test_stream_when_the_watermark_is_ahead_of_the_log_ends_with_what_is_durable(
    replica: Path,
) -> None:
    end = log_end(replica)
    set_high_watermark(replica, end + 4_096)
    last = segments(replica)[-1]
    last.write_bytes(last.read_bytes() + last.read_bytes()[64:130])  # half a batch
    assert stream(replica).latest() == {"node-1/0": end}
    last.write_bytes(last.read_bytes()[:-100])  # less than was durable
    assert stream(replica).latest() == {"node-1/0": 0}
    assert stream(replica).latest({"node-1/0": end}) == {"node-1/0": end}


def test_stream_when_a_node_is_away_stays_where_it_was(made: Made, tmp_path: Path) -> None:
    places = replicate(copied(made.directory, tmp_path), 2)
    one = stream(tmp_path)
    start = one.latest()
    assert set(start) == {"node-1/0", "node-2/0"}
    places[1].rename(tmp_path.parent / f"{tmp_path.name}-away")
    assert one.latest(start) == start
    assert one.plan(start, one.latest(start)) == []
    with pytest.raises(errors.CorruptLog, match="not there any more"):
        one.plan({**start, "node-2/0": 0}, start)


def test_stream_when_retention_was_faster_is_an_error_or_goes_on(replica: Path) -> None:
    one = stream(replica)
    end = one.latest()
    first, second = segments(replica)[:2]
    first.unlink()
    with pytest.raises(errors.CorruptLog, match=f"begins at {int(second.stem)}"):
        one.plan({"node-1/0": 0}, end)
    rows = read(stream(replica, fail_on_loss="false"), {"node-1/0": 0}, end)
    assert rows[0]["offset"] == int(second.stem)


def test_stream_when_retention_takes_a_file_behind_the_plan_is_an_error_or_goes_on(
    replica: Path,
) -> None:
    one = stream(replica)
    end = one.latest()
    first, second = segments(replica)[:2]
    parts = one.plan({"node-1/0": 0}, end)
    first.unlink()
    with pytest.raises(errors.CorruptLog, match=first.name):
        [list(one.scan.read(part)) for part in parts]
    lax = stream(replica, fail_on_loss="false")
    found = [row for part in parts for batch in lax.scan.read(part) for row in batch.to_pylist()]
    assert found[0]["offset"] == int(second.stem)


def test_stream_when_of_queues_is_refused(replica: Path) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be followed"):
        stream(replica, rows="queue_entries")
