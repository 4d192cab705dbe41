"""Log lines: their form, and what is not in them."""

import errno
import io
import json
import logging

import pytest

from hourwheel import errors
from node.telemetry import logs


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_has_one_object_a_line_when_many_events_are_logged() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logs.get("node.x").info("node_started", address="a:1", path=io)
    logs.get("node.x").warning("node_draining")
    first, second = lines(out)
    assert (first["event"], first["level"], first["address"]) == ("node_started", "info", "a:1")
    assert str(first["timestamp"]).endswith("Z")
    assert second["event"] == "node_draining"


def test_auto_is_json_when_it_is_no_terminal() -> None:
    out = io.StringIO()
    logs.configure("info", "auto", out)
    logs.get("node.x").info("node_started")
    assert lines(out)[0]["event"] == "node_started"


def test_console_is_text_when_it_is_asked_for() -> None:
    out = io.StringIO()
    logs.configure("info", "console", out)
    logs.get("node.x").info("node_started", address="a:1")
    assert "node_started" in out.getvalue()
    assert "address=a:1" in out.getvalue()


def test_events_below_the_level_are_left_out() -> None:
    out = io.StringIO()
    logs.configure("warning", "json", out)
    logs.get("node.x").info("chatter")
    logging.getLogger("grpc").info("chatter")
    logs.get("node.x").error("trouble")
    assert [line["event"] for line in lines(out)] == ["trouble"]


def test_libraries_log_in_the_same_form() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logging.getLogger("grpc.aio").warning(
        "peer %s is gone", "a:1", extra={"secret": "s", "peer": 1}
    )
    (line,) = lines(out)
    assert (line["event"], line["logger"]) == ("peer a:1 is gone", "grpc.aio")
    assert (line["peer"], line["secret"]) == (1, "***")


def test_fields_are_blacked_out_when_their_names_tell_of_secrets() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logs.get("node.x").info("start", password="p", api_token="t", Authorization="b", topic="o")
    (line,) = lines(out)
    assert (line["password"], line["api_token"], line["Authorization"]) == ("***", "***", "***")
    assert line["topic"] == "o"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_show_no_values_of_variables(log_format: logs.Format) -> None:
    out = io.StringIO()
    logs.configure("info", log_format, out)

    def handle(body: str) -> int:
        return 1 // (len(body) - 19)

    try:
        handle("-".join(["4111"] * 4))
    except ZeroDivisionError as error:
        logs.get("node.x").error("call_failed", exc_info=error)
    assert "ZeroDivisionError" in out.getvalue()
    assert "4111-4111" not in out.getvalue()


def test_logger_is_silent_when_nobody_has_set_up_logging(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger().handlers[:] = []
    logging.getLogger().setLevel(logging.WARNING)
    logs.get("node.x").info("node_started")
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_context_is_on_every_line_inside_it() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    with logs.context(shard=0):
        logs.get("node.x").info("inside")
    logs.get("node.x").info("outside")
    logs.flush()
    inside, outside = lines(out)
    assert inside["shard"] == 0
    assert "shard" not in outside


def test_fields_of_an_error_are_its_text_type_and_facts() -> None:
    fields = logs.fields_of(errors.CorruptLog("bad bytes", file="a.log", offset=9))
    assert fields == {
        "error": "bad bytes",
        "error_type": "CorruptLog",
        "file": "a.log",
        "offset": "9",
    }
    assert logs.fields_of(ValueError("x")) == {"error": "x", "error_type": "ValueError"}


class FullDisk(io.StringIO):
    """A log file that finds no room, neither for a line nor for what is buffered."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_nobody_fails_when_the_log_has_no_room() -> None:
    logs.configure("info", "json", FullDisk())
    logs.get("test").error("something", what=1)
    logs.flush()


def test_lines_for_machines_have_the_node_where_it_is_known() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out, node_id="n1")
    logs.get("node.x").info("node_stopped")
    logs.get("node.x").info("node_started", node_id="n1")
    logging.getLogger("a.library").warning("hello")
    assert [json.loads(line)["node_id"] for line in out.getvalue().splitlines()] == ["n1"] * 3
    text = io.StringIO()
    logs.configure("info", "console", text, node_id="n1")
    logs.get("node.x").info("node_stopped")
    assert "node_id" not in text.getvalue()
