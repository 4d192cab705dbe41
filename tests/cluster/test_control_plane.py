"""Three control processes as they run, and what comes to their ports."""

import asyncio
import os
import pickle
import signal
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.internal.v1 import raft_pb2
from replication.control.config import ControlConfig
from replication.control.launcher import ControlProcess
from replication.control_state.state import CODEC_VERSION
from replication.raft.handshake import NONCE_BYTES, Handshake, Identity
from replication.raft.security import split_address
from tests.support.control_cluster import (
    CLUSTER_ID,
    NODE_IDS,
    ControlCluster,
    FakeBroker,
    control_cluster,
    with_config,
)


async def register_all(cluster: ControlCluster) -> None:
    await asyncio.gather(*(each.register() for each in cluster))
    await cluster.until(lambda: {each.master for each in cluster} - {""} and same_state(cluster))


def same_state(cluster: ControlCluster) -> bool:
    return len({each.state.digest() for each in cluster.living}) == 1


async def test_group_elects_replicates_and_survives_its_leader(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        info = cluster["n1"].shard_info
        assert info is not None
        assert info.epoch > 0
        assert info.isr_node_ids == set(NODE_IDS)
        leader = cluster.leader
        assert leader is not None
        follower = next(each for each in cluster if each is not leader)
        results = [await follower.put_topic(f"topic-{number}") for number in range(20)]
        assert [one.object_id for one in results] == list(range(1, 21))
        conflict = await leader.put_topic("topic-0")
        assert conflict.outcome == pb.CONTROL_OUTCOME_CONFLICT
        assert conflict.version == results[0].version

        await leader.kill()
        await cluster.until(lambda: cluster.leader not in {None, leader})
        result = await follower.put_topic("after")
        assert result.object_id == 21
        await cluster.until(lambda: cluster.living and follower.master not in {"", leader.node_id})
        await leader.start()
        await cluster.until(lambda: same_state(cluster) and "after" in leader.state.topics)
        await leader.register()


async def test_user_is_known_to_every_broker_once_all_know_the_rules(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        await cluster.until(lambda: {one.state.codec_version for one in cluster} == {CODEC_VERSION})
        user = pb.PutUserCommand(name="ann", secret_hash="hash")
        result = await cluster["n2"].client.propose(put_user=user)
        assert result.outcome == pb.CONTROL_OUTCOME_OK
        await cluster.until(lambda: all("ann" in one.state.access.users for one in cluster))


def epoch_of(broker: FakeBroker) -> int:
    """0 before it knows of any."""
    return 0 if broker.shard_info is None else broker.shard_info.epoch


def in_sync_of(broker: FakeBroker) -> set[str]:
    """Boot ids; empty before it knows of any."""
    return set() if broker.shard_info is None else {one.boot_id for one in broker.shard_info.isr}


async def test_state_is_there_when_all_three_are_killed(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        for number in range(10):
            assert (await cluster["n2"].put_topic(f"t{number}")).object_id == number + 1
        old = cluster["n1"].shard_info
        assert old is not None
        for broker in cluster:
            broker.process.process.send_signal(signal.SIGKILL)
        for broker in cluster:
            await broker.kill()
        await cluster.start()
        await register_all(cluster)
        assert len(cluster["n1"].state.topics) == 10
        await cluster.until(lambda: epoch_of(cluster["n3"]) > old.epoch)
        boot_ids = {each.boot_id for each in cluster}
        await cluster.until(lambda: in_sync_of(cluster["n3"]) == boot_ids)


async def test_broker_that_leaves_or_resigns_is_succeeded(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        first = cluster[cluster["n1"].master]
        heir = next(each for each in cluster if each is not first)
        first.shard.hand_over_to = heir.node_id
        first.shard.epoch = 1_000
        await cluster.until(lambda: all(each.master == heir.node_id for each in cluster))
        first.shard.hand_over_to = ""
        await heir.hang_up()
        rest = [each for each in cluster if each is not heir]
        await cluster.until(lambda: all(each.master not in {"", heir.node_id} for each in rest))
        assert heir.process.is_running
        await heir.connect()
        await heir.register()


async def test_master_that_is_cut_off_is_succeeded_and_hears_of_it_later(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        lone = cluster[cluster["n1"].master]
        rest = [each for each in cluster if each is not lone]
        ids = [each.node_id for each in rest]
        lone.client.partition(ids, ids)
        await cluster.until(lambda: all(each.master not in {"", lone.node_id} for each in rest))
        await cluster.until(lambda: not lone.client.leader.has_majority)
        assert lone.master == lone.node_id
        with pytest.raises((errors.Unavailable, errors.Timeout)):
            await lone.client.propose(put_topic=pb.PutObjectCommand(name="minority"), timeout_s=0.5)
        lone.client.partition([], [])
        await cluster.until(lambda: lone.master == rest[0].master)


async def test_control_process_ends_when_its_parent_dies(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await register_all(cluster)
        first = cluster[cluster["n1"].master]
        rest = [each for each in cluster if each is not first]
        stdin = first.process.process.stdin
        assert stdin is not None
        stdin.close()
        path = str(tmp_path / "again" / "control.sock")
        again = FakeBroker(with_config(first, socket_path=path), cluster.log)
        await again.start()  # it waits until the old one has told the others and is gone
        assert await first.process.wait() == 0
        await cluster.until(lambda: all(each.master not in {"", first.node_id} for each in rest))
        await again.register()
        await first.hang_up()
        await again.stop()


async def open_port(cluster: ControlCluster) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*split_address(cluster.addresses["n1"]))


async def is_cut_off(cluster: ControlCluster, raw: bytes) -> bool:
    """Whether the port answers nothing to these bytes and hangs up."""
    reader, writer = await open_port(cluster)
    writer.write(raw)
    try:
        async with asyncio.timeout(30):
            return await reader.read() == b""
    except ConnectionResetError:
        return True
    finally:
        writer.transport.abort()


def framed(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "little") + raw


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (self._path, 0o700)


async def test_strangers_are_refused_at_the_port(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        bomb = pickle.dumps(Bomb(str(tmp_path / "bomb")))
        assert await is_cut_off(cluster, framed(bomb))
        assert await is_cut_off(cluster, len(bomb).to_bytes(4, "little", signed=True) + bomb)
        assert await is_cut_off(cluster, b"GET / HTTP/1.1\r\n\r\n")
        assert await is_cut_off(cluster, b"\xff\xff\xff\x7f" + bytes(1_000))
        assert await is_cut_off(cluster, framed(os.urandom(200)))
        vote = raft_pb2.PeerFrame(request_vote=raft_pb2.RaftRequestVote(term=1_000_000))
        assert await is_cut_off(cluster, framed(vote.SerializeToString()))
        assert not (tmp_path / "bomb").exists()

        identity = Identity(bytes.fromhex(CLUSTER_ID), "n2")
        forger = Handshake(
            identity,
            frozenset({"n1", "n3"}),
            os.urandom(NONCE_BYTES),
            secret=b"not the secret, but long enough",
            certified=None,
        )
        reader, writer = await open_port(cluster)
        writer.write(framed(forger.first("n1")))
        length = int.from_bytes(await reader.readexactly(4), "little")
        answer = await reader.readexactly(length)
        with pytest.raises(errors.PeerRefused, match="secret"):
            forger.prove(answer)
        writer.transport.abort()
        term = cluster["n1"].client.leader.term
        assert term < 1_000
        assert (await cluster["n1"].put_topic("all is well")).object_id == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"listen": "0.0.0.0:7000"}, "not on loopback"),
        ({"secret_file": ""}, "certificates"),
        ({"cluster_id": "nonsense"}, "32 hexadecimal"),
        ({"min_in_sync": 4}, "min_in_sync"),
    ],
)
async def test_process_says_why_it_cannot_start(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    config: ControlConfig = with_config(ControlCluster(tmp_path)["n1"], **changes)
    log = tmp_path / "one.log"
    process = ControlProcess(config, log_file=log)
    await process.start()
    assert await process.wait() == 2
    assert said in log.read_text()
