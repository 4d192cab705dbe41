from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hourwheel import errors
from spark_jobs.schedule import plan
from spark_jobs.schedule import rows as schedule_rows
from spark_jobs.schedule.plan import Ledger, Plan
from spark_jobs.schedule.window import Outcome, Receipt, RowRange, Tally


def plan_of(rows: int = 3, *, nonce: str = "n") -> Plan:
    return Plan(
        job="j",
        nonce=nonce,
        cluster="c",
        created_ms=1,
        batch_messages=2,
        rows=rows,
        bad_rows=0,
        buckets=("b.parquet",),
    )


def frozen(topics: list[str], due: list[int]) -> pa.Table:
    columns = {"topic": topics, "body": [str(d).encode() for d in due], "due_ms": due}
    batch = schedule_rows.check_batch(
        pa.RecordBatch.from_pydict(columns), topic=None, body_bytes_max=100, due_ms_min=0
    )
    return pa.Table.from_batches([batch])


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "a b", "x" * 101, "ü"])
def test_a_job_is_named_so_that_it_can_be_a_folder(job: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="job's name"):
        Ledger.of(str(tmp_path), job)


def test_the_first_plan_holds(tmp_path: Path) -> None:
    ledger = Ledger.of(str(tmp_path), "j")
    assert ledger.find_plan() is None
    assert ledger.settle_plan(plan_of(3, nonce="a")) == plan_of(3, nonce="a")
    assert ledger.settle_plan(plan_of(4, nonce="b")) == plan_of(3, nonce="a")
    assert Ledger.of(f"file://{tmp_path}/", "j").find_plan() == plan_of(3, nonce="a")


@pytest.mark.parametrize("raw", ["[]", "5", '{"job": "j"}', '{"buckets": []}', '{"buckets": 3}'])
def test_a_plan_that_says_something_else_is_a_damaged_file(tmp_path: Path, raw: str) -> None:
    ledger = Ledger.of(str(tmp_path), "j")
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "plan.json").write_text(raw)
    with pytest.raises(errors.CorruptFile, match=r"plan\.json is not understood"):
        ledger.find_plan()
    for folder in ("begun", "done"):
        (tmp_path / "j" / folder).mkdir()
        (tmp_path / "j" / folder / "b.json").write_text(raw)
    with pytest.raises(errors.CorruptFile, match="not understood"):
        ledger.begin("b", 5)
    with pytest.raises(errors.CorruptFile, match="not understood"):
        ledger.find_done("b")


def test_marks_say_since_when_and_what(tmp_path: Path) -> None:
    ledger = Ledger.of(str(tmp_path), "j")
    assert ledger.begin("b", 100) is None
    assert ledger.begin("b", 200) == 100
    assert ledger.find_done("b") is None
    tally = Tally(
        [RowRange("t", False, 0, 5, Outcome.REFUSED, "R", "why")],
        [Receipt("t", False, 5, 9, 0, 1, 70, 3)],
    )
    ledger.finish("b", tally)
    found = ledger.find_done("b")
    assert found is not None
    assert (found.ranges, found.receipts) == (tally.ranges, tally.receipts)
    assert found.count(Outcome.REFUSED) == 5
    ledger.undo("b")
    assert ledger.find_done("b") is None


def test_a_bucket_gives_the_same_pieces_to_whoever_reads_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "b.parquet")
    plan.write_bucket(uri, frozen(["b", "a", "a", "bad topic", "a"], [4, 3, 1, 9, 2]))
    assert plan.count_rows(uri) == (5, 1)
    found = [
        [
            (piece.key.topic, piece.producer_id, piece.first, piece.draft.bodies)
            for piece in plan.pieces_of(plan.read_bucket(uri), plan_of(), "b")
        ]
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert [(topic, first, bodies) for topic, _, first, bodies in found[0]] == [
        ("a", 0, [b"1", b"2"]),
        ("a", 2, [b"3"]),
        ("b", 0, [b"4"]),
    ]
    assert len({producer for _, producer, _, _ in found[0]}) == 2


def test_problems_are_rows_with_their_reasons(tmp_path: Path) -> None:
    uri, out = str(tmp_path / "b.parquet"), str(tmp_path / "problems.parquet")
    plan.write_bucket(uri, frozen(["a", "a", "a", "bad topic", "b"], [1, 2, 3, 4, 5]))
    tally = Tally(
        [
            RowRange("a", False, 0, 1, Outcome.SCHEDULED),
            RowRange("a", False, 1, 3, Outcome.REFUSED, "BEYOND_HORIZON", "far"),
            RowRange("b", False, 0, 1, Outcome.IN_DOUBT, "UNKNOWN_PRODUCER", "old"),
        ]
    )
    found = plan.problems_of(plan.read_bucket(uri), "bucket", tally)
    reasons = plan.write_problems(out, found)
    assert reasons == {"BEYOND_HORIZON": 2, "INVALID_TOPIC": 1, "UNKNOWN_PRODUCER": 1}
    rows = pq.read_table(out).to_pylist()
    assert {row["bucket"] for row in rows} == {"bucket"}
    assert sorted((row["body"], row["outcome"], row["problem"]) for row in rows) == [
        (b"2", "refused", "BEYOND_HORIZON"),
        (b"3", "refused", "BEYOND_HORIZON"),
        (b"4", "bad row", "INVALID_TOPIC"),
        (b"5", "in doubt", "UNKNOWN_PRODUCER"),
    ]
    assert plan.write_problems(out, []) == {}
    assert not Path(out).exists()


def test_nonces_differ() -> None:
    assert plan.new_nonce() != plan.new_nonce()
