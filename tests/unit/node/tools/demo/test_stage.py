"""What happens to the nodes while the demo plays, told by a cluster that only says so."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.cluster_status import ClusterStatus, ShardStatus
from node.tools.demo.stage import OneNode, SeveralNodes

SHARD = ShardStatus(0, 3, "node-2", 0, 9, 9, 9, 0, 10, 1, 7, 2, 0, 0, 0, 0, 4)


@dataclass
class FakeCluster:
    """Three nodes; what is done to them is noted."""

    nodes: Any
    done: list[str] = field(default_factory=list)
    master: int = 1
    epoch: int = 3
    answers: list[list[ClusterStatus]] = field(default_factory=list)

    async def find_master(self) -> tuple[int, ShardStatus]:
        raise errors.Unavailable("no node is the master now")  # the machine is busy

    async def wait_for_shard(self, *, epoch_above: int = 0) -> tuple[int, ShardStatus]:
        self.done.append(f"find {epoch_above}")
        return self.master, replace(SHARD, epoch=self.epoch)

    async def kill_node(self, index: int) -> None:
        self.done.append(f"kill {index}")
        self.master, self.epoch = 2, 4

    async def start_node(self, index: int) -> None:
        self.done.append(f"start {index}")

    async def wait_for_master(self, *, epoch_above: int = 0, in_sync: int = 0) -> int:
        self.done.append(f"wait {epoch_above} {in_sync}")
        return self.master

    async def status_of(self, index: int, _timeout_ms: float) -> ClusterStatus:
        if index == 0 and len(self.answers) > 1 and self.done:
            self.answers.pop(0)
        self.done.append("ask")
        return self.answers[0][index]


@dataclass
class FakePlayer:
    """Time passes whenever it is asked for."""

    elapsed_ms_now: float = 0.0

    @property
    def elapsed_ms(self) -> float:
        self.elapsed_ms_now += 400.0
        return self.elapsed_ms_now

    @property
    def now_ms(self) -> float:
        return 1_000_000.0 + self.elapsed_ms_now


def several(tmp_path: Path) -> tuple[SeveralNodes, FakeCluster]:
    stage = SeveralNodes(tmp_path, 3, {})
    cluster = FakeCluster(stage._cluster.nodes)
    stage._cluster = cluster  # type: ignore[assignment]
    return stage, cluster


def answer(index: int, **changes: Any) -> ClusterStatus:
    return ClusterStatus("c", "1", (), (replace(SHARD, **changes),), f"node-{index + 1}")


async def test_master_is_killed_in_the_middle_and_comes_back(tmp_path: Path) -> None:
    stage, cluster = several(tmp_path)
    said: list[str] = []
    player = FakePlayer()
    failover = await stage.disturb(player, 5_000, said.append)
    assert cluster.done == ["find 0", "kill 1", "find 3", "start 1", "wait 0 3"]
    assert failover is not None
    assert (failover.killed, failover.successor, failover.epoch) == ("node-2", "node-3", 4)
    assert stage.killed_ms == 1_002_000.0
    assert player.elapsed_ms_now >= 2_500.0
    assert [text.split()[0] for text in said] == ["kill", "node-3", "node-2"]


async def test_nodes_are_compared_when_all_have_applied_the_same(tmp_path: Path) -> None:
    stage, cluster = several(tmp_path)
    cluster.answers = [
        [answer(0, applied_offset=8), answer(1, may_act=True), answer(2)],
        [answer(0), answer(1, may_act=True), answer(2)],
    ]
    leading, problems = await stage.settle()
    assert (leading.answered_by, problems) == ("node-2", [])
    assert cluster.done.count("ask") == 6


async def test_difference_between_nodes_is_a_problem(tmp_path: Path) -> None:
    stage, cluster = several(tmp_path)
    cluster.answers = [[answer(0), answer(1, may_act=True), answer(2, released_count=8)]]
    _, (problem,) = await stage.settle()
    assert problem.startswith("node-3 counts")
    assert "'released': 8" in problem


async def test_problem_is_told_when_a_node_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.tools.demo.stage.AGREE_S", 0.1)
    stage, cluster = several(tmp_path)
    cluster.answers = [[answer(0, applied_offset=8), answer(1, may_act=True), answer(2)]]
    _, (problem,) = await stage.settle()
    assert "have not applied the same" in problem


async def test_single_node_is_left_alone_and_is_none_when_it_does_not_run(tmp_path: Path) -> None:
    stage = OneNode(tmp_path / "data", tmp_path, {})
    assert await stage.disturb(FakePlayer(), 10, print) is None
    with pytest.raises(errors.FailedPrecondition):
        await stage.watch()
