"""`hourwheel inspect stalls`: what a node tells at /stalls, as tables."""

import io
import json
import sys
from collections.abc import Iterator

import pytest

from hourwheel.stalls import Stall
from node.metrics.http import MetricsServer
from node.process.command import main as run_node
from node.telemetry.stalls import Stalls
from node.tools.inspect.command import main
from node.tools.inspect.stalls import EXIT_OK, EXIT_UNREAD, EXIT_USAGE

AT_MS = 1_795_379_160_123


@pytest.fixture
def url() -> Iterator[str]:
    """Of a node that had three stalls."""
    stalls = Stalls()
    for number, (name, ms) in enumerate([("apply", 30.0), ("turn", 8.0), ("apply", 9.5)]):
        beside = ("merge",) if name == "turn" else ()
        stalls.add(Stall(AT_MS + 1_000 * number, ms, ms, 0.0, 0.0, {name: ms}, beside))
    server = MetricsServer("127.0.0.1:0", stalls=stalls)
    yield f"http://{server.start()}"
    server.stop()


def lines_of(said: str) -> list[str]:
    """Rows of tables, each with one space between its cells."""
    return [" ".join(line.replace("│", " ").split()) for line in said.splitlines()]


@pytest.mark.parametrize("path", ["", "/", "/stalls"])
def test_stalls_of_a_running_node_are_tables(
    url: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_node(["inspect", "stalls", f"{url}{path}"]) == EXIT_OK
    lines = lines_of(capsys.readouterr().out)
    assert "apply 2 2 39.5 30.0" in lines
    assert "turn 1 1 8.0 8.0" in lines
    assert not [line for line in lines if line.startswith("machine")], "there was none"
    last = [line for line in lines if line.startswith("2026-11-2")]
    assert last == [
        "2026-11-22T20:26:02.123Z apply 9.5 9.5 0.0 0.0 apply 9.5",
        "2026-11-22T20:26:01.123Z turn 8.0 8.0 0.0 0.0 turn 8.0 merge",
        "2026-11-22T20:26:00.123Z apply 30.0 30.0 0.0 0.0 apply 30.0",
    ]


def test_longest_come_first_and_few_when_that_is_wanted(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stalls", url, "--longest", "--limit", "2"]) == EXIT_OK
    found = [line.split()[2] for line in lines_of(capsys.readouterr().out) if "Z " in line]
    assert found == ["30.0", "9.5"]


def test_answer_is_read_from_elsewhere_and_told_to_scripts(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["stalls", url, "--json"]) == EXIT_OK
    said = capsys.readouterr().out
    assert json.loads(said)["count"] == 3
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    assert main(["stalls", "-", "--json"]) == EXIT_OK
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("raw", ["", "{}", "[]", '{"last": 1, "by_cause": {}}', "live"])
def test_what_are_no_stalls_is_refused(
    raw: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(raw))
    assert main(["stalls", "-"]) == EXIT_UNREAD
    assert "-: these are no stalls of a node: " in capsys.readouterr().err


def test_node_that_is_not_there_or_tells_nothing_is_named(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stalls", "http://127.0.0.1:1"]) == EXIT_UNREAD
    assert "http://127.0.0.1:1/stalls: " in capsys.readouterr().err
    assert main(["stalls", f"{url}/elsewhere"]) == EXIT_UNREAD
    assert "404" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["127.0.0.1:7401", "ftp://here", "/var/lib", "http://"])
def test_what_is_no_url_is_refused(source: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stalls", source])
    assert ended.value.code == EXIT_USAGE
