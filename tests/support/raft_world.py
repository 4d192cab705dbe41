"""A control plane's Raft group without network, disk or clock: everything by hand, and repeatable.

    world = RaftWorld(monkeypatch)
    leader = world.elect()
    assert world.propose(leader, b"x") == b"x"
    world.cut(leader)                  # nobody hears it any more
    world.kill("b"); world.start("b")  # with what its simulated disk holds

Time is a number, which PySyncObj is given instead of its own clock; messages are delivered in
order, through our codec, when `step` says so.
"""

import random
from collections import deque
from typing import Any, Final

import pysyncobj.syncobj
import pytest

from hourwheel.types import FIRST_SHARD, NodeId
from replication.raft.codec import decode, parse
from replication.raft.journal import RaftJournal
from replication.raft.raft_node import RaftNode, RaftTimings
from replication.raft.transport import DurableTransport
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk

IDENTITY: Final = Identity(b"c" * 16, FIRST_SHARD)
DIRECTORY: Final = "control"
NODE_IDS: Final = (NodeId("a"), NodeId("b"), NodeId("c"))
_STEP_S: Final = 0.02
_STEP_COUNT_MAX: Final = 5_000


class ListMachine:
    """Remembers what was applied; a command that begins with "!" raises."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.failed: list[bytes] = []
        self.must_store = False

    def apply(self, command: bytes) -> bytes:
        if command.startswith(b"!"):
            self.failed.append(command)
            raise ValueError(command)
        self.applied.append(command)
        return command

    def snapshot(self) -> bytes:
        return b"\n".join(self.applied)

    def restore(self, raw: bytes) -> None:
        self.applied = raw.split(b"\n") if raw else []


class WorldTransport(DurableTransport):
    """Puts frames into the world's queue."""

    def __init__(self, world: "RaftWorld", node_id: NodeId, journal: RaftJournal) -> None:
        super().__init__(journal, [peer for peer in world.node_ids if peer != node_id])
        self._world = world
        self._node_id = node_id

    def send_frame(self, peer_id: NodeId, raw: bytes) -> bool:
        return self._world.post(self._node_id, peer_id, raw)


class Life:
    """A node from its start to its death."""

    def __init__(self, world: "RaftWorld", node_id: NodeId) -> None:
        self.journal = RaftJournal.open(world.disks[node_id], DIRECTORY, IDENTITY, node_id)
        self.machine = ListMachine()
        self.transport = WorldTransport(world, node_id, self.journal)
        peers = [peer for peer in world.node_ids if peer != node_id]
        self.node = RaftNode(
            node_id,
            peers,
            self.journal,
            self.transport,
            self.machine,
            world.timings,
            world.on_state_changed,
        )


class RaftWorld:
    """See the top of this file.

    Attributes:
        disks, lives: by node id; a killed node has no life.
        queue: (from, to, frame), the next one first.
        answers: of `submit`, in order of their coming: (command, result, reason).
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        node_ids: tuple[NodeId, ...] = NODE_IDS,
        seed: int = 1,
        timings: RaftTimings | None = None,
        on_state_changed: Any = None,
    ) -> None:
        self.now_s = 1_000.0
        self.node_ids = node_ids
        self.timings = timings or RaftTimings()
        self.on_state_changed = on_state_changed
        self.disks = {node_id: SimulatedDisk() for node_id in node_ids}
        self.lives: dict[NodeId, Life] = {}
        self.queue: deque[tuple[NodeId, NodeId, bytes]] = deque()
        self.answers: list[tuple[bytes, bytes | None, int]] = []
        self._away: set[NodeId] = set()
        self._lost: set[tuple[NodeId, NodeId]] = set()
        self.is_holding = False
        monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: self.now_s)
        monkeypatch.setattr(pysyncobj.syncobj, "random", random.Random(seed))
        for node_id in node_ids:
            self.start(node_id)

    # --- who is there

    def start(self, node_id: NodeId) -> Life:
        life = self.lives[node_id] = Life(self, node_id)
        if node_id not in self._away:
            self._connect(node_id)
        return life

    def kill(self, node_id: NodeId) -> None:
        """The process dies; its page cache lives."""
        self.lives.pop(node_id).node.close_pipe()
        self.disks[node_id].kill()
        self._forget(node_id)

    def lose_power(self, node_id: NodeId, rng: random.Random) -> None:
        self.lives.pop(node_id).node.close_pipe()
        self.disks[node_id].crash(rng)
        self._forget(node_id)

    def cut(self, *node_ids: NodeId) -> None:
        """These hear nobody, and nobody hears them."""
        for node_id in node_ids:
            self._away.add(node_id)
            self._forget(node_id)

    def heal(self) -> None:
        away, self._away = self._away, set()
        for node_id in away & set(self.lives):
            self._connect(node_id)

    def _connect(self, node_id: NodeId) -> None:
        for peer in self.lives:
            if peer != node_id and peer not in self._away:
                self.lives[peer].transport.connected(node_id)
                self.lives[node_id].transport.connected(peer)

    def _forget(self, node_id: NodeId) -> None:
        self.queue = deque(each for each in self.queue if node_id not in each[:2])
        for peer, life in self.lives.items():
            if peer != node_id:
                life.transport.disconnected(node_id)
                if node_id in self.lives:
                    self.lives[node_id].transport.disconnected(peer)

    # --- messages and time

    def post(self, from_: NodeId, to: NodeId, raw: bytes) -> bool:
        if {from_, to} & self._away or to not in self.lives:
            return False
        self.queue.append((from_, to, raw))
        return True

    def deliver(self) -> bool:
        """The next message; False: there is none."""
        if not self.queue:
            return False
        from_, to, raw = self.queue.popleft()
        self.lives[to].transport.received(from_, decode(parse(raw)))
        return True

    def tick(self) -> None:
        self.now_s += _STEP_S
        for life in list(self.lives.values()):
            life.node.doTick(0.0)

    def step(self) -> None:
        self.tick()
        if not self.is_holding:
            while self.deliver():
                pass

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def until(self, condition: Any) -> None:
        for _ in range(_STEP_COUNT_MAX):
            if condition():
                return
            self.step()
        raise AssertionError("it does not come to pass")

    # --- use

    def leaders(self) -> list[NodeId]:
        return [node_id for node_id, life in self.lives.items() if life.node.status().is_leader]

    def elect(self) -> NodeId:
        """Run until there is one leader that hears a majority; its id."""
        self.until(
            lambda: [
                node_id
                for node_id in self.leaders()
                if node_id not in self._away and self.lives[node_id].node.status().has_majority
            ]
        )
        return next(node_id for node_id in self.leaders() if node_id not in self._away)

    def submit(self, node_id: NodeId, command: bytes) -> None:
        self.lives[node_id].node.submit(
            command, lambda result, reason: self.answers.append((command, result, reason))
        )

    def answer(self, command: bytes) -> tuple[bytes | None, int] | None:
        return next(((r, why) for done, r, why in self.answers if done == command), None)

    def propose(self, node_id: NodeId, command: bytes) -> bytes | None:
        """Submit and run until it is answered with success."""
        self.submit(node_id, command)
        self.until(lambda: self.answer(command) is not None)
        answered = self.answer(command)
        assert answered is not None
        assert answered[1] == 0, answered
        return answered[0]

    def settle(self) -> None:
        """Run until all that live have applied the same."""
        self.elect()
        self.until(lambda: len({life.node.raftLastApplied for life in self.lives.values()}) == 1)
        self.run(20)
        assert len({tuple(life.machine.applied) for life in self.lives.values()}) == 1

    def applied(self, node_id: NodeId) -> list[bytes]:
        return self.lives[node_id].machine.applied
