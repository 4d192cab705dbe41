"""Signals, failures and exit codes. Real processes: test_child.py."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from node.process import lifecycle
from node.process.loopback_config import config_for
from node.telemetry.failure import Failure
from tests.support.engine_world import within
from tests.support.eventually import until


class FakeNode:
    """A node whose start and stop last as long as a test wants."""

    address = "127.0.0.1:1"
    metrics_address = "127.0.0.1:2"
    console_address = "127.0.0.1:3"

    def __init__(self, config: object = None, *, damage: errors.DataLoss | None = None) -> None:
        self.damage, self.former_damage = None, damage
        self.failure, self.renewal = Failure(), asyncio.Event()
        self.may_start, self.may_stop = asyncio.Event(), asyncio.Event()
        self.may_hand_over = asyncio.Event()
        self.did: list[str] = []
        self.error: Exception | None = None

    async def start(self) -> None:
        self.did.append("start")
        await self.may_start.wait()
        if self.error is not None:
            raise self.error

    @property
    def can_be_replaced(self) -> bool:
        return not self.failure.found.done() or self.failure.can_be_mended

    async def stop(self, grace_ms: int | None = None) -> None:
        self.did.append("stop" if grace_ms is None else f"stop {grace_ms}")
        await self.may_stop.wait()

    async def hand_over(self) -> None:
        self.did.append("hand over")
        await self.may_hand_over.wait()

    async def cut_short(self) -> None:
        self.did.append("cut short")
        self.may_stop.set()


class World:
    """`serve` at work on a fake node, with signals put into a queue by hand."""

    def __init__(self, ready_file: Path | None = None) -> None:
        self.node = FakeNode()
        self.signals: asyncio.Queue[str] = asyncio.Queue()
        serve: Any = lifecycle._serve
        self.serving = asyncio.ensure_future(serve(self.node, self.signals, ready_file))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_process_ends_well_when_it_is_told_to_stop(tmp_path: Path) -> None:
    world = World(tmp_path / "ready.json")
    world.node.may_start.set()
    await settle()
    told = json.loads((tmp_path / "ready.json").read_text())
    world.signals.put_nowait("SIGTERM")
    world.node.may_stop.set()
    assert await world.serving is None
    assert world.node.did == ["start", "stop"]
    assert told == {
        "address": "127.0.0.1:1",
        "metrics_address": "127.0.0.1:2",
        "console_address": "127.0.0.1:3",
        "pid": os.getpid(),
    }


async def test_draining_is_cut_short_when_a_second_signal_comes() -> None:
    world = World()
    world.node.may_start.set()
    await settle()
    world.signals.put_nowait("SIGTERM")
    await settle()
    assert world.node.did == ["start", "stop"]
    world.signals.put_nowait("SIGINT")
    assert await world.serving is None
    assert world.node.did == ["start", "stop", "cut short"]


async def test_process_ends_at_once_when_it_is_told_to_while_opening() -> None:
    world = World()
    await settle()
    world.signals.put_nowait("SIGTERM")
    assert await world.serving == lifecycle.EXIT_OK
    assert world.node.did == ["start"]


@pytest.mark.parametrize("moment", ["opening", "serving", "stopping"])
async def test_process_ends_at_once_when_the_node_cannot_go_on(moment: str) -> None:
    world = World()
    if moment != "opening":
        world.node.may_start.set()
    await settle()
    if moment == "stopping":
        world.signals.put_nowait("SIGTERM")
    await settle()
    world.node.failure.report(errors.FsyncFailed("EIO"))
    assert await world.serving is not None
    assert world.node.did == (["start", "stop"] if moment == "stopping" else ["start"])


async def test_error_is_handed_on_when_the_node_does_not_start() -> None:
    world = World()
    world.node.error = errors.DirectoryLocked("taken")
    world.node.may_start.set()
    with pytest.raises(errors.DirectoryLocked):
        await world.serving


async def test_sigusr1_hands_over_once_at_a_time_and_the_node_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = FakeNode()
    node.may_start.set()
    node.may_stop.set()
    monkeypatch.setattr(lifecycle, "Node", lambda _: node)
    ready = tmp_path / "ready.json"
    serving = asyncio.create_task(lifecycle.serve(config_for(tmp_path), ready))

    def requested() -> int:
        events = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
        return sum(one["event"] == "transfer_signal_received" for one in events)

    async def signal_it(times: int) -> None:
        before = requested()
        for count in range(1, times + 1):
            os.kill(os.getpid(), signal.SIGUSR1)
            await until(lambda count=count: requested() == before + count)

    with caplog.at_level("INFO"):
        await until(ready.exists)
        await signal_it(3)
        await until(lambda: node.did == ["start", "hand over"])
        node.may_hand_over.set()
        await settle()
        await signal_it(1)
        await until(lambda: node.did == ["start", "hand over", "hand over"])
    assert not serving.done()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await within(serving) == lifecycle.EXIT_OK
    assert node.did[-1] == "stop"
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


async def test_exit_code_is_70_when_the_node_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes: list[FakeNode] = []

    def make(config: object) -> FakeNode:
        nodes.append(FakeNode(config))
        nodes[0].failure.report(errors.FsyncFailed("EIO", file="a.log"))
        return nodes[0]

    monkeypatch.setattr(lifecycle, "Node", make)
    codes: list[int] = []
    code = await lifecycle.serve(config_for(tmp_path), end_process=codes.append)
    assert code == 70
    assert codes == [70]
    (line,) = [record.msg for record in caplog.records if record.levelname == "CRITICAL"]
    assert isinstance(line, dict)
    assert (line["error_type"], line["file"]) == ("FsyncFailed", "a.log")


@pytest.mark.parametrize("keeps_folder", [True, False])
async def test_next_node_in_the_same_process_is_told_of_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_folder: bool
) -> None:
    """Also where who has waited for the first one is gone."""
    damage, nodes = errors.CorruptLog("a bit"), []
    ready = tmp_path / "waiting" / "ready.json"
    ready.parent.mkdir()

    def make(config: object, **former: Any) -> FakeNode:
        node: Any = FakeNode(config, **former)
        node.may_start.set()
        nodes.append(node)
        return node

    monkeypatch.setattr(lifecycle, "Node", make)
    serving = asyncio.create_task(
        lifecycle.serve(config_for(tmp_path), ready, end_process=lambda _: None)
    )
    await until(ready.exists)
    ready.unlink()
    if not keeps_folder:
        ready.parent.rmdir()
    nodes[0].damage = damage
    nodes[0].renewal.set()
    nodes[0].may_stop.set()
    await until(lambda: len(nodes) == 2 and "start" in nodes[1].did)
    await until(lambda: ready.exists() == keeps_folder)
    nodes[1].failure.report(errors.FsyncFailed("the end of the test"))
    assert await within(serving) == 70
    assert [one.former_damage for one in nodes] == [None, damage]


async def test_another_node_takes_the_place_of_one_whose_views_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes: list[FakeNode] = []

    def make(config: object, **former: Any) -> FakeNode:
        node: Any = FakeNode(config, **former)
        node.may_start.set()
        node.may_stop.set()
        nodes.append(node)
        return node

    monkeypatch.setattr(lifecycle, "Node", make)
    serving = asyncio.create_task(lifecycle.serve(config_for(tmp_path), end_process=lambda _: None))
    for count in (1, 2):
        await until(lambda count=count: len(nodes) == count and "start" in nodes[-1].did)
        nodes[-1].failure.can_be_mended = True
        nodes[-1].failure.report(errors.CorruptFile("a bit", file="a.run"))
    await until(lambda: len(nodes) == 3 and "start" in nodes[2].did)
    assert [one.did for one in nodes[:2]] == [["start", "stop 0"]] * 2
    nodes[2].error = errors.CorruptFile("the views cannot be rebuilt")
    nodes[2].failure.report(errors.FsyncFailed("the end of the test"))
    assert await within(serving) == 70


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError(), 78),
        (errors.ForeignDirectory(), 78),
        (errors.IncompatibleFormat(), 78),
        (errors.DirectoryLocked(), 75),
        (errors.CorruptLog(), 65),
        (errors.CorruptFile(), 65),
        (errors.DiskFull(), 74),
        (errors.DiskFailed(), 74),
        (errors.FsyncFailed(), 74),
        (errors.InvariantViolated(), 70),
        (errors.Unavailable(), 70),
    ],
)
def test_exit_code_tells_what_kept_the_node_from_starting(
    error: errors.HourwheelError, code: int
) -> None:
    assert lifecycle.exit_code(error) == code


def test_threads_of_a_node_take_turns_within_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual_s, seen = sys.getswitchinterval(), list[float]()

    async def look(*_: object) -> int:
        seen.append(sys.getswitchinterval())
        return lifecycle.EXIT_OK

    monkeypatch.setattr(lifecycle, "serve", look)
    monkeypatch.setattr(lifecycle.logs, "configure", lambda *_, **__: None)
    monkeypatch.setattr(lifecycle.memory, "configure", lambda: True)
    try:
        assert lifecycle.run(config_for(tmp_path)) == lifecycle.EXIT_OK
    finally:
        sys.setswitchinterval(usual_s)
    assert 0 < seen[0] < 0.001
