"""Flipped bits in the files of a simulated node, and what the node does about them.

The node's part is the real one, as node/broker/engine.py and node/cluster/member.py put it
together, on a loop of the simulation; here are the calls between nodes, and the thread on which
files change.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hourwheel.internal.v1.replication_pb2 import FetchLogRequest, FetchMessagesRequest
from hourwheel.types import NodeId, Offset
from node.repair.damage_control import DamageControl, Pace
from node.repair.file_repair import FileRepair
from node.repair.peer_reads import PeerReads
from node.repair.peers import Peers
from node.repair.view_repair import ViewRepair
from node.repair.view_scrub import BadMessages, ViewScrub
from node.replica.mastership import Mastership
from node.shard.view_check import find_names
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from storage.files.file_header import FILE_HEADER_BYTES
from storage.queues.queue_chunk import ENTRIES_AT
from tests.sim.event_loop import SimLoop
from tests.support.shard_world import IDENTITY

if TYPE_CHECKING:
    from tests.sim.cluster_node import SimNode

_PACE = Pace(again_s_min=0.02, again_s_max=1.0, files_s=0.1)
_APART_BYTES = 4_096
"""Two replicas are not damaged nearer to each other than this: somebody has the bytes."""
_TURN_TAKEN_MS = 5.0
_MEND_AGAIN_S = 0.1
_MEND_ATTEMPTS = 6


class Flip(NamedTuple):
    """A flipped bit of the log, or of a delay log (`offset` is None)."""

    path: str
    position: int
    bit: int
    raw: int
    """The byte as it is now."""
    offset: int | None


class _Refusal:
    """What a handler of gRPC needs to refuse."""

    async def abort_with_status(self, status: Any) -> None:
        raise _Refused(status)


class _Refused(Exception):
    """A call is answered with an error."""


class NodeDamage:
    """One life of a node: finds, fetches, repairs. The network carries what peers say."""

    def __init__(self, node: "SimNode") -> None:
        self.node = node
        self.stats = EngineStats()
        self._mending: set[int] = set()
        """Offsets that are worked on."""
        self.loop = SimLoop(node)  # type: ignore[abstract]
        self.loop.run_here(self._open)

    def _open(self) -> None:
        node = self.node
        self.failure = Failure()
        self.files = FileRepair(node.place, node.shard, self.stats, self._aside, self._wake_writer)
        self.files.delay_log_bytes = node.maintenance.delay_log_bytes
        self.control = DamageControl(
            node.shard,
            self.files,
            self.stats,
            self.failure,
            wake=lambda _: None,
            pace=_PACE,
        )
        self.view_repair = ViewRepair(
            *(node.shard, node.epochs, self.failure),
            save_soon=self._save_soon,
            fail=node.on_view_damage,
            give_up=None,
        )
        self.files.peers = Peers(self, IDENTITY, self._others)
        self.reads = PeerReads(node.shard, IDENTITY).handlers()

    def _wake_writer(self) -> None:
        self.node.later(0, self.node.begin_write)

    def _save_soon(self) -> None:
        self.node.is_save_asked = True

    def _others(self) -> list[NodeId]:
        isr = self.node.replica.assignment.isr
        others = [one for one in self.node.cluster.names if one != self.node.name]
        return sorted(others, key=lambda one: one not in isr)

    def attend(self, mastership: Mastership) -> None:
        """The node serves: see to what it cannot read."""
        self.control.serve(mastership, lambda *_: self.loop.create_future())

    def take_found(self) -> None:
        """The receiver came by something that it cannot read."""
        mastership = self.node.replica.mastership
        if mastership is not None and mastership.receiver.corrupt:
            self.loop.run_here(lambda: self.control.take_found(self.node.cluster_ms()))

    def scrub_views(self) -> None:
        """Look through all views and delay logs at once, as node/repair/scrubber.py does slowly."""
        node = self.node
        scrub = ViewScrub(node.disk, node.place.directory, IDENTITY, node.shard.log)
        manifest = node.maintenance.manifest
        messages: list[BadMessages] = []
        while scrub.run(1 << 20, manifest) is not None:
            messages += scrub.messages
            scrub.messages.clear()
        scrub.close()
        for error in scrub.damaged:
            if node.is_up:
                self.view_repair.on_damage(error)
        for found in messages if node.is_up else ():
            self.loop.run_here(partial(self.control.take_scrubbed, *found, node.cluster_ms()))

    def on_log_damage(self, offset: int) -> None:
        """The log is damaged where the scrubber, or who sends it to a follower, has come by."""

        if offset not in self._mending:
            self._mending.add(offset)
            self.loop.begin(self._mend(offset))

    async def _mend(self, offset: int) -> None:
        """As node/cluster/log_repair.py; where nobody has the batches, another node should lead."""
        node, wait_s = self.node, _MEND_AGAIN_S
        with self.failure.catching():
            for _ in range(_MEND_ATTEMPTS):
                if await self.files.mend_at(Offset(offset)):
                    break
                await self.loop.pause(wait_s)
                wait_s *= 2
            else:
                master = node.replica.rules
                if master is not None:
                    node.note(f"cannot repair its log at {offset}")
                    node.control_link.resigned_epoch = master.start.epoch
        self._mending.discard(offset)

    @property
    def is_healed(self) -> bool:
        """Nothing is withheld."""
        mastership = self.node.replica.mastership
        has_found = mastership is not None and bool(mastership.receiver.corrupt)
        return not len(self.control.damaged) and not has_found

    def check(self) -> None:
        """The tasks did not fail."""
        assert not self.failure.found.done(), f"damage: {self.failure.found.result()!r}"
        assert not self.loop.failures, f"damage: {self.loop.failures}"

    # -- the thread on which files are removed ----------------------------------------------------

    def _aside(self, work: Callable[[Callable[[], None]], Any]) -> Awaitable[Any]:
        future = self.loop.create_future()
        self._take_turn(lambda: self.loop.do(future, work, lambda: None))
        return future

    def _take_turn(self, work: Callable[[], None]) -> None:
        node, random = self.node, self.node.cluster.events.random
        if node.job is not None:
            node.later(_TURN_TAKEN_MS, lambda: self._take_turn(work))
            return
        node.later(
            random.uniform(0.1, 10), lambda: work() if node.job is None else self._take_turn(work)
        )

    # -- calls ------------------------------------------------------------------------------------

    def fetch_messages(self, node: NodeId, request: FetchMessagesRequest) -> Any:
        """See node.repair.peers.PeerCalls."""
        return self._call(node, "FetchMessages", request)

    def fetch_log(self, node: NodeId, request: FetchLogRequest) -> Any:
        """See node.repair.peers.PeerCalls."""
        return self._call(node, "FetchLog", request)

    def _call(self, name: NodeId, method: str, request: Any) -> Any:
        """The question and the answer may be lost."""
        me, future = self.node, self.loop.create_future()
        network, other = me.cluster.network, me.cluster.nodes[name]

        def answer(response: Any) -> None:
            network.call(name, me.name, lambda: me.later(0, lambda: self._tell(future, response)))

        def serve() -> None:
            other.damage.serve(method, request, answer)

        network.call(me.name, name, lambda: other.later(0, serve))
        return future

    def _tell(self, future: Any, response: Any) -> None:
        if not future.done():
            future.set_result(response)

    def serve(self, method: str, request: Any, answer: Callable[[Any], None]) -> None:
        """A peer asks."""

        async def run() -> None:
            handle: Any = self.reads[method].unary_unary
            try:
                answer(await handle(request, _Refusal()))
            except _Refused:
                return  # who asks waits in vain, which comes to the same

        self.loop.begin(run())


class Flips:
    """The bits that were flipped on one node's disk."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._found: list[Flip] = []
        self._views: dict[Flip, object] = {}
        """Those in views, and the file that each is in: another may get its name."""
        self.count = 0

    @property
    def offsets(self) -> list[int]:
        """Of the log, where bits were flipped."""
        return [one.offset for one in self._found if one.offset is not None]

    @property
    def are_in_views(self) -> bool:
        """Views were damaged, and nobody has put them right since."""
        return bool(self._views)

    def flip_log(self, offset: int, bit: int) -> None:
        """In a byte of the log, below what is applied."""
        path, position = self._node.shard.log.locate(Offset(offset))
        self._flip(path, position, bit, offset)

    def flip_delay_log(self, number: int, bit: int) -> bool:
        """In one of the delay logs, if there is any."""
        node = self._node
        folder = node.place.under("wheel")
        names = [one for one in node.disk.list(folder) if one.endswith(".dlog")]
        if not names:
            return False
        path = f"{folder}/{names[number % len(names)]}"
        size = node.disk.open(path).size() - FILE_HEADER_BYTES
        if size <= 0:
            return False
        self._flip(path, FILE_HEADER_BYTES + number % size, bit, None)
        return True

    def _flip(self, path: str, position: int, bit: int, offset: int | None) -> None:
        disk = self._node.disk
        if any(one.path == path and one.position == position for one in self._found):
            return  # one bit a byte: so each can be told from what is right
        disk.flip_bit(path, position, bit)
        raw = disk.open(path).pread(1, position)[0]
        self._found.append(Flip(path, position, bit, raw, offset))
        self.count += 1
        self._node.note(f"a bit flips in {path} at {position}, offset {offset}")

    def flip_view(self, kind: str, number: int, bit: int) -> bool:
        """In one of the files of the views that end so, if there is any."""
        node = self._node
        directory, manifest = node.place.directory, node.maintenance.manifest
        found = find_names(node.disk, directory, manifest)
        names = [
            one for one in found if one.endswith(kind) and node.disk.exists(f"{directory}/{one}")
        ]
        if not names:
            return False
        path = f"{directory}/{names[number % len(names)]}"
        size = node.disk.open(path).size()
        position = number // 7 % size
        if kind == ".cq" and FILE_HEADER_BYTES <= position < ENTRIES_AT:
            position += ENTRIES_AT - FILE_HEADER_BYTES  # seals take turns
        before = len(self._found)
        self._flip(path, position, bit, None)
        for one in self._found[before:]:
            self._views[one] = node.disk.inode_of(path)
        return True

    def undo_views(self, end: str = "") -> None:
        """Put views right again whose path ends so: in the file that was damaged, and no other."""
        disk, kept = self._node.disk, list[Flip]()
        for one in self._found:
            inode = self._views.get(one) if one.path.endswith(end) else None
            if inode is None:
                kept.append(one)
            else:
                del self._views[one]
                if disk.exists(one.path) and disk.inode_of(one.path) is inode:
                    self._put_right(one)
        self._found = kept

    def is_free(self, offset: int) -> bool:
        """Whether no other replica is damaged near there."""
        return all(abs(one - offset) > _APART_BYTES for one in self.offsets)

    def seen_through(self, raw: bytes, from_: int, right: bytes | bytearray) -> bytes:
        """A piece of the log as it would be without the flips, where it is `right`."""
        if not self._found:
            return raw
        mended = bytearray(raw)
        for one in self._found:
            at = -1 if one.offset is None else one.offset - from_
            if 0 <= at < min(len(raw), len(right)) and raw[at] == right[at] ^ 1 << one.bit:
                mended[at] = right[at]
        return bytes(mended)

    def undo(self, from_: int = 0, *, with_delay_logs: bool = True) -> None:
        """Somebody puts the medium right again: in the log from an offset on."""
        kept = []
        for one in self._found:
            stays = not with_delay_logs if one.offset is None else one.offset < from_
            stays |= one in self._views
            if stays:
                kept.append(one)
            elif self._node.disk.exists(one.path):
                self._put_right(one)
        self._found = kept

    def undo_at_start(self) -> None:
        """In delay logs, whose numbers may come again, and where the log's end is looked for."""
        disk, folder = self._node.disk, self._node.place.under("log")
        last = max(disk.list(folder)) if disk.exists(folder) and disk.list(folder) else ""
        in_last = [one.offset for one in self._found if one.path.endswith(last) and one.offset]
        self.undo(min(in_last, default=1 << 62))

    def _put_right(self, one: Flip) -> None:
        """Where it is still as the flip left it: a repaired file, or another log, is let alone."""
        disk = self._node.disk
        if disk.open(one.path).pread(1, one.position) == bytes([one.raw]):
            disk.flip_bit(one.path, one.position, one.bit)

    def forget(self) -> None:
        """The disk is another one."""
        self._found.clear()
        self._views.clear()
