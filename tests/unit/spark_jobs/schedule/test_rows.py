from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from hourwheel import errors, instants, limits
from hourwheel.types import DUE_MS_MAX
from spark_jobs.schedule import rows as schedule_rows


def judged(columns: dict[str, Any], topic: str | None = "t", most: int = 100) -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns)
    return schedule_rows.check_batch(
        batch, topic=topic, body_bytes_max=most, due_ms_min=0
    ).to_pylist()


def problems(columns: dict[str, Any], topic: str | None = "t") -> list[str | None]:
    return [row["problem"] for row in judged(columns, topic)]


def test_rows_that_are_right_keep_what_they_say() -> None:
    (row,) = judged(
        {
            "topic": ["orders"],
            "body": ["grüße"],
            "delay_ms": pa.array([5], pa.int32()),
            "tags": [["a"]],
            "keys": [["k"]],
            "properties": pa.array([[("p", "v")]], pa.map_(pa.string(), pa.string())),
            "client_message_id": ["c"],
        },
        topic=None,
    )
    assert row == {
        "topic": "orders",
        "is_delay": True,
        "time_ms": 5,
        "body": "grüße".encode(),
        "tags": ["a"],
        "keys": ["k"],
        "properties": [("p", "v")],
        "client_message_id": "c",
        "content_type": None,
        "problem": None,
        "detail": None,
    }


def test_an_instant_is_never_rounded_down() -> None:
    due = datetime(2027, 3, 1, 9, 0, 0, 1, UTC)
    column = pa.array([due], pa.timestamp("us", "UTC"))
    (row,) = judged({"body": [b"x"], "due": column})
    assert row["time_ms"] == int(due.timestamp()) * 1_000 + 1
    assert not row["is_delay"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [None], "due_ms": [1]}, "INVALID_ARGUMENT"),
        ({"body": [b"x" * 101], "due_ms": [1]}, "MESSAGE_TOO_LARGE"),
        ({"body": [b"x"], "due_ms": pa.array([None], pa.int64())}, "INVALID_DUE_TIME"),
        ({"body": [b"x"], "due_ms": [-1]}, "INVALID_DUE_TIME"),
        ({"body": [b"x"], "due_ms": [DUE_MS_MAX + 1]}, "INVALID_DUE_TIME"),
        ({"body": [b"x"], "due_ms": [1], "delay_ms": [1]}, "INVALID_DUE_TIME"),
        ({"body": [b"x"], "due_ms": [1], "topic": ["no topic"]}, "INVALID_TOPIC"),
        ({"body": [b"x"], "due_ms": [1], "topic": ["%DLQ%g"]}, "INVALID_TOPIC"),
        ({"body": [b"x"], "due_ms": [1], "topic": [""]}, "INVALID_TOPIC"),
        ({"body": [b"x"], "due_ms": [1], "tags": [[""]]}, "INVALID_ARGUMENT"),
        ({"body": [b"x"], "due_ms": [1], "keys": [["k"] * 17]}, "MESSAGE_TOO_LARGE"),
        ({"body": [b"x"], "due_ms": [1]}, None),
    ],
)
def test_a_bad_value_is_a_problem_of_its_row(columns: dict[str, Any], reason: str | None) -> None:
    assert problems(columns) == [reason]


def test_the_row_beside_a_bad_one_is_good() -> None:
    columns = {"body": [b"a", None, b"c"], "due_ms": [1, 2, 3], "topic": ["a", "a", None]}
    assert problems(columns) == [None, "INVALID_ARGUMENT", None]
    assert problems(columns, topic=None) == [None, "INVALID_ARGUMENT", "INVALID_TOPIC"]


@pytest.mark.parametrize(
    ("names", "topic", "what"),
    [
        (["body", "topic", "deu_ms"], None, "unknown columns: deu_ms"),
        (["topic", "due_ms"], None, "no column `body`"),
        (["body", "topic"], None, "no time"),
        (["body", "due_ms"], None, "no column `topic`"),
        (["body", "due_ms"], "no topic", "topic's name"),
        (["body", "body", "due_ms"], "t", "twice"),
    ],
)
def test_a_table_that_is_no_schedule_is_refused(
    names: list[str], topic: str | None, what: str
) -> None:
    with pytest.raises(errors.ConfigError, match=what):
        schedule_rows.check_columns(names, topic=topic)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"body": [1], "due_ms": [1]}, "`body`"),
        ({"body": [b"x"], "due_ms": [1.5]}, "`due_ms`"),
        ({"body": [b"x"], "due": ["tomorrow"]}, "`due`"),
        ({"body": [b"x"], "due": pa.array([1], pa.timestamp("us"))}, "time zone"),
        ({"body": [b"x"], "due_ms": [1], "tags": [1]}, "`tags`"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused(columns: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.ConfigError, match=what):
        judged(columns)


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (pa.field("tags", pa.string()), "`tags` is string: it must be list"),
        (pa.field("properties", pa.string()), "`properties` is string: it must be map"),
        (pa.field("due", pa.string()), "`due` is string: it must be a timestamp"),
        (pa.field("delay_ms", pa.float64()), "`delay_ms` is double: it must be an integer"),
        (pa.field("body", pa.int32()), "`body` is int32: it must be binary or string"),
    ],
)
def test_a_table_of_wrong_types_is_refused_before_its_rows_are_read(
    field: pa.Field, what: str
) -> None:
    good = [pa.field("body", pa.binary()), pa.field("due_ms", pa.int64())]
    schedule_rows.check_types(pa.schema(good), topic="t")
    others = [one for one in good if one.name != field.name]
    with pytest.raises(errors.ConfigError, match=what):
        schedule_rows.check_types(pa.schema([*others, field]), topic="t")


def test_sorting_puts_good_rows_first_stream_by_stream_by_time() -> None:
    batch = schedule_rows.check_batch(
        pa.RecordBatch.from_pydict(
            {
                "topic": ["b", "a", "a", "a", "bad topic"],
                "body": [b"1", b"2", b"3", b"4", b"5"],
                "due_ms": pa.array([7, 9, 8, None, 1]),
                "delay_ms": pa.array([None, None, None, 3, None]),
            }
        ),
        topic=None,
        body_bytes_max=10,
        due_ms_min=0,
    )
    table = schedule_rows.sort(pa.Table.from_batches([batch]))
    (whole,) = table.combine_chunks().to_batches()
    found = [
        (topic, is_delay, rows["time_ms"].to_pylist(), rows["body"].to_pylist())
        for topic, is_delay, rows in schedule_rows.runs(whole)
    ]
    assert found == [
        ("a", False, [8, 9], [b"3", b"2"]),
        ("a", True, [3], [b"4"]),
        ("b", False, [7], [b"1"]),
    ]
    assert table["body"].to_pylist()[-1] == b"5"
    assert list(schedule_rows.runs(whole.slice(4))) == []


def test_drafts_can_be_cut_anywhere() -> None:
    batch = schedule_rows.check_batch(
        pa.RecordBatch.from_pydict(
            {"body": [b"a", b"bb", b"ccc"], "due_ms": [1, 2, 3], "tags": [["x"], None, ["y"]]}
        ),
        topic="t",
        body_bytes_max=limits.MESSAGE_BODY_BYTES_MAX,
        due_ms_min=0,
    )
    draft = schedule_rows.to_draft(batch)
    assert draft.metas is not None
    part = schedule_rows.part_of(draft, 1, 3)
    assert part.bodies == [b"bb", b"ccc"]
    assert part.times_ms.tolist() == [2, 3]
    assert part.metas == draft.metas[1:]
    assert part.blob_bytes == 5 + len(draft.metas[2].raw)
    plain = schedule_rows.part_of(schedule_rows.to_draft(batch.slice(1, 1)), 0, 1)
    assert plain.metas is None


@pytest.mark.parametrize("name", ["due", "due_ms"])
def test_an_instant_before_2001_is_seconds_by_mistake(name: str) -> None:
    limit = instants.INSTANT_MS_MIN
    given = [1_790_000_000, limit - 1, limit, 1_790_000_000_000]
    kind = pa.timestamp("ms", "UTC") if name == "due" else pa.int64()
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 4, name: pa.array(given, kind)})
    rows = schedule_rows.check_batch(batch, topic="t", body_bytes_max=1).to_pylist()
    assert [row["problem"] for row in rows] == ["INVALID_DUE_TIME"] * 2 + [None] * 2
    assert "1970-01-21, before 2001-01-01: are these seconds?" in rows[0]["detail"]


def test_a_delay_may_be_short_whatever_instants_may_be() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 2, "delay_ms": [0, 5]})
    rows = schedule_rows.check_batch(batch, topic="t", body_bytes_max=1).to_pylist()
    assert [row["problem"] for row in rows] == [None, None]
