"""Hourwheel itself: the blocking client of Python, and one node or three."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import hourwheel
from hourwheel import CancelOutcome, Columns, Consumer, Producer
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench.peers.peer import Ids, Peer

_TOPIC: Final = "bench"
_WAIT_MS: Final = 1_000.0
_NODES: Final = 3


class Hourwheel(Peer):
    """One node."""

    name = "hourwheel"
    durability = "fdatasync before the answer"

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._runner = asyncio.Runner()
        self._node: ChildNode | LocalCluster | None = None
        self._producer: Producer | None = None
        self._servers = ""

    def start(self, folder: Path) -> None:
        self._servers = self._runner.run(self._start(folder))
        self._producer = Producer(self._servers)

    async def _start(self, folder: Path) -> str:
        self._node = node = ChildNode(folder / "data", log_file=folder / "node.log")
        await node.start()
        return node.address

    def stop(self) -> None:
        if self._producer is not None:
            self._producer.close()
        if self._node is not None:
            self._runner.run(self._node.__aexit__(None, None, None))
        self._runner.close()

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        columns = Columns(bodies=bodies, due_ms=due_ms)
        return list(self._connected().publish_batch(_TOPIC, columns))

    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        consumer = Consumer(
            self._servers, group="bench", topic=_TOPIC, prefetch_messages=49_152, polls=3
        )
        with consumer:
            while (left_s := until_s - time.time()) > 0:
                batch = consumer.receive_batch(wait_ms=min(_WAIT_MS, left_s * 1_000))
                if batch is None:
                    continue
                received_s = time.time()
                bodies = batch.bodies()
                consumer.ack_soon(batch)
                yield received_s, bodies

    def cancel(self, ids: Ids) -> int:
        outcomes = self._connected().cancel_many(ids)
        return sum(outcome is CancelOutcome.CANCELLED for outcome in outcomes)

    def _connected(self) -> Producer:
        if self._producer is None:
            raise RuntimeError("not started")
        return self._producer


class PipelinedHourwheel(Hourwheel):
    """As its producer does by itself where there is more to send."""

    name = "hourwheel, pipelined"
    durability = "as hourwheel; five batches are in flight instead of one"
    _IN_FLIGHT: Final = 5

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(self._IN_FLIGHT)
        self._under_way: list[Future[Ids]] = []

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        self._under_way.append(self._threads.submit(super().publish, due_ms, bodies))
        return self._under_way.pop(0).result() if len(self._under_way) > self._IN_FLIGHT else []

    def flush(self) -> Ids:
        ids = [one for call in self._under_way for one in call.result()]
        self._under_way.clear()
        return ids

    def stop(self) -> None:
        self._threads.shutdown()
        super().stop()


class HourwheelCluster(Hourwheel):
    """Three nodes, which no other peer has here."""

    name = "hourwheel, three nodes"
    durability = "fdatasync on the master and on all in-sync followers, at least one"

    async def _start(self, folder: Path) -> str:
        self._node = cluster = LocalCluster(folder / "cluster", _NODES)
        await cluster.__aenter__()
        await cluster.wait_for_master(in_sync=_NODES)
        return cluster.servers


def version() -> str:
    """Of this tree."""
    return "Hourwheel " + hourwheel.__version__


PEERS: Final = (Hourwheel, PipelinedHourwheel, HourwheelCluster)
