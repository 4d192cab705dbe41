"""The demo, from the command line to its exit code, with a node in a process of its own."""

import json
from pathlib import Path

import pytest

from node import demo
from node.demo import EXIT_GOOD, main
from node.inspect import inspect
from node.inspect_single import Asked
from storage.disk import RealDisk


def test_demo_delivers_everything_once_and_its_directory_can_be_inspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_settle_garbage_collector", lambda: None)  # of this process
    monkeypatch.setattr(demo, "_ORDERS_PATH", tmp_path / "none")
    directory = tmp_path / "data"
    arguments = ["--seconds", "3", "--count", "60", "--keep", str(directory), "--json"]
    assert main(arguments) == EXIT_GOOD
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["good"] is True
    assert (told["missing"], told["duplicated"], told["early"], told["wrong"]) == (0, 0, 0, 0)
    assert told["scheduled"] == told["cancelled"] + told["delivered"] > 200
    assert told["node"]["released"] == told["delivered"]
    assert "60 orders, generated (seed 7)" in said.err
    assert "once, on time" in said.err

    report = inspect(RealDisk(directory, read_only=True), Asked(verify=True))
    assert (report.damage, report.remarks) == ([], [])
