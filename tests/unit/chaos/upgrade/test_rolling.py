import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from chaos.cluster import Cluster, Mastership
from chaos.message_mix import PLAIN_MIX
from chaos.network import Loopback
from chaos.node_process import TREE, NodeProcess
from chaos.upgrade import rolling
from chaos.workload import TOPICS, Workload


class FakeNode(NodeProcess):
    """It stops and starts in no time, and says how."""

    code = 0
    started_as: Path | None = None

    async def stop(self) -> int:
        return self.code

    async def start(self) -> None:
        self.started_as = self.tree


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Of a version that had no console."""
    made = Cluster(tmp_path / "play", Loopback(("n1", "n2")), ("n1", "n2"), tree=tmp_path / "old")
    made.nodes = {name: FakeNode(name, one.folder, "") for name, one in made.nodes.items()}
    for node in made.nodes.values():
        node.tree, node.python = tmp_path / "old", "/an/older/python"
    made.write()
    return made


def sections_of(node: NodeProcess) -> set[str]:
    return set(tomllib.loads(node.config_file.read_text()))


async def test_node_is_of_this_version_when_it_is_started_again(cluster: Cluster) -> None:
    node = cluster.nodes["n1"]
    assert "console" not in sections_of(node)
    async with rolling.upgraded(cluster, node):
        assert node.tree != TREE
    assert (node.started_as, node.python) == (TREE, sys.executable)
    assert "console" in sections_of(node)
    assert "console" not in sections_of(cluster.nodes["n2"])


async def test_node_that_does_not_stop_in_order_is_told(cluster: Cluster) -> None:
    node = cluster.nodes["n1"]
    node.code = 70
    with pytest.raises(AssertionError, match="n1 was stopped, and ended with exit code 70"):
        async with rolling.upgraded(cluster, node):
            pass


def test_masterships_of_the_first_versions_are_known(cluster: Cluster) -> None:
    for event in ("master", "master no more", "mastership_started"):
        with cluster.nodes["n1"].log.open("a") as log:
            log.write(json.dumps({"event": event, "epoch": 1 + (event != "master")}) + "\n")
    assert cluster.masterships() == [Mastership(1, "n1"), Mastership(2, "n1")]


def test_plain_load_has_no_groups_of_later_versions() -> None:
    groups = Workload("", 1, PLAIN_MIX).history.groups
    assert {topic for topic, _ in groups.values()} == set(TOPICS)


def test_packages_are_those_of_the_older_version_where_it_needs_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = tmp_path / "requirements" / "node.txt"
    needed.parent.mkdir()
    needed.write_bytes((TREE / "requirements" / "node.txt").read_bytes())
    assert rolling.find_python(tmp_path, tmp_path / "environment") == sys.executable
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    needed.write_text("numpy==1.26.0")
    assert rolling.find_python(tmp_path, tmp_path / "environment").startswith(str(tmp_path))
    assert str(needed) in ran[-1]
