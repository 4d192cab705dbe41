"""Lines of the control process, as machines and as people read them."""

import io
import json
import logging

import pytest

from replication.control import logs


def said(log_format: str, stream: io.StringIO) -> str:
    logs.configure(log_format, "warning", stream)
    try:
        _ = 1 / len("")
    except ZeroDivisionError:
        logging.getLogger("replication.x").warning(
            "election_failed", extra={"shard": 3, "error": "odd"}, exc_info=True
        )
    logging.getLogger("replication.x").info("never")
    return stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_lines_for_machines_are_json_one_an_event(log_format: str) -> None:
    (line,) = said(log_format, io.StringIO()).splitlines()
    fields = json.loads(line)
    assert (fields["event"], fields["level"]) == ("election_failed", "warning")
    assert (fields["shard"], fields["error"]) == (3, "odd")
    assert (fields["process"], fields["logger"]) == ("control", "replication.x")
    assert "ZeroDivisionError" in fields["exception"]
    assert fields["timestamp"].endswith("Z")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("log_format", ["console", "auto"])
def test_lines_for_people_are_text(log_format: str) -> None:
    text = said(log_format, Terminal())
    first, *others = text.splitlines()
    assert first.endswith("control WARNING replication.x: election_failed shard=3 error='odd'")
    assert "ZeroDivisionError" in others[-1]


def test_a_second_configuration_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("json", stream=first)
    assert said("json", second)
    assert first.getvalue() == ""


def test_lines_for_machines_have_the_node_where_it_is_known() -> None:
    stream = io.StringIO()
    logs.configure("json", stream=stream, node_id="n1")
    logging.getLogger("replication.x").warning("broker_lost")
    assert json.loads(stream.getvalue())["node_id"] == "n1"
    assert "node_id" not in json.loads(said("json", io.StringIO()))
