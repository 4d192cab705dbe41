import json
import logging
import sys

import pytest

from hourwheel.workers.logs import JsonLines, LogFormat, configure_logs


def test_a_line_for_machines_has_the_fields_of_its_record() -> None:
    try:
        int("no order")
    except ValueError:
        error = sys.exc_info()
    given = ("hourwheel.worker", logging.WARNING, "x.py", 1, "failed %s", ("m",), error)
    record = logging.LogRecord(*given)
    vars(record).update(created=1.5, hourwheel_topic="orders", other="unknown")
    line = json.loads(JsonLines().format(record))
    assert line.pop("exception").endswith("'no order'")
    assert line == {
        "timestamp": "1970-01-01T00:00:01.500000+00:00",
        "level": "warning",
        "logger": "hourwheel.worker",
        "event": "failed m",
        "hourwheel_topic": "orders",
    }


@pytest.mark.parametrize("log_format", LogFormat)
def test_logs_are_for_people_where_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logs(log_format)
    logging.getLogger("hourwheel.push").info("3 subscriptions")
    said = capsys.readouterr().err
    assert said.startswith("{") == (log_format is LogFormat.JSON)
    assert "3 subscriptions" in said
