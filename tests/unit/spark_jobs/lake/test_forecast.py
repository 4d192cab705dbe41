from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from spark_jobs.audit.checks.ledger import PENDING, find_states
from spark_jobs.audit.log_state import read_logs
from spark_jobs.lake import forecast as load_forecast
from spark_jobs.lake.forecast import HOUR_MS, MINUTE_MS, Forecast, make_forecast
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.runner import LocalRunner
from tests.support.log_maker import Made

START_MS = 1_803_000_000_000 // HOUR_MS * HOUR_MS


def forecast_of(*rows: tuple[int, int, int, int]) -> Forecast:
    """Of (shard, topic id, minutes after the start, messages)."""
    table = np.array(rows, np.int64).reshape(-1, 4).T
    minutes = START_MS + MINUTE_MS * table[2]
    names = {(0, 1): "orders", (0, 2): "reminders"}
    return Forecast(table[0], table[1], minutes, table[3], 100 * table[3], names, START_MS)


def test_the_pending_messages_of_a_log_are_counted(made: Made) -> None:
    forecast = make_forecast(LocalRunner(), [str(made.directory)])
    (log,) = read_logs(LocalRunner(), [str(made.directory)])
    pending = {
        sequence
        for where in log.ranges
        for found in (find_states(table, log.plan) for table in read_blocks(where, verify=HEADERS))
        for sequence in found.sequence[found.state == PENDING].tolist()
    }
    assert pending
    expected = Counter(
        (topic, due_ms // MINUTE_MS * MINUTE_MS)
        for sequence, (topic, due_ms) in made.accepted.items()
        if sequence in pending
    )
    rows = range(len(forecast.messages))
    assert {
        (forecast.topic(row), int(forecast.minute_ms[row])): int(forecast.messages[row])
        for row in rows
    } == expected
    bodies = sum(len(made.bodies[sequence]) for sequence in pending)
    assert int(forecast.body_bytes.sum()) == bodies
    assert forecast.doubts == ()


def test_hours_topics_and_peaks_are_sums_of_minutes() -> None:
    forecast = forecast_of((0, 1, 0, 5), (0, 1, 61, 2), (0, 2, 61, 4), (1, 9, 200, 1))
    assert forecast.total == 12
    assert forecast.hours() == [
        (START_MS, 5),
        (START_MS + HOUR_MS, 6),
        (START_MS + 3 * HOUR_MS, 1),
    ]
    minute = START_MS + 61 * MINUTE_MS
    assert forecast.topics() == [
        ("orders", 7, START_MS, minute),
        ("reminders", 4, minute, minute),
        ("#9", 1, START_MS + 200 * MINUTE_MS, START_MS + 200 * MINUTE_MS),
    ]
    assert forecast.peaks(1) == [(minute, 6, "reminders")]
    assert forecast.summary(1)["peaks"] == [
        {"minute_ms": minute, "messages": 6, "topic": "reminders"}
    ]


def test_the_text_says_what_stands_out() -> None:
    text = load_forecast.lines(forecast_of((0, 1, 0, 5), (0, 2, 61, 20)), 1)
    assert text[0].startswith("25 messages are pending, as of 2027-02-19")
    assert any("20" in line and "most of reminders" in line for line in text)
    assert text[-1] == "  ... and 1 more hours: see the files"
    empty = load_forecast.lines(forecast_of(), 5)
    assert len(empty) == 1


def test_files_hold_all_rows(tmp_path: Path) -> None:
    forecast = forecast_of((0, 1, 0, 5), (0, 2, 61, 20))
    written = load_forecast.write(forecast, str(tmp_path))
    rows = pq.read_table(written["forecast.parquet"]).to_pylist()
    assert [(row["topic"], row["messages"]) for row in rows] == [("orders", 5), ("reminders", 20)]
    assert (tmp_path / "forecast.csv").read_text().count("\n") == 3
