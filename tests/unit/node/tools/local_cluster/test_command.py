"""The command: what is refused before anything runs. A whole run: tests/cluster."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hourwheel import errors
from node.tools.local_cluster import command
from node.tools.local_cluster.command import EXIT_BAD, EXIT_GOOD, EXIT_USAGE, facts_of, main
from node.tools.local_cluster.nodes import LocalCluster


def up(directory: Path, *more: str) -> int:
    return main(["up", "--directory", str(directory), "--base-port", "0", *more])


def test_exit_code_is_2_when_there_can_be_no_such_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(tmp_path / "a", "-n", "10") == EXIT_USAGE
    assert "1 to 9 nodes" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert up(tmp_path / "file") == EXIT_USAGE
    assert capsys.readouterr().err.startswith("cluster: ")
    with pytest.raises(SystemExit) as caught:
        main(["down"])
    assert caught.value.code == EXIT_USAGE


def test_addresses_are_named_when_somebody_listens_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = LocalCluster(tmp_path).nodes[1]
    host, _, port = node.metrics_address.partition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        assert up(tmp_path) == EXIT_USAGE
    said = capsys.readouterr().err
    assert node.metrics_address in said
    assert node.address not in said


def test_exit_code_is_1_and_logs_are_shown_when_a_node_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.nodes[2].log_file.write_text("".join(f"line {number}\n" for number in range(50)))

    async def fails(*_: object) -> None:
        raise errors.Unavailable("node node-3: it ended")

    monkeypatch.setattr(command, "up", fails)
    assert up(tmp_path) == EXIT_BAD
    said = capsys.readouterr().err
    assert said.endswith("cluster: node node-3: it ended\n")
    assert "line 49" in said
    assert "line 29" not in said


def test_all_nodes_are_stopped_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    async def note(_self: object) -> None:
        done.append("stop")

    async def serve(*_: object) -> None:
        done.append("serve")

    monkeypatch.setattr(LocalCluster, "stop", note)
    monkeypatch.setattr(command, "serve", serve)
    assert up(tmp_path) == EXIT_GOOD
    assert done == ["serve", "stop"]
    assert str(tmp_path) in capsys.readouterr().out
    assert up(tmp_path, "--json") == EXIT_GOOD
    assert capsys.readouterr().out == ""


def test_processes_are_ended_when_a_second_signal_comes(tmp_path: Path) -> None:
    cut = []
    nodes = [SimpleNamespace(cut_short=lambda name=name: cut.append(name)) for name in "abc"]
    command.cut_short(cast(LocalCluster, SimpleNamespace(nodes=nodes)))
    assert cut == ["a", "b", "c"]
    LocalCluster(tmp_path).nodes[0].cut_short()  # nothing runs: nothing to end


def test_script_is_told_servers_processes_and_files(tmp_path: Path) -> None:
    cluster: Any = SimpleNamespace(
        directory=tmp_path,
        nodes=[
            SimpleNamespace(
                node_id=f"node-{number}",
                address=f"h:{number}",
                metrics_address="",
                console_address="",
                pid=number,
                config_file=Path("c"),
                log_file=Path("l"),
            )
            for number in (1, 2)
        ],
    )
    told = json.loads(json.dumps(facts_of(cast(LocalCluster, cluster), 1)))
    assert (told["servers"], told["master"]) == (["h:1", "h:2"], "node-2")
    assert told["nodes"][1]["pid"] == 2
