from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.schedule import bulk
from spark_jobs.schedule import plan as schedule_plan
from spark_jobs.schedule.bulk import ScheduleOptions, to_options
from spark_jobs.schedule.plan import Ledger, Plan
from spark_jobs.schedule.window import Outcome, RowRange, Tally


def test_texts_become_options() -> None:
    found = to_options(
        {
            "server": "a:1,b:2",
            "job": "j",
            "ledger": "/x",
            "Batch_Messages": "7",
            "retry_refused": "true",
            "patience_ms": "5.5",
            "due_ms_min": "0",
        }
    )
    assert found == ScheduleOptions(
        server="a:1,b:2",
        job="j",
        ledger="/x",
        batch_messages=7,
        retry_refused=True,
        patience_ms=5.5,
        due_ms_min=0,
    )
    found.check()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"jbo": "1"}, "unknown options: jbo"),
        ({"parallelism": "many"}, "wrong value"),
        ({"job": "no job"}, "job's name"),
        ({"server": " , "}, "host:port"),
        ({"batch_messages": "0"}, "batch_messages"),
        ({"body_bytes_max": "5000000"}, "body_bytes_max"),
        ({"parallelism": "-2"}, "parallelism"),
        ({"producer_idle_ms": "0"}, "producer_idle_ms"),
        ({"patience_ms": "-1"}, "patience_ms"),
        ({"patience_ms": "nan"}, "patience_ms"),
        ({"due_ms_min": "-1"}, "due_ms_min"),
        ({"retry_refused": "5"}, "neither true nor false"),
    ],
)
def test_options_that_cannot_be_are_refused(more: dict[str, str], what: str) -> None:
    with pytest.raises(errors.ConfigError, match=what):
        to_options({"server": "a:1", "job": "j", "ledger": "/x", **more}).check()


def test_a_bucket_that_is_done_is_not_sent_again(tmp_path: Path) -> None:
    options = ScheduleOptions(server="127.0.0.1:1", job="j", ledger=str(tmp_path))
    ledger = Ledger.of(str(tmp_path), "j")
    tally = Tally([RowRange("t", False, 0, 5, Outcome.SCHEDULED)])
    ledger.finish("b", tally)
    plan = Plan(
        job="j",
        nonce=schedule_plan.new_nonce(),
        cluster="c",
        created_ms=1,
        batch_messages=5,
        rows=5,
        bad_rows=0,
        buckets=("b",),
    )
    assert bulk.send_bucket(options, plan, "b").ranges == tally.ranges


def test_a_result_is_complete_when_each_row_is_scheduled() -> None:
    whole = bulk.ScheduleResult(
        job="j", rows=5, scheduled=2, repeated=3, bad=0, refused=0, in_doubt=0
    )
    assert whole.is_complete
    assert whole.as_json()["is_complete"]
