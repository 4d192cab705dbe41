"""What a scan yields: every row once, whatever the parts; and only rows for which it is asked."""

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import Kind
from spark_jobs.logs.columns import TABLES
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.names import read_names
from spark_jobs.logs.options import parse_options
from spark_jobs.logs.scan import Condition, Scan
from tests.support.audited import copied, only_copy, tables_of
from tests.support.log_maker import Made, log_end, make_log, replicate, segments, set_high_watermark

Rows = list[dict[str, Any]]


def scan(directory: Path, *conditions: Condition, **options: str) -> Rows:
    """All rows, read as tasks do: the scan and its parts go through pickle."""
    one = Scan(parse_options({"path": str(directory), **options}), conditions)
    worker = pickle.loads(pickle.dumps(one))
    parts = pickle.loads(pickle.dumps(one.plan()))
    rows: Rows = []
    for part in parts:
        for batch in worker.read(part):
            assert batch.schema == one.schema()
            rows += batch.to_pylist()
    return rows


def test_messages_when_scanned_are_those_that_were_published(made: Made) -> None:
    rows = scan(made.directory, bodies="true")
    assert [row["sequence"] for row in rows] == list(range(len(made.accepted) + made.void))
    for row in rows:
        if row["sequence"] in made.accepted:
            assert (row["topic"], row["due_ms"]) == made.accepted[row["sequence"]]
            assert row["body"] == made.bodies[row["sequence"]]
            assert row["body_len"] == len(row["body"])
        assert (row["node"], row["shard"], row["cluster"]) == ("node-1", 0, bytes(range(16)).hex())
        assert (row["meta_len"] > 0) == bool(row["keys"]) == bool(row["tags"])


@pytest.mark.parametrize("rows", TABLES)
def test_table_when_cut_into_parts_has_the_same_rows(made: Made, rows: str) -> None:
    whole = scan(made.directory, rows=rows)
    assert scan(made.directory, rows=rows, partition_bytes="4096") == whole
    assert bool(whole) == (rows not in {"damage", "reschedules"})


def test_batches_when_scanned_say_kind_and_digest(made: Made) -> None:
    rows = scan(made.directory, rows="batches")
    tables = list(tables_of(*only_copy(made.directory)))
    assert [row["offset"] for row in rows] == [
        int(one) for table in tables for one in table.headers["offset"]
    ]
    assert [row["digest"] for row in rows] == [one for table in tables for one in table.digests()]
    assert all(row["verified"] for row in rows)
    assert {row["kind_name"] for row in rows} >= {Kind.PUBLISH.name, Kind.RESOLVE.name}


def test_row_tables_when_scanned_have_names_and_places(made: Made) -> None:
    resolves = scan(made.directory, rows="resolves")
    assert {row["group"] for row in resolves} == {"billing", "archive"}
    assert "%RETRY%billing|orders" in {row["topic"] for row in resolves}
    names = read_names(discover([str(made.directory)]), 0)
    assert all(row["topic"] == names.topics[row["topic_id"]] for row in resolves)
    dispatches = scan(made.directory, rows="dispatches")
    assert all(
        (after["prev_due_ms"], after["prev_sequence"])
        == (before["to_due_ms"], before["to_sequence"])
        for before, after in pairwise(dispatches)
    )
    assert {row["sequence"] for row in scan(made.directory, rows="cancels")} >= made.cancelled


async def test_reschedules_when_messages_were_moved_are_rows(tmp_path: Path) -> None:
    life = await make_log(tmp_path / "node-1", seed=5, rounds=1, moves=True)
    rows = scan(life.directory, rows="reschedules")
    assert life.moved
    assert {row["sequence"] for row in rows} >= life.moved.keys()


def test_queue_entries_when_scanned_are_positions_in_order(made: Made) -> None:
    rows = scan(made.directory, rows="queue_entries")
    ends: dict[tuple[int, int], int] = {}
    for row in rows:
        key = (row["topic_id"], row["queue"])
        assert row["position"] == ends.get(key, 0)
        ends[key] = row["position"] + 1
        assert row["release_ms"] == max(row["due_ms"], row["store_ms"])
    assert {row["sequence"] for row in rows if row["attempt"] == 1} >= made.released
    assert any(row["origin_topic"] != row["topic"] for row in rows)


CONDITIONS: list[tuple[Condition, Callable[[dict[str, Any]], bool]]] = [
    (Condition("sequence", "=", 7), lambda row: row["sequence"] == 7),
    (Condition("sequence", ">", 60), lambda row: row["sequence"] > 60),
    (Condition("sequence", "<=", 60), lambda row: row["sequence"] <= 60),
    (Condition("sequence", "in", (5, 90)), lambda row: row["sequence"] in {5, 90}),
    (Condition("sequence", "in", ()), lambda _: False),
    (Condition("offset", ">=", 20_000), lambda row: row["offset"] >= 20_000),
    (Condition("offset", "<", 20_000), lambda row: row["offset"] < 20_000),
    (Condition("store_ms", ">", 1_800_000_060_000), lambda r: r["store_ms"] > 1_800_000_060_000),
    (Condition("topic", "=", "orders"), lambda row: row["topic"] == "orders"),
    (Condition("topic", "in", ("orders", "x")), lambda row: row["topic"] == "orders"),
    (Condition("topic", "=", "absent"), lambda _: False),
    (Condition("node", "=", "node-1"), lambda _: True),
    (Condition("node", "=", "node-2"), lambda _: False),
    (Condition("shard", ">", 0), lambda _: False),
    (Condition("key_hash", "<", 0), lambda row: row["key_hash"] < 0),
]


@pytest.mark.parametrize("partition_bytes", ["4096", "100000000"])
@pytest.mark.parametrize(("condition", "holds"), CONDITIONS)
def test_condition_when_pushed_down_leaves_the_rows_for_which_it_holds(
    made: Made,
    partition_bytes: str,
    condition: Condition,
    holds: Callable[[dict[str, Any]], bool],
) -> None:
    everything = scan(made.directory)
    expected = [row for row in everything if holds(row)]
    assert scan(made.directory, condition, partition_bytes=partition_bytes) == expected


def test_condition_when_at_the_edge_of_a_part_finds_it(made: Made) -> None:
    firsts: dict[str, list[int]] = {"offset": [], "sequence": []}
    one = Scan(parse_options({"path": str(made.directory), "partition_bytes": "4096"}))
    for part in one.plan():
        rows = [row for batch in one.read(part) for row in batch.to_pylist()]
        for column, found in firsts.items():
            found.extend([rows[0][column], rows[-1][column]] if rows else [])
    assert len(set(firsts["sequence"])) > 4
    for column, found in firsts.items():
        for value in found:
            for sign in ("=", "<=", ">="):
                rows = scan(made.directory, Condition(column, sign, value), partition_bytes="4096")
                assert value in {row[column] for row in rows}


def test_conditions_when_several_must_all_hold(made: Made) -> None:
    low, high = Condition("sequence", ">=", 20), Condition("sequence", "<", 40)
    rows = scan(made.directory, low, high, columns="sequence", partition_bytes="4096")
    assert [row["sequence"] for row in rows] == list(range(20, 40))


def test_condition_when_it_excludes_parts_they_are_not_read(made: Made) -> None:
    options = parse_options({"path": str(made.directory), "partition_bytes": "4096"})
    everything = Scan(options).plan()
    for column, value in (("sequence", 3), ("offset", 2_000)):
        assert len(Scan(options, (Condition(column, "<", value),)).plan()) < len(everything) / 2


def test_condition_when_not_understood_is_left_to_others(made: Made) -> None:
    everything = scan(made.directory)
    for condition in (Condition("segment", "=", "x"), Condition("topic", "<", "z")):
        assert scan(made.directory, condition) == everything


def test_damage_when_there_is_some_is_rows_and_the_rest_is_there(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    first, second = segments(directory)[:2]
    raw = bytearray(first.read_bytes())
    raw[-9] ^= 1  # in rows or blobs
    first.write_bytes(raw)
    second.unlink()
    chunk = next((directory / "shard-0" / "queues").glob("*/*.cq"))
    chunk.write_bytes(b"")
    rows = scan(directory, rows="damage")
    assert {row["reason"] for row in rows} == {
        "corrupt-payload",
        "corrupt-file",
        "segment-missing",
    }
    assert {row["node"] for row in rows} == {"node-1"}
    assert 0 < len(scan(directory)) < len(scan(made.directory))


def test_until_committed_when_asked_for_stops_at_the_high_watermark(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    (directory / "shard-0" / "checkpoint").unlink()
    offsets = [row["offset"] for row in scan(directory, rows="batches")]
    set_high_watermark(directory, offsets[20])
    committed = scan(directory, rows="batches", until="committed")
    assert [row["offset"] for row in committed] == offsets[:20]


def test_nodes_when_chosen_are_the_only_ones(made: Made, tmp_path: Path) -> None:
    replicate(copied(made.directory, tmp_path))
    whole = scan(tmp_path, rows="batches", columns="node,offset")
    assert {row["node"] for row in whole} == {"node-1", "node-2", "node-3"}
    one = scan(tmp_path, rows="batches", columns="node,offset", nodes="node-2")
    assert one == [row for row in whole if row["node"] == "node-2"]
    assert len(one) * 3 == len(whole)
    with pytest.raises(errors.ConfigError, match="no node 'node-9', but node-1, node-2, node-3"):
        scan(tmp_path, nodes="node-9")


def test_scan_when_there_is_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.NoLogs):
        scan(tmp_path)


def test_scan_when_the_log_is_being_written_ends_with_its_last_whole_batch(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    last = segments(directory)[-1]
    last.write_bytes(last.read_bytes() + last.read_bytes()[64:130])
    assert log_end(directory) == log_end(made.directory) + 66
    assert scan(directory) == scan(made.directory)
    (row,) = scan(directory, rows="damage")
    assert (row["reason"], row["offset"]) == ("torn-tail", log_end(made.directory))
