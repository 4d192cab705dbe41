"""The demo, from the command line to its exit code, with nodes in processes of their own."""

import json
from pathlib import Path

import pytest

from node.tools.demo import command
from node.tools.demo.command import EXIT_GOOD, main
from node.tools.inspect.inspection import inspect
from node.tools.inspect.single_file import InspectOptions
from storage.files.disk import RealDisk


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.memory, "settle_garbage_collector", lambda: None)  # of this process


def test_demo_survives_the_death_of_the_master(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "5", "--count", "100", "--json"]) == EXIT_GOOD
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["good"] is True
    assert (told["missing"], told["duplicated"], told["early"], told["wrong"]) == (0, 0, 0, 0)
    assert told["node"]["released"] == told["delivered"] > 100
    assert told["node"]["nodes"] == 3
    assert told["failover"]["successor"] != told["failover"]["killed"]
    assert told["failover"]["gap_ms"] > 0
    assert f"kill -9 {told['failover']['killed']}" in said.err
    assert "was killed, and still" in said.err


def test_demo_delivers_everything_once_and_its_directory_can_be_inspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    arguments = ["--nodes", "1", "--seconds", "3", "--count", "60", "--json"]
    arguments += ["--keep", str(directory)]
    assert main(arguments) == EXIT_GOOD
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["good"] is True
    assert (told["missing"], told["duplicated"], told["early"], told["wrong"]) == (0, 0, 0, 0)
    assert told["scheduled"] == told["cancelled"] + told["delivered"] > 200
    assert told["node"]["released"] == told["delivered"]
    assert "60 orders, generated (seed 7)" in said.err
    assert "once, on time" in said.err

    report = inspect(RealDisk(directory, read_only=True), InspectOptions(verify=True))
    assert (report.damage, report.remarks) == ([], [])
