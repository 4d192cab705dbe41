"""Rounds in which members and permissions change, and those that kill, with nodes that count."""

import asyncio
import random
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, Self

import pytest

from chaos import faults, voters
from chaos.cluster import NotWell
from chaos.history import GrantChange, GuestCall, History
from chaos.scenarios import SCENARIOS
from hourwheel.client.members import Member, Members
from hourwheel.clock import SystemClock


class FakeNode:
    def __init__(self, name: str) -> None:
        self.node_id = self.api = self.mark = name
        self.pid, self.is_running, self.code = 1, True, voters.FORMER_EXIT_CODE
        self.sent: list[signal.Signals] = []

    async def kill(self, *, whole: bool = True) -> None:
        self.is_running = False

    async def stop(self) -> int:
        self.is_running = False
        return 0

    async def spawn(self) -> None:
        self.is_running = True

    async def ready(self) -> None:
        assert self.is_running

    async def ended(self) -> int:
        return self.code

    def send(self, number: signal.Signals) -> None:
        self.sent.append(number)

    send_all = send


class FakeCluster:
    """All that is asked for happens at once."""

    hang_s = 5.0

    def __init__(self) -> None:
        self.nodes = {name: FakeNode(name) for name in ("n1", "n2", "n3")}
        self.joining: dict[str, FakeNode] = {}
        self.generation, self.servers, self.made = 0, "all", 3
        self.network = SimpleNamespace(listens=lambda name: SimpleNamespace(control=f"{name}:1"))

    def options(self, _principal: str) -> dict[str, Any]:
        return {}

    async def join(self) -> FakeNode:
        self.made += 1
        node = self.joining[f"n{self.made}"] = FakeNode(f"n{self.made}")
        return node

    def set_members(self, names: Any) -> None:
        everybody = {**self.nodes, **self.joining}
        self.nodes = {name: everybody[name] for name in names}

    async def master(self, **_: int) -> FakeNode:
        return next(iter(self.nodes.values()))

    def followers(self, master: FakeNode) -> list[FakeNode]:
        return [node for node in self.nodes.values() if node is not master]

    async def find_raft_leader(self) -> str:
        return next(iter(self.nodes))

    async def whole(self) -> None:
        pass

    async def revive(self) -> None:
        pass


class FakeStage:
    def __init__(self, seed: int) -> None:
        self.cluster, self.chooser, self.clock = FakeCluster(), random.Random(seed), SystemClock()
        self.load = SimpleNamespace(
            history=History(), guest_grant=self, wait_for=self.wait_for, hang_s=5.0
        )
        self.noted: list[str] = []

    async def give(self) -> None:
        self._change(is_allowed=True)

    async def take(self) -> None:
        self._change(is_allowed=False)

    def _change(self, *, is_allowed: bool) -> None:
        now_ms = self.clock.wall_ms()
        self.load.history.grant_changes.append(GrantChange(is_allowed, now_ms, now_ms))

    async def wait_for(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5.0):
            while not condition():
                changes = self.load.history.grant_changes
                now_ms = self.clock.wall_ms()
                is_ok = bool(changes) and changes[-1].is_allowed
                self.load.history.guest_calls.append(GuestCall(now_ms, now_ms, is_ok))
                await asyncio.sleep(0)

    async def master(self) -> FakeNode:
        return await self.cluster.master()

    async def a_follower(self) -> FakeNode:
        return self.cluster.followers(await self.master())[0]

    async def some_load(self, *_: int) -> None:
        await asyncio.sleep(0)

    a_moment = some_load

    async def pass_ms(self, _duration_ms: float) -> None:
        await asyncio.sleep(0)

    async def ends_mastership(
        self, name: str, nodes: Any, fault: AbstractAsyncContextManager[None], **_: Any
    ) -> None:
        async with fault:
            await self.some_load()
        self.note(name, nodes, 0.0)

    bothers = ends_mastership

    def note(self, name: str, _nodes: Any, _begun_ms: float) -> None:
        self.noted.append(name)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], FakeStage]:
    def make(seed: int) -> FakeStage:
        stage = FakeStage(seed)
        cluster = stage.cluster

        class FakeAdmin:
            def __init__(self, *_: object, **__: object) -> None:
                pass

            async def __aenter__(self) -> Self:
                return self

            async def __aexit__(self, *_: object) -> None:
                pass

            async def members(self) -> Members:
                await asyncio.sleep(0)
                found = tuple(Member(one, "", True, True, True) for one in cluster.nodes)
                return Members(cluster.generation, found, (), False, "ab")

            async def change_members(self, *_: object, expected_generation: int) -> int:
                if cluster.generation != expected_generation:
                    raise voters.errors.FailedPrecondition("another one is in force")
                cluster.generation += 1
                return cluster.generation

        monkeypatch.setattr(voters, "AsyncAdmin", FakeAdmin)
        return stage

    monkeypatch.setattr(faults, "members_of", lambda _mark: [])
    return make


@pytest.mark.parametrize("seed", range(6))
async def test_members_are_others_after_a_round(
    stages: Callable[[int], FakeStage], seed: int
) -> None:
    stage = stages(seed)
    await voters.replace(stage)  # type: ignore[arg-type]
    assert len(stage.cluster.nodes) == 3
    assert "n4" in stage.cluster.nodes
    await voters.grow(stage)  # type: ignore[arg-type]
    assert len(stage.cluster.nodes) == 3
    assert stage.cluster.generation == 3


@pytest.mark.parametrize("seed", range(4))
async def test_grant_is_gone_after_a_round(stages: Callable[[int], FakeStage], seed: int) -> None:
    stage = stages(seed)
    await voters.revoke(stage)  # type: ignore[arg-type]
    allowed = [one.is_allowed for one in stage.load.history.grant_changes]
    assert allowed == [True, False, True, False]


async def test_former_member_that_does_not_end_so_is_reported(
    stages: Callable[[int], FakeStage],
) -> None:
    stage = stages(1)
    for node in stage.cluster.nodes.values():
        node.code = 70
    with pytest.raises(NotWell, match="ended with 70"):
        await voters.replace(stage)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        *("calm", "kill-master", "kill-broker", "kill-follower", "kill-two", "kill-all"),
        *("master-last", "freeze-unwatched", "hand-over"),
    ],
)
async def test_all_nodes_run_after_a_round(stages: Callable[[int], FakeStage], name: str) -> None:
    stage = stages(2)
    await SCENARIOS[name].play(stage)  # type: ignore[arg-type]
    assert all(node.is_running for node in stage.cluster.nodes.values())
    assert name == "calm" or stage.noted
