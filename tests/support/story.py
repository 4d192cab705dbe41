"""Stories of replication as text: a command, `----`, and what came of it (etcd's data-driven form).

    publish a x                 in the file: a command and, below the line, all that was seen
    ----
    a: appends 1:x at 1

`read_steps` takes a file apart, `Story` carries commands out on real replicas, and `written` puts
both together again. Nothing happens but what a command says: messages cross, writes end and time
passes only then. All nodes share one monotonic clock, which begins at 0 ms.

Records are of one size, so that an offset can be given as a number of records: `1:x` is what was
published as `x` in epoch 1, `2:start` the EPOCH_START of epoch 2, and `1:level` the FEATURE_LEVEL
with which every log begins.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.formats.record_batch import Kind, RecordBatch, build_publish
from hourwheel.internal.v1.replication_pb2 import FollowerAck, Refused, SyncBeat
from hourwheel.types import FIRST_OFFSET, NO_NODE, Epoch, NodeId, Offset
from node.replica.effects import (
    CloseStreams,
    Effect,
    OpenStreams,
    ProposeIsr,
    RequestSuccessor,
    Serve,
    StepDown,
)
from replication.rules.isr import IsrChange
from storage.log.tail import LogConfig
from tests.support.log_world import delete_below
from tests.support.replica_world import START_MS, ReplicaWorld

LEVEL_BYTES: Final = 104
"""Of the FEATURE_LEVEL record, the first of each log."""
RECORD_BYTES: Final = 160
"""Of each other record: what a producer publishes and who begins an epoch are padded to it."""
_BOOT_ID_CHARS: Final = 54
_LINE: Final = "----"
_QUEUE: Final = 1 << 8
_HOUR_MS: Final = 3_600_000
_LABEL: Final = re.compile(rb"<(\w+)>")


class _LosesAll(Random):
    """Of what was not synced nothing survives."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.99


@dataclass
class Step:
    """One command, the text above it, and what the file says came of it."""

    above: str
    command: str
    output: str


def read_steps(text: str) -> list[Step]:
    """Take a file apart. Raises ValueError where a command has no line below it."""
    steps = []
    for part in re.split(r"\n{2,}", text.strip("\n")):
        lines = part.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rest = lines[len(comments) :]
        if rest and (len(rest) < 2 or rest[1] != _LINE):
            raise ValueError(f"a command has no {_LINE} below it: {rest[0]}")
        command, output = (rest[0], "\n".join(rest[2:])) if rest else ("", "")
        steps.append(Step("\n".join(comments), command, output))
    return steps


def written(steps: list[Step]) -> str:
    """The text of a file."""
    parts = []
    for step in steps:
        lines = [step.above] if step.above else []
        lines += [step.command, _LINE] if step.command else []
        lines += [step.output] if step.output else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def at(offset: int) -> str:
    """An offset of the log as a number of records."""
    if offset < LEVEL_BYTES:
        return str(offset)
    count, rest = divmod(offset - LEVEL_BYTES, RECORD_BYTES)
    return f"{count + 1}+{rest}B" if rest else str(count + 1)


def offset_of(record: int) -> int:
    """Where a record begins that has so many in front of it."""
    return LEVEL_BYTES + (record - 1) * RECORD_BYTES if record else 0


class _Producer:
    """Waits for what becomes of one record, and says so."""

    def __init__(self, who: str, say: Callable[[str], None]) -> None:
        self._who, self._say = who, say

    def answer(self, result: Any, error: errors.HourwheelError | None) -> None:
        """See `node.replica.mastership.Proposer`."""
        del result
        if error is None:
            self._say(f"{self._who} is acknowledged")
        else:
            self._say(f"{self._who} is answered {type(error).__name__} ({error.message})")


@dataclass
class _Node:
    """What a story knows of one node, beside its replica."""

    world: ReplicaWorld
    is_up: bool = True
    is_low: bool = False
    clock_ms: int = 0
    """Its clock is ahead of the others' by so much."""
    requested: IsrChange | None = None
    closing: CloseStreams | None = None


class Story:
    """The nodes of one story. `run` carries a command out and says what came of it."""

    def __init__(self) -> None:
        """No nodes yet: `nodes` makes them."""
        self.nodes: dict[NodeId, _Node] = {}
        self.now_ms = 0.0
        self._lines: list[str] = []
        self._commands: dict[str, Callable[..., None]] = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    def run(self, command: str) -> str:
        """Carry out, then perform and apply whatever follows on each node.

        Raises:
            ValueError, KeyError, TypeError: it is no command, or of other nodes.
        """
        self._lines = []
        name, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        self._commands[name](*(word for word in words if "=" not in word), **options)
        for node in self.nodes.values():
            if node.is_up:
                self._settle(node)
        return "\n".join(self._lines)

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _settle(self, node: _Node) -> None:
        world = node.world
        while True:
            self._perform(node, world.effects())
            applied = world.shard.apply_some(8)
            if not applied:
                break
            world.replica.on_applied(applied, self.now_ms)
        if world.replica.rules is not None:
            world.replica.rules.check()

    def _perform(self, node: _Node, effects: list[Effect]) -> None:
        name = node.world.name
        for effect in effects:
            if isinstance(effect, OpenStreams):
                epoch = node.world.replica.assignment.epoch
                self._say(
                    f"{name}: takes over epoch {epoch}, which begins at {self._start_of(node)}"
                )
            elif isinstance(effect, Serve):
                self._say(f"{name}: serves epoch {node.world.replica.assignment.epoch}")
            elif isinstance(effect, StepDown):
                self._say(f"{name}: steps down ({effect.why})")
                effect.mastership.close(errors.NotMaster("ask another node"))
            elif isinstance(effect, CloseStreams):
                node.closing = effect
            elif isinstance(effect, ProposeIsr):
                node.requested = effect.change
                members, version = "".join(effect.change.members), effect.change.version
                self._say(f"{name}: asks that {members} be in sync, in place of version {version}")
            elif isinstance(effect, RequestSuccessor):
                self._say(f"{name}: asks for another master ({effect.why})")

    def _start_of(self, node: _Node) -> str:
        master = node.world.replica.rules
        return "" if master is None else at(master.start.start_offset)

    # -- the world --------------------------------------------------------------------------------

    def do_nodes(self, *names: NodeId, granted_ms: str = "0", segment: str = "") -> None:
        """Make the nodes of the cluster; `segment`: records in a segment of the log."""
        log = LogConfig(offset_of(int(segment))) if segment else LogConfig()
        for name in names:
            world = ReplicaWorld(
                name,
                members=names,
                grant_left_ms=float(granted_ms),
                log=log,
                boot_id=name * _BOOT_ID_CHARS,
            )
            self.nodes[name] = _Node(world)

    def do_cluster(self, *names: NodeId, segment: str = "") -> None:
        """Nodes of which the first is master of epoch 1, and the others follow; 50 ms have gone."""
        self.do_nodes(*names, segment=segment)
        master, *followers = names
        self.do_elect(master, "1")
        self.do_flush(master)
        self.do_connect(master, *followers)
        self.do_wait("50")
        self.do_round(master, *followers)
        self._lines = [f"{master}: serves epoch 1, followed by {' '.join(followers) or 'nobody'}"]

    def do_wait(self, time_ms: str) -> None:
        """Time passes, and each node looks what there is to do."""
        self.now_ms += float(time_ms)
        for node in self._up():
            node.world.replica.step(self.now_ms)

    def do_clock(self, name: NodeId, ahead_ms: str) -> None:
        """Somebody steps a node's clock."""
        self.nodes[name].clock_ms = int(ahead_ms)

    def do_low(self, name: NodeId) -> None:
        """A node's disk is low: its acknowledgements say so."""
        self.nodes[name].is_low = True

    def do_full(self, name: NodeId) -> None:
        """A node's disk has no room for one more byte."""
        disk = self.nodes[name].world.disk
        disk.capacity_bytes = disk.used_bytes("")

    def do_room(self, name: NodeId) -> None:
        """There is room again."""
        self.nodes[name].world.disk.capacity_bytes = 1 << 40

    def do_kill(self, name: NodeId) -> None:
        """The process dies; what it wrote is in the page cache."""
        self.nodes[name].world.disk.kill()
        self._down(name)

    def do_powercut(self, name: NodeId) -> None:
        """The machine dies; what was not synced is gone."""
        self.nodes[name].world.disk.crash(_LosesAll(0))
        self._down(name)

    def _down(self, name: NodeId) -> None:
        self.nodes[name].is_up = False

    def do_start(self, name: NodeId, granted_ms: str = "600") -> None:
        """The process starts again; it may have granted a lease, and does not know to whom."""
        node = self.nodes[name]
        node.world.open(float(granted_ms), self.now_ms)
        node.is_up = True
        self._say(f"{name}: starts with {self._log_of(node)}, {self._where(node)}")

    def do_trim(self, name: NodeId, record: str) -> None:
        """Remove the segments of a log that lie below a record."""
        log = self.nodes[name].world.shard.log
        delete_below(log, offset_of(int(record)))
        self.nodes[name].world.shard.recent.truncate(FIRST_OFFSET)
        self._say(f"{name}: its log begins at {at(log.start_offset)}")

    # -- the control plane ------------------------------------------------------------------------

    def do_elect(
        self, master: NodeId, epoch: str, isr: str = "", version: str = "", to: str = ""
    ) -> None:
        """The control plane's news reaches the nodes `to`, or all."""
        for name in [*map(NodeId, to)] or [node.world.name for node in self._up()]:
            world = self.nodes[name].world
            members = isr or "".join(self.nodes)
            number = int(version or epoch)
            world.assign(
                Epoch(int(epoch)), master, isr=members, version=number, monotonic_ms=self.now_ms
            )
            world.replica.step(self.now_ms)
            if name == master and world.replica.is_elected:
                self._say(f"{name}: may not take over epoch {epoch} yet")

    def do_ended(self, name: NodeId, to: str = "") -> None:
        """The control plane's word that a process has ended reaches the nodes `to`, or all."""
        boot_id = self.nodes[name].world.boot_id
        for one in [*map(NodeId, to)] or [node.world.name for node in self._up()]:
            world = self.nodes[one].world
            world.replica.on_ended(frozenset({boot_id}))
            world.replica.step(self.now_ms)

    def do_insync(self, name: NodeId, isr: str, version: str) -> None:
        """The control plane tells a master the set that is in force."""
        world = self.nodes[name].world
        epoch = world.replica.assignment.epoch
        world.assign(epoch, name, isr=isr, version=int(version), monotonic_ms=self.now_ms)

    def do_insync_refused(self, name: NodeId) -> None:
        """The control plane says that the change did not happen and will not."""
        node = self.nodes[name]
        master = node.world.replica.rules
        if master is not None and node.requested is not None:
            master.isr.on_refused(node.requested)

    # -- writing ----------------------------------------------------------------------------------

    def do_publish(self, name: NodeId, *labels: str, size: str = "") -> None:
        """A producer publishes at a node; the records are appended, and not durable yet.

        `size`: in bytes, of a record that will find no room.
        """
        world = self.nodes[name].world
        for label in labels:
            if not world.replica.may_act(self.now_ms):
                self._say(f"{name}: refuses {label}: not the master, or without a lease")
                continue
            body = f"<{label}>".encode()
            empty = len(build_publish([START_MS], [b""]))
            body = body.ljust(int(size or RECORD_BYTES) - empty, b".")
            due_ms = np.full(1, START_MS + _HOUR_MS, np.int64)
            batch = RecordBatch(build_publish(due_ms, [body]))
            start = world.shard.log.end_offset
            queue = np.full(1, _QUEUE, np.uint32)
            mastership = world.replica.mastership
            assert mastership is not None
            producer = _Producer(f"{name}: {label}", self._say)
            mastership.publish(batch, due_ms, queue, START_MS, producer)
            mastership.rules.on_appended(world.shard.log.end_offset)
            self._say(f"{name}: appends {world.replica.assignment.epoch}:{label} at {at(start)}")

    def do_flush(self, *names: NodeId) -> None:
        """What is appended is written and synced."""
        for name in names:
            self._write(name, durable=True)

    def do_write(self, name: NodeId) -> None:
        """What is appended is written, and the sync never ends: the node knows of nothing."""
        self._write(name, durable=False)

    def _write(self, name: NodeId, *, durable: bool) -> None:
        world = self.nodes[name].world
        write = world.shard.take_write()
        if write is None:
            return
        try:
            write.run(durable=durable)
        except errors.DiskFull as error:
            self._say(f"{name}: finds no room from {at(write.start_offset)} on")
            world.replica.on_abandoned(world.shard.abandon_write(write), error)
            return
        if durable:
            world.shard.finish_write(write)
            self._say(f"{name}: is durable up to {at(world.shard.log.flushed_end_offset)}")
            world.replica.on_flushed(self.now_ms)

    # -- messages ---------------------------------------------------------------------------------

    def do_connect(self, master: NodeId, *followers: NodeId) -> None:
        """A stream is opened: hello, its answer, and where to begin."""
        for name in followers:
            self._connect(self.nodes[master].world, self.nodes[name].world)

    def _connect(self, master: ReplicaWorld, follower: ReplicaWorld) -> None:
        there, back = f"{master.name} -> {follower.name}", f"{follower.name} -> {master.name}"
        hello = master.replica.on_connected(follower.name)
        self._say(f"{there} hello of epoch {hello.epoch}")
        answer = follower.replica.on_hello(hello, self.now_ms)
        if isinstance(answer, Refused):
            self._say(f"{back} refused: {answer.why}{_wait(answer)}")
            master.replica.on_refused(answer)
            if master.replica.rules is not None:
                master.replica.rules.on_lost(follower.name, self.now_ms)
            return
        epochs = " ".join(f"{one.epoch}@{at(one.start_offset)}" for one in answer.epochs)
        span = f"[{at(answer.log_start_offset)}, {at(answer.log_end_offset)})"
        applied = at(answer.applied_offset)
        self._say(f"{back} log {span}, epochs {epochs or 'none'}, applied {applied}")
        begin = master.replica.answer_hello(follower.name, answer)
        if begin.take_snapshot:
            self._say(f"{there} take a snapshot")
            return
        self._say(f"{there} begin at {at(begin.offset)}")
        cut = self._records(self.nodes[follower.name], Offset(begin.offset))
        follower.replica.begin_following(begin)
        if cut:
            self._say(f"{follower.name}: cuts {' '.join(cut)}")

    def do_lose(self, master: NodeId, follower: NodeId) -> None:
        """The stream breaks."""
        rules = self.nodes[master].world.replica.rules
        if rules is not None:
            rules.on_lost(follower, self.now_ms)
        self.nodes[follower].world.replica.follower.end()

    def do_unreachable(self, master: NodeId, follower: NodeId) -> None:
        """Nobody listens at the follower's address."""
        rules = self.nodes[master].world.replica.rules
        if rules is not None:
            rules.on_unreachable(follower)

    def do_replicate(self, master: NodeId, *followers: NodeId) -> None:
        """What may be sent of the log crosses; it is appended there, and not durable yet."""
        source = self.nodes[master].world.replica
        for name in followers:
            target = self.nodes[name].world.replica
            while (part := source.find_part(name)) is not None:
                span = f"[{at(part.offset)}, {at(part.offset + len(part.batches))})"
                self._say(f"{master} -> {name} log {span}, committed {at(part.high_watermark)}")
                self._deliver(name, partial(target.on_log, part))

    def do_heartbeat(self, master: NodeId, *followers: NodeId, late: str = "0") -> None:
        """The 50 ms sync crosses; `late`: so many ms after it was sent."""
        for name in followers:
            beat = self._heartbeat(master, float(late))
            target = self.nodes[name].world.replica
            self._say(f"{master} -> {name} heartbeat, committed {at(beat.high_watermark)}")
            self._deliver(name, partial(target.on_heartbeat, beat, self.now_ms))

    def _heartbeat(self, master: NodeId, late_ms: float = 0.0) -> SyncBeat:
        node = self.nodes[master]
        return node.world.replica.make_heartbeat(self.now_ms - late_ms, self._clock_of(node))

    def do_ack(self, follower: NodeId, master: NodeId) -> None:
        """The follower says how far it is, and the master hears it."""
        ack = self._ack(follower)
        echo = f", heartbeat of {ack.echo_us // 1_000} ms" if ack.echo_us else ""
        self._say(f"{follower} -> {master} ack {at(ack.flushed_end_offset)}{echo}")
        self._hear(master, follower, ack)

    def _ack(self, follower: NodeId) -> FollowerAck:
        node = self.nodes[follower]
        ack = node.world.replica.acknowledge(self.now_ms, float(self._clock_of(node)))
        ack.is_full = node.is_low
        return ack

    def _hear(self, master: NodeId, follower: NodeId, ack: FollowerAck) -> None:
        node = self.nodes[master]
        node.world.replica.on_ack(follower, ack, self.now_ms, float(self._clock_of(node)))

    def do_round(self, master: NodeId, *followers: NodeId) -> None:
        """Log, write, heartbeat and acknowledgement, twice, so that all know what is committed."""
        source = self.nodes[master]
        for _ in range(2):
            for name in followers:
                target = self.nodes[name].world
                while (part := source.world.replica.find_part(name)) is not None:
                    target.replica.on_log(part)
                target.write(self.now_ms)
                target.replica.on_heartbeat(self._heartbeat(master), self.now_ms)
                self._hear(master, name, self._ack(name))
            self._settle(source)
            for name in followers:
                self._settle(self.nodes[name])

    def do_release(self, master: NodeId, *followers: NodeId) -> None:
        """The last heartbeat of a master that has stepped down releases its lease."""
        closing = self.nodes[master].closing
        if closing is None:
            raise ValueError(f"{master} has not stepped down")
        for name in followers:
            replica = self.nodes[name].world.replica
            replica.on_leases(closing.leases)
            replica.on_heartbeat(closing.last_heartbeat, self.now_ms)
            self._say(f"{master} -> {name} message leases, and the lease is released")

    def do_refuse(self, follower: NodeId, master: NodeId) -> None:
        """A follower says on its stream whom it follows."""
        refused = self.nodes[follower].world.replica.follower.refuse("a later epoch has begun")
        self._say(f"{follower} -> {master} refused: epoch {refused.epoch} is of {refused.master}")
        self.nodes[master].world.replica.on_refused(refused)

    def _deliver(self, name: NodeId, deliver: Callable[[], None]) -> None:
        try:
            deliver()
        except errors.NotFollowed as error:
            self._say(f"{name}: does not take it: {error.message}")

    # -- looking ----------------------------------------------------------------------------------

    def do_log(self, *names: NodeId) -> None:
        """The records of the logs, as far as they are durable."""
        for name in names:
            self._say(f"{name}: {self._log_of(self.nodes[name])}")

    def do_status(self, *names: NodeId) -> None:
        """What nodes are and how far they are; times are what is left, now."""
        for name in names or tuple(node.world.name for node in self._up()):
            node = self.nodes[name]
            self._say(f"{name}: {self._role(node)}, {self._where(node)}{self._times(node)}")

    def _up(self) -> list[_Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def _clock_of(self, node: _Node) -> int:
        return START_MS + int(self.now_ms) + node.clock_ms

    def _role(self, node: _Node) -> str:
        replica = node.world.replica
        return f"{replica.role.value} in epoch {node.world.seen.epoch}"

    def _where(self, node: _Node) -> str:
        shard = node.world.shard
        durable, end = at(shard.log.flushed_end_offset), at(shard.log.end_offset)
        committed, applied = at(shard.committed_offset), at(shard.views.applied_offset)
        return f"end {end}, durable {durable}, committed {committed}, applied {applied}"

    def _times(self, node: _Node) -> str:
        replica = node.world.replica
        if replica.rules is None:
            left_ms = replica.follower.grant_left_ms(Epoch(-1), NO_NODE, self.now_ms)
            return f", granted {left_ms:.0f} ms"
        left_ms = max(0.0, replica.rules.lease.until_ms() - self.now_ms)
        offset_ms = replica.rules.clock.update(self.now_ms)
        clock = "unknown" if offset_ms is None else f"{offset_ms:+.0f} ms"
        union = "".join(sorted(replica.rules.isr.union))
        return f"\n   counting {union}, lease {left_ms:.0f} ms, cluster clock {clock}"

    def _log_of(self, node: _Node) -> str:
        return " ".join(self._records(node, node.world.shard.log.start_offset)) or "an empty log"

    def _records(self, node: _Node, start: Offset) -> list[str]:
        return [_name(one) for one in node.world.shard.log.scan(start, _end(node))]


def _end(node: _Node) -> Offset:
    return node.world.shard.log.flushed_end_offset


def _name(batch: RecordBatch) -> str:
    if batch.header.kind == Kind.EPOCH_START:
        return f"{batch.header.epoch}:start"
    if batch.header.kind == Kind.FEATURE_LEVEL:
        return f"{batch.header.epoch}:level"
    found = _LABEL.search(bytes(batch.payload))
    return f"{batch.header.epoch}:{found[1].decode() if found else '?'}"


def _wait(refused: Refused) -> str:
    return f"; try again in {refused.wait_ms} ms" if refused.wait_ms else ""
