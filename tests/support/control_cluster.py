"""Control processes as they are, on loopback, each with a client in place of a broker."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control.client import ControlClient, Hello
from replication.control.config import ControlConfig
from replication.control.launcher import ControlProcess
from replication.control_state.state import ControlState, ShardInfo
from tests.support.addresses import free_address

NODE_IDS: Final = (NodeId("n1"), NodeId("n2"), NodeId("n3"))
CLUSTER_ID: Final = "c1" * 16
_HANG_S: Final = 60.0
_BEAT_S: Final = 0.1
"""Between reports; no test waits for it."""


class FakeBroker:
    """One node: its control process, and a client that registers and reports as a broker would."""

    def __init__(self, config: ControlConfig, log_file: Path) -> None:
        self.node_id = config.node_id
        self.process = ControlProcess(config, log_file=log_file)
        self.changed = asyncio.Event()
        self._lost = asyncio.Event()
        self.client = self._new_client()
        self.boot_id = b""
        self.shard = link.ShardReport(shard=0, is_ready=True)
        self._beat: asyncio.Task[None] | None = None

    def _new_client(self) -> ControlClient:
        return ControlClient(
            self.process.config.socket_path,
            on_state=lambda _: self.changed.set(),
            on_leader=lambda _: self.changed.set(),
            on_lost=self._on_lost,
            control_timeout_ms=_HANG_S * 1_000,
        )

    def _on_lost(self) -> None:
        self._lost.set()
        self.changed.set()

    @property
    def state(self) -> ControlState:
        return self.client.state

    @property
    def shard_info(self) -> ShardInfo | None:
        return self.state.shards.get(0)

    @property
    def master(self) -> str:
        info = self.shard_info
        return info.master.node_id if info and info.master else ""

    async def start(self) -> None:
        await self.process.start()
        await self.connect()

    async def connect(self) -> None:
        self.boot_id = os.urandom(16)
        self._lost.clear()
        self.client = self._new_client()
        await self.client.start(Hello(self.node_id, self.boot_id))
        self._beat = asyncio.ensure_future(self._report_for_ever())

    async def _report_for_ever(self) -> None:
        while self.client.is_connected:
            self.client.report([self.shard])
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._lost.wait()

    async def register(self, *, is_sound: bool = True, seen: Iterable[pb.SeenEpoch] = ()) -> None:
        command = pb.RegisterNodeCommand(
            node_id=self.node_id, boot_id=self.boot_id, isr_is_sound=is_sound, seen=seen
        )
        result = await self.propose(register_node=command)
        assert result.outcome == pb.CONTROL_OUTCOME_OK, result

    async def put_topic(self, name: str, expected_version: int = 0) -> pb.ControlResult:
        command = pb.PutObjectCommand(name=name, expected_version=expected_version)
        return await self.propose(put_topic=command)

    async def propose(self, **command: Any) -> pb.ControlResult:
        """Until it is answered, as a broker does: a busy machine may lose its leader."""
        request_id = os.urandom(16)
        async with asyncio.timeout(_HANG_S):
            while True:
                try:
                    return await self.client.propose(request_id=request_id, **command)
                except (errors.Unavailable, errors.Timeout):
                    await asyncio.sleep(0)

    async def hang_up(self) -> None:
        """The broker is gone; its control process is not."""
        if self._beat is not None:
            self._beat.cancel()
        await self.client.close()

    async def kill(self) -> None:
        """Both are gone."""
        await self.process.kill()
        await self.hang_up()

    async def stop(self) -> None:
        await self.hang_up()
        if self.process.is_running:
            assert await self.process.stop() == 0


class ControlCluster:
    """Three of them."""

    def __init__(self, folder: Path, secret: bytes = b"only for tests, thirty-two bytes") -> None:
        secret_file = folder / "secret"
        secret_file.write_bytes(secret)
        self.addresses = {node_id: free_address() for node_id in NODE_IDS}
        self.log = folder / "control.log"
        self.brokers = {
            node_id: FakeBroker(self._config(folder, node_id, secret_file), self.log)
            for node_id in NODE_IDS
        }

    def add(self, folder: Path, node_id: NodeId) -> FakeBroker:
        """A node more, not started, that is no member yet."""
        self.addresses[node_id] = free_address()
        config = replace(self._config(folder, node_id, folder / "secret"), joins=True)
        self.brokers[node_id] = FakeBroker(config, self.log)
        return self.brokers[node_id]

    async def change_members(self, asked: NodeId, *node_ids: NodeId) -> pb.ControlResult:
        """Have `asked` end the generation of voters that it is of; these follow."""
        broker = self.brokers[asked]
        members = [
            pb.MemberData(node_id=one, control_address=self.addresses[one]) for one in node_ids
        ]
        generation = broker.state.membership.generation
        command = pb.ChangeMembersCommand(expected_generation=generation, members=members)
        return await broker.propose(change_members=command)

    def _config(self, folder: Path, node_id: NodeId, secret_file: Path) -> ControlConfig:
        return ControlConfig(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            directory=str(folder / node_id),
            socket_path=str(folder / f"{node_id}-run" / "control.sock"),
            listen=self.addresses[node_id],
            peers={peer: self.addresses[peer] for peer in NODE_IDS if peer != node_id},
            secret_file=str(secret_file),
            allow_faults=True,
        )

    def __getitem__(self, node_id: NodeId) -> FakeBroker:
        return self.brokers[node_id]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.brokers.values())

    @property
    def living(self) -> list[FakeBroker]:
        return [each for each in self if each.process.is_running and each.client.is_connected]

    async def start(self) -> None:
        await asyncio.gather(*(each.start() for each in self))
        await self.until(lambda: self.leader is not None)
        await self.until(lambda: all(each.state.is_bootstrapped for each in self))

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self))

    @property
    def leader(self) -> FakeBroker | None:
        """Raft's, where all that live agree and it hears a majority."""
        said = {each.client.leader for each in self.living}
        ids = {one.node_id for one in said}
        if len(ids) != 1 or not all(one.has_majority for one in said):
            return None
        found = self.brokers.get(ids.pop())
        return found if found in self.living else None

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a change, on any node, after which it holds."""
        async with asyncio.timeout(_HANG_S):
            while not condition():
                for each in self:
                    each.changed.clear()
                waits = [asyncio.ensure_future(each.changed.wait()) for each in self]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=0.2)
                finally:
                    for wait in waits:
                        wait.cancel()


@asynccontextmanager
async def control_cluster(folder: Path) -> AsyncIterator[ControlCluster]:
    """Three nodes that have agreed on a leader and founded the cluster."""
    cluster = ControlCluster(folder)
    try:
        await cluster.start()
        yield cluster
        await cluster.stop()
    finally:
        for each in cluster:
            if each.process.is_running:
                await each.process.kill()


def with_config(broker: FakeBroker, **changes: object) -> ControlConfig:
    """The broker's configuration with other values."""
    return replace(broker.process.config, **changes)  # type: ignore[arg-type]
