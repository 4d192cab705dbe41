"""A follower's end of the stream, spoken to by hand over gRPC."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    FollowerAck,
    LogPart,
    MasterHello,
    ReplicateRequest,
    SyncBeat,
)
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.types import NodeId
from node.cluster.data_plane import Dialer
from node.cluster.peer_trust import Trust
from replication.rules.follower import FollowerPhase
from replication.rules.master import PROTOCOL
from storage.files.disk import File, RealDisk
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.member_world import LEASE_MS, MemberNode, MemberWorld
from tests.support.replica_world import ReplicaWorld


@asynccontextmanager
async def calling(node: MemberNode, trust: Trust | None = None) -> AsyncIterator[Any]:
    dialer = Dialer(trust or node.trust, {"it": node.address})
    try:
        yield dialer.replicate("it")
    finally:
        await dialer.close()


def hello(world: MemberWorld, **changed: Any) -> ReplicateRequest:
    """What n1 says to n2 in epoch 1, but for what is `changed`."""
    facts: dict[str, Any] = {
        "protocol": PROTOCOL,
        "cluster_id": world.cluster_id,
        "shard": 0,
        "epoch": 1,
        "node_id": "n1",
        "boot_id": "b1",
        "follower_id": "n2",
    }
    return ReplicateRequest(hello=MasterHello(**{**facts, **changed}))


async def begun(world: MemberWorld, call: Any, **changed: Any) -> None:
    """n2 follows."""
    await call.write(hello(world, **changed))
    assert (await within(call.read())).HasField("hello")
    await call.write(ReplicateRequest(begin=BeginFrom(epoch=changed.get("epoch", 1), offset=0)))
    assert (await within(call.read())).ack.epoch == changed.get("epoch", 1)


async def broken(call: Any) -> errors.HourwheelError:
    """How the stream ends, whatever comes before."""
    try:
        while await within(call.read()) is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return failure_of(error, is_stream=True).error
    raise AssertionError("it ended in order")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cluster_id": bytes(16)}, "another cluster"),
        ({"shard": 7}, "another cluster or shard"),
        ({"protocol": PROTOCOL + 1}, "protocol"),
        ({"follower_id": "n3"}, "this is node 'n2'"),
    ],
)
async def test_stranger_is_refused_and_disturbs_nobody(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        await until(lambda: n2.replica.follower.phase is FollowerPhase.FOLLOWING)
        async with calling(n2) as call:
            await call.write(hello(world, **changed))
            refused = (await within(call.read())).refused
        assert why in refused.why
        assert (refused.epoch, refused.master) == (1, "n1")
        assert n2.replica.follower.phase is FollowerPhase.FOLLOWING, "its stream goes on"
        await n1.publish(100_000)
        await world.agreed()


@pytest.mark.parametrize(("epoch", "master"), [(1, "n1"), (2, "n1")])
async def test_master_of_a_lower_epoch_or_of_anothers_is_refused(
    tmp_path: Path, epoch: int, master: str
) -> None:
    async with MemberWorld(tmp_path) as world:
        await world.elect("n1")
        n3 = await world.elect("n3")
        await until(lambda: world["n2"].replica.follower.epoch == 2)
        async with calling(world["n2"]) as call:
            await call.write(hello(world, epoch=epoch, node_id=master))
            refused = (await within(call.read())).refused
        assert (refused.epoch, refused.master) == (2, "n3")
        await n3.publish(100_000)
        await world.agreed()


async def test_promise_keeps_a_follower_from_the_next_master(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        async with calling(n2) as first, calling(n2) as second:
            await begun(world, first)
            await first.write(ReplicateRequest(beat=SyncBeat(epoch=1, lease_ms=LEASE_MS)))
            assert (await within(first.read())).ack.epoch == 1
            await second.write(hello(world, epoch=2, node_id="n3"))
            refused = (await within(second.read())).refused
            assert refused.wait_ms == LEASE_MS + 1
            assert n2.replica.follower.phase is FollowerPhase.FOLLOWING
        world.jump_ms(LEASE_MS)
        async with calling(n2) as third:
            await begun(world, third, epoch=2, node_id="n3")


@pytest.mark.parametrize("how", ["released", "ended", "over"])
async def test_hello_waits_where_a_lease_is_over_soon(tmp_path: Path, how: str) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        async with calling(n2) as first, calling(n2) as second:
            n1_boot = world.control.boots["n1"]
            await begun(world, first, boot_id=n1_boot.hex())
            await first.write(ReplicateRequest(beat=SyncBeat(epoch=1, lease_ms=300)))
            assert (await within(first.read())).ack.epoch == 1
            await second.write(hello(world, epoch=2, node_id="n3"))
            answer = asyncio.ensure_future(second.read())
            await asyncio.wait([answer], timeout=0.05)
            assert not answer.done(), "neither answered nor refused"
            if how == "released":
                await first.write(ReplicateRequest(beat=SyncBeat(epoch=1, releases_lease=True)))
            elif how == "ended":
                state = world.control.state
                n1 = replace(state.nodes["n1"], ended_boot_id=n1_boot)
                n2.member.on_state(replace(state, nodes={**state.nodes, "n1": n1}))
            else:
                world.jump_ms(300)
            assert (await within(answer)).hello.epoch == 2


async def test_newer_stream_ends_the_older(tmp_path: Path) -> None:
    async with (
        MemberWorld(tmp_path) as world,
        calling(world["n2"]) as old,
        calling(world["n2"]) as new,
    ):
        await begun(world, old)
        await begun(world, new)
        await old.write(ReplicateRequest(beat=SyncBeat(epoch=1)))
        assert "newer stream" in (await broken(old)).message
        await new.write(ReplicateRequest(beat=SyncBeat(epoch=1, sent_us=77)))
        assert (await within(new.read())).ack.echo_us == 77


Words = Callable[[MemberWorld], list[ReplicateRequest]]


@pytest.mark.parametrize(
    "words",
    [
        lambda _: [],
        lambda _: [ReplicateRequest()],
        lambda _: [ReplicateRequest(beat=SyncBeat(epoch=1))],
        lambda world: [hello(world), ReplicateRequest(beat=SyncBeat(epoch=1))],
        lambda world: [hello(world)],
    ],
)
async def test_stream_out_of_order_is_ended(tmp_path: Path, words: Words) -> None:
    async with MemberWorld(tmp_path) as world:
        async with calling(world["n2"]) as call:
            for word in words(world):
                await call.write(word)
            await call.done_writing()
            assert isinstance(await broken(call), errors.Unavailable)
        await world.elect("n1")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (LogPart(epoch=1, batch_epoch=1, offset=8, batches=b"x"), errors.Unavailable),
        (LogPart(epoch=2, batch_epoch=1, offset=0, batches=b"x"), errors.Unavailable),
        (LogPart(epoch=1, batch_epoch=1, offset=0, batches=bytes(500)), errors.InvalidBatch),
    ],
)
async def test_part_that_is_not_the_next_or_damaged_is_refused(
    tmp_path: Path, part: LogPart, kind: type[errors.HourwheelError]
) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        async with calling(n2) as call:
            await begun(world, call)
            await call.write(ReplicateRequest(log=part))
            assert isinstance(await broken(call), kind)
        assert n2.shard.log.end_offset == 0
        await until(lambda: n2.replica.follower.phase is FollowerPhase.NONE)
        world.jump_ms(LEASE_MS)
        await world.elect_with_message("n1")


async def test_stream_with_a_damaged_part_is_opened_again(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        find_part, damaged = n1.replica.find_part, []

        def find_damaged(node: str) -> LogPart | None:
            part: LogPart | None = find_part(node)
            if part is not None and node == "n2" and not damaged:
                damaged.append(part.offset)
                part.batches = part.batches[:-1] + bytes([part.batches[-1] ^ 1])
            return part

        n1.replica.find_part = find_damaged
        await n1.publish(100_000)
        assert damaged
        await world.agreed()
        assert n2.shard.log.flushed_end_offset == n1.shard.log.end_offset


async def test_wrong_secret_is_refused(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        for trust in (Trust(secret="a secret of somebody else"), Trust()):
            async with calling(world["n2"], trust) as call:
                assert await within(call.code()) is grpc.StatusCode.UNAUTHENTICATED
        assert world["n2"].replica.follower.phase is FollowerPhase.NONE


async def test_node_with_another_secret_is_left_out_and_the_others_serve(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n3 = world["n3"]
        await n3.cut()
        n3.trust = replace(n3.trust, secret="a secret of somebody else")
        await n3.listen()
        world.control.elect("n1")
        await world.pass_ms(2_000)
        n1 = await world.serving("n1")
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        await n1.publish(100_000)
        assert n3.shard.log.end_offset == 0


async def test_acknowledgements_tell_of_a_full_disk(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        async with calling(n2) as call:
            await begun(world, call)
            n2.guard.free_bytes_min = 1 << 60
            n2.guard.check(0)
            await call.write(ReplicateRequest(beat=SyncBeat(epoch=1)))
            assert (await within(call.read())).ack.is_full


class FullDisk(RealDisk):
    """The log cannot be written while it `is_full`."""

    is_full = True

    def open(self, path: str, *, create: bool = False) -> File:
        return FullFile(self, super().open(path, create=create), path)


class FullFile:
    def __init__(self, disk: FullDisk, file: File, path: str) -> None:
        self._disk, self._file, self._path = disk, file, path

    def pwrite(self, pieces: Any, position: int) -> None:
        if self._disk.is_full and self._path.startswith("shard-0/log/"):
            raise errors.DiskFull(f"no room for {self._path}", file=self._path)
        self._file.pwrite(pieces, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def part_of_epoch_1() -> LogPart:
    """The first of a log."""
    first = ReplicaWorld(NodeId("n1"))
    first.become_master(1)
    end = first.replica.facts.end_offset
    return LogPart(epoch=1, batch_epoch=1, batches=first.shard.log.read(0, end))


async def test_follower_says_once_an_epoch_that_it_follows_when_its_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each write ends the stream, and the master opens another one."""
    caplog.set_level(logging.INFO)
    part, world = part_of_epoch_1(), MemberWorld(tmp_path)
    n2 = world["n2"]
    n2.disk = disk = FullDisk(n2.folder)

    async def copy(epoch: int, **changed: Any) -> None:
        async with calling(n2) as call:
            await begun(world, call, epoch=epoch, **changed)
            await call.write(ReplicateRequest(log=part))
            if disk.is_full:
                await until(lambda: n2.replica.follower.phase is FollowerPhase.NONE)
            else:
                await until(lambda: n2.replica.facts.end_offset == len(part.batches))

    def said() -> list[int]:
        fields = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
        return [one["epoch"] for one in fields if one["event"] == "following_started"]

    async with world:
        for _ in range(3):
            await copy(1)
        assert said() == [1]
        disk.is_full = False
        await copy(1)
        assert said() == [1], "nothing had come by the stream before"
        async with calling(n2) as call:
            await call.write(hello(world))
            assert (await within(call.read())).HasField("hello")
            assert said() == [1, 1], "it has got something since"
        async with calling(n2) as call:
            await call.write(hello(world, epoch=2))
            assert (await within(call.read())).HasField("hello")
            assert said() == [1, 1, 2]


async def test_node_ends_when_it_cannot_say_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream would stay, and its master would wait for acknowledgements for ever."""

    def acknowledge(monotonic_ms: float, clock_ms: float) -> FollowerAck:
        raise AttributeError(f"a bug at {monotonic_ms} and {clock_ms}")

    async with MemberWorld(tmp_path) as world:
        n2 = world["n2"]
        async with calling(n2) as call:
            await begun(world, call)
            monkeypatch.setattr(n2.replica, "acknowledge", acknowledge)
            await call.write(ReplicateRequest(beat=SyncBeat(epoch=1)))
            found = await within(n2.failure.found)
        assert "a bug at" in found.message
        world.expected.add("n2")


async def test_lease_is_granted_that_the_node_would_remember(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world, calling(world["n2"]) as call:
        await begun(world, call)
        for lease_ms, echo_us in ((LEASE_MS, 77), (LEASE_MS + 1, 0)):
            await call.write(
                ReplicateRequest(beat=SyncBeat(epoch=1, sent_us=77, lease_ms=lease_ms))
            )
            assert (await within(call.read())).ack.echo_us == echo_us


async def test_begin_waits_for_a_checkpoint_only_where_the_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    part = part_of_epoch_1()
    async with (
        MemberWorld(tmp_path) as world,
        calling(world["n2"]) as one,
        calling(world["n2"]) as two,
    ):
        n2 = world["n2"]

        async def wait() -> None:
            waits.append(n2.shard.log.end_offset)

        monkeypatch.setattr(n2.engine.background, "wait_for_checkpoint", wait)
        await begun(world, one)
        assert not waits, "a checkpoint under way would delay the takeover"
        await one.write(ReplicateRequest(log=part))
        await until(lambda: n2.replica.facts.end_offset == len(part.batches))
        await begun(world, two)
        assert waits == [len(part.batches)]
