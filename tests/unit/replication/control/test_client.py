import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from replication.control.client import ControlClient, Hello, Leader
from replication.control_state.state import ControlState
from tests.support.control_commands import StateWorld
from tests.support.control_peer import ControlPeer
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

HELLO = Hello("n1", b"b" * 16)


class World:
    def __init__(self, folder: Path, **limits: float) -> None:
        self.clock = FakeClock()
        self.peer = ControlPeer(folder / "s")
        self.states: list[ControlState] = []
        self.leaders: list[Leader] = []
        self.reports: list[link.NodeReport] = []
        self.lost_count = 0
        self.client = ControlClient(
            self.peer.path,
            on_state=self.states.append,
            on_leader=self.leaders.append,
            on_report=self.reports.append,
            on_lost=self._on_lost,
            clock=self.clock,
            **limits,
        )

    def _on_lost(self) -> None:
        self.lost_count += 1


@asynccontextmanager
async def connected(folder: Path, **limits: float) -> AsyncIterator[World]:
    world = World(folder, **limits)
    await world.peer.start()
    await world.client.start(HELLO)
    try:
        yield world
    finally:
        await world.client.close()
        world.peer.close()


async def test_client_is_told_everything(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        hello = world.peer.heard[0].hello
        assert (hello.node_id, hello.boot_id) == HELLO
        assert world.client.is_connected
        made = StateWorld()
        made.found()
        world.peer.say_state(made.state)
        await until(lambda: len(world.states) == 2)
        assert world.client.state.shards == made.state.shards
        said = link.LinkLeader(leader_node_id="n2", term=4, has_majority=True)
        world.peer.say(link.ControlFrame(leader=said))
        await until(lambda: world.leaders == [Leader("n2", 4, has_majority=True)])
        assert world.client.leader_node_id == "n2"
        others = link.LinkReports(reports=[link.NodeReport(node_id="n3", broker_alive=True)])
        world.peer.say(link.ControlFrame(reports=others))
        await until(lambda: world.reports)
        assert world.client.reports["n3"].broker_alive


async def test_reports_and_pings_are_sent(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        world.client.report([link.ShardReport(shard=0, log_end=9)])
        world.client.partition(["n2"], ["n3"])
        await until(lambda: len(world.peer.heard) == 3 and world.peer.ping_count)
        report = world.peer.heard[1].report
        assert (report.node_id, report.boot_id, report.shards[0].log_end) == ("n1", b"b" * 16, 9)
        assert world.peer.heard[2].partition.blocked_out == ["n3"]


async def test_proposal_is_answered(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        result = await world.client.propose(put_topic=pb.PutObjectCommand(name="a"))
        assert result.outcome == pb.CONTROL_OUTCOME_OK
        sent = pb.ControlCommand.FromString(world.peer.heard[1].proposal.command)
        assert sent.put_topic.name == "a"
        assert len(sent.request_id) == 16


async def test_refused_proposal_raises_what_was_said(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        world.peer.answer = link.LinkAnswer(error_reason="UNAVAILABLE", error_message="no leader")
        with pytest.raises(errors.Unavailable, match="no leader"):
            await world.client.propose(noop=pb.NoopCommand())


async def test_proposal_is_unknown_when_the_process_goes(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        world.peer.is_answering = False
        call = asyncio.ensure_future(
            world.client.propose(noop=pb.NoopCommand(), request_id=b"r" * 16)
        )
        await until(lambda: len(world.peer.heard) == 2)
        world.peer.hang_up()
        with pytest.raises(errors.Timeout) as caught:
            await call
        assert caught.value.params["request_id"] == (b"r" * 16).hex()
        assert world.lost_count == 1
        assert not world.client.is_connected
        with pytest.raises(errors.Unavailable):
            await world.client.propose(noop=pb.NoopCommand())


async def test_proposal_is_unknown_when_no_answer_comes(tmp_path: Path) -> None:
    async with connected(tmp_path, answer_margin_s=0.0) as world:
        world.peer.is_answering = False
        with pytest.raises(errors.Timeout):
            await world.client.propose(noop=pb.NoopCommand(), timeout_s=0.01)


async def test_silent_process_is_a_lost_one(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        for _ in range(2):
            await until(lambda: world.peer.ping_count)
            world.clock.pass_ms(400)
            world.peer.ping_count = 0
        assert world.client.is_connected
        await until(lambda: world.peer.ping_count)
        world.clock.pass_ms(200)
        assert not world.client.is_connected
        await until(lambda: world.lost_count == 1)


async def test_process_is_not_blamed_when_the_broker_was_stopped(tmp_path: Path) -> None:
    async with connected(tmp_path) as world:
        await until(lambda: world.peer.ping_count)
        world.clock.pass_ms(5_000)
        assert not world.client.is_connected, "not before it has spoken or had the time to"
        await until(lambda: world.client.is_connected)
        assert world.lost_count == 0


async def test_start_fails_when_nobody_is_there(tmp_path: Path) -> None:
    client = ControlClient(tmp_path / "none")
    with pytest.raises(errors.Unavailable, match="does not answer"):
        await client.start(HELLO, timeout_s=0.05)
    await client.close()


async def test_start_waits_for_a_process_that_is_starting(tmp_path: Path) -> None:
    peer = ControlPeer(tmp_path / "s")
    client = ControlClient(peer.path)
    starting = asyncio.ensure_future(client.start(HELLO))
    await asyncio.sleep(0)
    await peer.start()
    await starting
    assert client.is_connected
    await client.close()
    peer.close()


async def test_process_may_be_silent_before_its_first_word(tmp_path: Path) -> None:
    """It listens before it has read its journal and found its peers, on a busy machine long."""
    world = World(tmp_path)
    world.peer.is_welcoming = False
    await world.peer.start()
    starting = asyncio.ensure_future(world.client.start(HELLO))
    for _ in range(4):
        await until(lambda: world.peer.ping_count)
        world.clock.pass_ms(400)
        world.peer.ping_count = 0
    await until(lambda: world.peer.ping_count or starting.done())
    assert not starting.done()
    world.peer.say_state(ControlState())
    await starting
    assert (world.client.is_connected, world.lost_count) == (True, 0)
    await world.client.close()
    world.peer.close()
