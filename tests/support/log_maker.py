"""Small real logs for whoever reads them: made by a real engine, whose clock is moved by hand.

    made = await make_log(tmp_path / "node-1", seed=7)      # a node's whole data directory
    nodes = replicate(made.directory, 3)                    # node-1, node-2, node-3 side by side

A life of some rounds, each with publishes (bulk batches, singles that share a batch, a producer's
batch sent twice), cancels, moves to other due times and transactions if asked for, time that goes
by in which messages are dispatched, deliveries of which some are acknowledged, some given back
until they are dead letters, and some left alone. After every other round the process ends and
starts again: a new epoch, and a checkpoint. Segments are small. The same seed asks for the same;
which singles share a batch is up to the threads.

`Made` says what was asked for, so that a test need not read the log to know it. Used by the tests
of spark_jobs/: of the reader, of the audit and of the seeded faults. Tests that run many times want
`rounds=1` or 2; a round takes about 0.1 s.
"""

import asyncio
import random
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.errors import UnknownRecurrence
from hourwheel.formats import tag_gene
from hourwheel.formats.committed_batch import of_transaction
from hourwheel.formats.dedup_key import make_dedup_key
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import TRANSACT_ROW, RecordBatch, build_publish
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.outcomes import DedupOutcome
from hourwheel.types import FIRST_SHARD, NodeId, Offset
from node.contracts.broker import Delivery, GroupSettings, IncomingMessages, Selection
from node.contracts.transactions import PreparedPart, PreparedTransaction, Preparing
from node.shard.dispatcher import DispatchConfig
from node.shard.node_meta import NODE_META, open_node_meta
from node.shard.recovery import WATERMARK, ShardConfig
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.commit_log import LogConfig
from storage.log.flushed_mark import FlushedMark
from storage.log.segment import find_start_offset
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import LEAD_MS, EngineWorld, within
from tests.support.eventually import until
from timewheel.wheel import WheelConfig

CLUSTER_ID: Final = bytes(range(16))
"""Of every log that is made here: that of `EngineWorld`."""
TOPICS: Final = ("orders", "reminders", "invoices")
GROUPS: Final = ("billing", "archive")
"""Both receive `orders`; `archive` makes dead letters of what it gives back."""
ORDERED: Final = {"ledger": GroupOrder.BLOCK, "mirror": GroupOrder.DEAD_LETTER}
"""Both read `invoices`, where a life has ordering keys."""
_ROUND_MS: Final = 60_000
_PRODUCER: Final = 4_711
_NAMER: Final = 4_712
"""Publishes what has dedup keys."""
_MEMTABLE_UNITS: Final = 256


@dataclass
class Made:
    """A log, and what was asked of the engine that wrote it."""

    directory: Path
    """The node's data directory. The node is stopped; its last checkpoint is of the log's end."""
    seed: int
    accepted: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Sequence -> (topic, due_ms) of every message that was accepted."""
    bodies: dict[int, bytes] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    """Sequences that were cancelled in time."""
    moved: dict[int, int] = field(default_factory=dict)
    """Sequence -> due time, of messages that were moved in time."""
    prepared: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Transaction -> (topic, body) of each message, of those that are open."""
    void: int = 0
    """Messages of batches that are in the log, and that apply took for duplicates."""
    acknowledged: int = 0
    """Deliveries that were acknowledged, by either group."""
    given_back: int = 0
    end_ms: int = 0
    """The clock at the end."""

    @property
    def released(self) -> set[int]:
        """Sequences of what was released by the end: accepted, due, and not cancelled."""
        return {
            sequence
            for sequence, (_, due_ms) in self.accepted.items()
            if self.moved.get(sequence, due_ms) <= self.end_ms and sequence not in self.cancelled
        }


async def make_log(
    directory: Path,
    *,
    seed: int = 1,
    rounds: int = 4,
    batch_messages: int = 40,
    segment_bytes: int = 32_768,
    node: str = "node-1",
    moves: bool = False,
    deals: bool = False,
    recurs: bool = False,
    dedup: bool = False,
    ordered: bool = False,
) -> Made:
    """Let a node live for some rounds.

    Args:
        directory: of the node's data; it is made.
        seed: of everything random.
        rounds: a round publishes about 7 batches.
        batch_messages: messages of a bulk batch; other sizes follow from it.
        segment_bytes: a new file of the log after so much.
        node: its id.
        moves: whether messages are moved to other due times.
        deals: whether there are transactions.
        recurs: whether messages recur, whose sequences are in no list of `Made`.
        dedup: whether some messages have dedup keys.
        ordered: whether two groups read messages with ordering keys, one by one.
    """
    RealDisk(directory.parent).make_dir(directory.name)
    open_node_meta(RealDisk(directory), NodeId(node), CLUSTER_ID)
    shard = ShardConfig(
        log=LogConfig(segment_bytes=segment_bytes, index_interval_bytes=4_096),
        wheel=WheelConfig(memtable_units_max=_MEMTABLE_UNITS),
        dispatch=DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS),
    )
    life = _Life(Made(directory, seed), random.Random(seed), batch_messages, moves=moves)
    life.deals = deals
    life.recurs = recurs
    life.has_dedup_keys = dedup
    life.has_order = ordered
    async with EngineWorld(directory, shard=shard) as world:
        await life.begin(world)
        for number in range(rounds):
            await life.round(world)
            if number % 2:
                await world.restart()
        life.made.end_ms = world.now_ms
    return life.made


class _Life:
    def __init__(self, made: Made, rng: random.Random, batch_messages: int, *, moves: bool) -> None:
        self.made, self._rng, self._size = made, rng, batch_messages
        self._sent, self._moves = 0, moves
        self.recurs = False
        self._mover = random.Random(f"moves {made.seed}")
        self.deals = False
        self._dealer = random.Random(f"deals {made.seed}")
        self._open: list[PreparedTransaction] = []
        self._namer = random.Random(f"names {made.seed}")
        self.has_dedup_keys = False
        self._named = 0
        self.has_order = False
        self._pupil = random.Random(f"order {made.seed}")

    async def begin(self, world: EngineWorld) -> None:
        for count, topic in enumerate(TOPICS, 1):
            await within(world.engine.create_topic(topic, count))
        settings = GroupSettings(attempts_max=3, retry_delay_ms=5_000)
        await within(world.engine.put_group(GROUPS[0], settings))
        await within(world.engine.put_group(GROUPS[1], GroupSettings(attempts_max=1)))
        for group in GROUPS:
            await world.receive(group=group)  # subscribes
        for name, order in ORDERED.items() if self.has_order else ():
            settings = GroupSettings(attempts_max=2, retry_delay_ms=5_000, order=order)
            await within(world.engine.put_group(name, settings))
            await world.receive(group=name, topic=TOPICS[2])

    async def round(self, world: EngineWorld) -> None:
        for topic in TOPICS:
            await self._bulk(world, topic, self._rng.randrange(1, 2 * self._size))
        await self._singles(world)
        await self._twice(world)
        await self._cancel(world)
        await self._cancel_by_key(world)
        if self._moves:
            await self._move(world)
        if self.deals:
            await self._deal(world)
        if self.recurs:
            await self._recur(world)
        if self.has_dedup_keys:
            await self._publish_unique(world)
        if self.has_order:
            await self._publish_in_order(world)
        for _ in range(3):
            world.advance(_ROUND_MS // 3)
            await until(lambda: not _is_due(world))
            await self._consume(world)
            for group in ORDERED if self.has_order else ():
                await self._consume_in_order(world, group)

    def _due_ms(self, now_ms: int) -> int:
        """Past, soon, this round, this hour, next month."""
        spans = (-5_000, 50, _ROUND_MS, 3_600_000, 30 * 86_400_000)
        (ahead,) = self._rng.choices(spans, (10, 5, 65, 15, 5))
        return now_ms + (self._rng.randrange(ahead) if ahead > 0 else -self._rng.randrange(-ahead))

    def _body(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 20, 200)))

    def _accept(self, base: int, topic: str, due_ms: list[int], bodies: list[bytes]) -> None:
        for sequence, (due, body) in enumerate(zip(due_ms, bodies, strict=True), base):
            self.made.accepted[sequence] = (topic, due)
            self.made.bodies[sequence] = body

    async def _bulk(self, world: EngineWorld, topic: str, count: int) -> None:
        due_ms = [self._due_ms(world.now_ms) for _ in range(count)]
        bodies = [self._body() for _ in range(count)]
        metas = [
            encode(MessageMeta(tags=(self._rng.choice(("paid", "open")),), keys=(f"key-{one}",)))
            for one in range(count)
        ]
        raw = build_publish(
            due_ms,
            bodies,
            metas=[one.raw for one in metas],
            tag_genes=[one.tag_gene for one in metas],
            key_hashes=[one.key_hash for one in metas],
            gene_kind=tag_gene.GENE_SPARSE,
        )
        found = await within(world.engine.publish_batch(topic, RecordBatch(raw)))
        self._accept(found.base_sequence, topic, due_ms, bodies)

    async def _publish_in_order(self, world: EngineWorld) -> None:
        """A batch whose messages share few ordering keys; one more key is used once."""
        rng = self._pupil
        due_ms = [self._round_due_ms(rng, world.now_ms) for _ in range(12)]
        bodies = [rng.randbytes(9) for _ in due_ms]
        names = [rng.choice(("a", "b", "c", f"own-{rng.random()}")) for _ in due_ms]
        metas = [encode(MessageMeta(ordering_key=name)) for name in names]
        raw = build_publish(
            *(due_ms, bodies),
            metas=[one.raw for one in metas],
            key_hashes=[one.key_hash for one in metas],
        )
        found = await within(world.engine.publish_batch(TOPICS[2], RecordBatch(raw)))
        self._accept(found.base_sequence, TOPICS[2], due_ms, bodies)

    async def _consume_in_order(self, world: EngineWorld, group: str) -> None:
        """Most are acknowledged, of which the next ones come; what is left ends with its lease."""
        for _ in range(40):
            found = await world.receive(
                topic=TOPICS[2], group=group, count=16, invisible_ms=2 * _ROUND_MS
            )
            if found is None:
                return
            fates = [self._pupil.random() for _ in found.units]
            acks = [at for at, fate in enumerate(fates) if fate < 0.8]
            nacks = [at for at, fate in enumerate(fates) if fate > 0.85]
            if acks:
                await world.ack(*_selections(world, found, acks), group=group)
            if nacks:
                chosen = _selections(world, found, nacks)
                await world.nack(*chosen, delay_ms=1_000, group=group)

    async def _publish_unique(self, world: EngineWorld) -> None:
        """Batches whose messages share few dedup keys, within a batch and among rounds."""
        rng = self._namer
        spans = (-5_000, 7_000, 27_000, 127_000, 3_607_000)
        for _ in range(3):
            due_ms = [world.now_ms + rng.choice(spans) + rng.randrange(50) for _ in range(8)]
            bodies = [rng.randbytes(9) for _ in due_ms]
            names = [(f"name-{rng.randrange(6)}", rng.randrange(4)) for _ in due_ms]
            keys = [make_dedup_key(name if one else "", one) for name, one in names]
            raw = build_publish(
                due_ms, bodies, dedup=keys, producer_id=_NAMER, producer_sequence=self._named
            )
            self._named += len(due_ms)
            found = await within(world.engine.publish_batch(TOPICS[1], RecordBatch(raw)))
            self._accept(found.base_sequence, TOPICS[1], due_ms, bodies)
            if found.deduped is None:
                continue
            for ordinal, outcome, other in zip(
                *(one.tolist() for one in found.deduped), strict=True
            ):
                if outcome == DedupOutcome.REPLACED:
                    self.made.cancelled.add(other[2])
                else:
                    del self.made.accepted[found.base_sequence + ordinal]
                    self.made.void += 1

    async def _singles(self, world: EngineWorld) -> None:
        """Messages of several callers, which the node may merge into one batch."""

        async def one(due_ms: int, body: bytes) -> None:
            incoming = IncomingMessages("orders", [due_ms], [body], [b""], [0], [0])
            ((text, *_),) = await within(world.engine.publish_messages(incoming))
            self._accept(int(str(text)[16:32], 16), "orders", [due_ms], [body])

        wanted = [(self._due_ms(world.now_ms), self._body()) for _ in range(8)]
        await asyncio.gather(*(one(*each) for each in wanted))

    async def _twice(self, world: EngineWorld) -> None:
        """A producer's batch, sent again before the first was answered: both are in the log."""
        count = 5
        due_ms = [self._due_ms(world.now_ms) for _ in range(count)]
        bodies = [self._body() for _ in range(count)]
        raw = build_publish(
            due_ms, bodies, producer_id=_PRODUCER, producer_sequence=self._sent * count
        )
        self._sent += 1
        before = world.engine.status().published_count
        first, second = await asyncio.gather(
            *(within(world.engine.publish_batch("orders", RecordBatch(raw))) for _ in range(2))
        )
        assert first.base_sequence == second.base_sequence
        self._accept(first.base_sequence, "orders", due_ms, bodies)
        self.made.void += world.engine.status().published_count - before - count

    async def _cancel(self, world: EngineWorld) -> None:
        epoch = world.mastership.epoch
        choice = [
            (sequence, due_ms)
            for sequence, (_, due_ms) in self.made.accepted.items()
            if self._rng.random() < 0.1
        ]
        ids = np.array([(0, epoch, *one) for one in choice], ID_DTYPE)
        outcomes = await within(world.engine.cancel(ids))
        # Ids of earlier epochs are unknown by this one: such a cancel is in the log, and void.
        self.made.cancelled |= {
            sequence
            for (sequence, _), outcome in zip(choice, outcomes, strict=True)
            if outcome == 1
        }

    async def _cancel_by_key(self, world: EngineWorld) -> None:
        """In the log they are cancels as others."""
        accepted = np.array(sorted(self.made.accepted), np.uint64)
        tombstones = world.engine.shard.views.tombstones
        before = tombstones.contains(accepted)
        keys = [b"key-0", b"key-1", b"none"]
        found = [await within(world.engine.cancel_keys(topic, keys)) for topic in TOPICS]
        done = accepted[tombstones.contains(accepted) & ~before].tolist()
        assert sum(int(one.cancelled_counts.sum()) for one in found) == len(done)
        self.made.cancelled |= set(done)

    async def _move(self, world: EngineWorld) -> None:
        """Some of them twice in a call, some back to where they were in the next round."""
        epoch, rng = world.mastership.epoch, self._mover
        choice = [one for one in self.made.accepted if rng.random() < 0.06]
        choice += choice[: len(choice) // 4]
        # None within the dispatch lead of an instant at which a round's clock stands.
        spans = (-1_000, 0, 7_000, 127_000, 3_607_000, 40 * 86_400_000 + 7_000)
        due_ms = [max(0, world.now_ms + rng.choice(spans) + rng.randrange(50)) for _ in choice]
        due_ms = [
            self.made.accepted[one][1] if rng.random() < 0.3 else at
            for one, at in zip(choice, due_ms, strict=True)
        ]
        if not choice:
            return
        ids = np.array([(0, epoch, one, self.made.accepted[one][1]) for one in choice], ID_DTYPE)
        times = np.array(due_ms, np.int64)
        found = await within(world.engine.reschedule(ids, times, are_delays=False))
        for sequence, (outcome, moved_ms) in zip(choice, found.tolist(), strict=True):
            if outcome == 1:
                self.made.moved[sequence] = moved_ms

    async def _deal(self, world: EngineWorld) -> None:
        """Transactions that are committed, rolled back, checked, and open until the next round."""
        rng, port = self._dealer, world.engine.transactions
        for _ in range(4):
            await self._prepare(world)
        for one in [one for one in self._open if rng.random() < 0.7]:
            self._open.remove(one)
            of, is_commit = one.transaction_id, rng.random() < 0.7
            ends = [port.end_transaction(of, (), is_commit=is_commit) for _ in range(2)]
            ended, again = await asyncio.gather(*map(within, ends))
            assert ended.messages == again.messages
            accepted = self.made.prepared.pop(str(of))
            for (text, due_ms), (topic, body) in zip(ended.messages, accepted, strict=False):
                self.made.accepted[int(text[16:32], 16)] = (topic, due_ms)
                self.made.bodies[int(text[16:32], 16)] = body
            if rng.random() < 0.5:  # what no service of ours appends, and apply refuses
                await self._append_late(world, of.offset)

    async def _append_late(self, world: EngineWorld, offset: int) -> None:
        """Ends of a transaction that is decided."""
        rows = np.array([(offset, Step.EXPIRE, 0), (offset + 8, Step.CHECK, 0)], TRANSACT_ROW)
        world.mastership.transact(rows, world.now_ms, None)
        due_ms, queues = np.array([world.now_ms]), np.array([1 << 8], np.uint32)
        batch = of_transaction(build_publish([0], [b"late"]), offset)
        world.mastership.publish(batch, due_ms, queues, world.now_ms, None)
        world.engine.group_commit.wake()
        await until(lambda: world.engine.shard.views.applied_offset == _end(world))

    async def _prepare(self, world: EngineWorld) -> None:
        rng = self._dealer
        parts, accepted, delays = [], [], []
        for topic in TOPICS[: rng.randrange(1, 3)]:
            due_ms = [self._round_due_ms(rng, world.now_ms) for _ in range(rng.randrange(1, 4))]
            bodies = [rng.randbytes(rng.choice((0, 1, 20, 200))) for _ in due_ms]
            metas = [encode(MessageMeta(keys=("dealt",))) for _ in due_ms]
            raw, hashes = [one.raw for one in metas], [one.key_hash for one in metas]
            parts.append(PreparedPart(topic, due_ms, bodies, raw, [0] * len(due_ms), hashes))
            accepted += [(topic, body) for body in bodies]
            delays += [rng.choice((-1, 7_000)) for _ in due_ms]
        preparing = Preparing("tills", parts, delays, rng.randbytes(16))
        one = await within(world.engine.transactions.prepare(preparing))
        again = await within(world.engine.transactions.prepare(preparing))
        assert one.transaction_id == again.transaction_id
        self._open.append(one)
        self.made.prepared[str(one.transaction_id)] = accepted

    @staticmethod
    def _round_due_ms(rng: random.Random, now_ms: int) -> int:
        # None within the dispatch lead of an instant at which a round's clock stands.
        return now_ms + rng.choice((-1_000, 7_000, 127_000, 3_607_000)) + rng.randrange(50)

    async def _recur(self, world: EngineWorld) -> None:
        """Some are made, some changed, paused, resumed or deleted."""
        ask, rng = world.engine.recurring, self._mover
        for name in ("a", "b", "c"):
            what = rng.choice(("put", "put", "pause", "resume", "delete", "leave"))
            config = RecurrenceConfig(
                topic="orders", every_ms=rng.choice((5_000, 21_000)), missed=1, body=b"again"
            )
            config.count_max = rng.choice((0, 0, 3))
            with suppress(UnknownRecurrence):
                if what == "put":
                    await within(ask.put(config, name, None))
                elif what == "delete":
                    await within(ask.delete("orders", name))
                elif what != "leave":
                    await within(ask.set_paused("orders", name, is_paused=what == "pause"))

    async def _consume(self, world: EngineWorld) -> None:
        for group in GROUPS:
            while True:
                found = await world.receive(group=group, count=16, invisible_ms=3_600_000)
                if found is None:
                    break
                await self._resolve(world, group, found)

    async def _resolve(self, world: EngineWorld, group: str, found: Delivery) -> None:
        size = len(found.units)
        acks = [one for one in range(size) if self._rng.random() < 0.7]
        nacks = [one for one in range(size) if one not in acks and self._rng.random() < 0.8]
        if acks:
            await world.ack(*_selections(world, found, acks), group=group)
        if nacks:
            chosen = _selections(world, found, nacks)
            await world.nack(*chosen, delay_ms=self._rng.choice((None, 1_000)), group=group)
        self.made.acknowledged += len(acks)
        self.made.given_back += len(nacks)


def _selections(world: EngineWorld, found: Delivery, ordinals: list[int]) -> list[Selection]:
    return [world.select(found, one, 1) for one in ordinals]


def _end(world: EngineWorld) -> int:
    return int(world.engine.shard.log.end_offset)


def _is_due(world: EngineWorld) -> bool:
    status = world.engine.status()
    is_behind = status.applied_offset < status.log_end_offset
    return is_behind or 0 < status.next_due_ms <= world.now_ms


def replicate(directory: Path, count: int = 3, *, name: str = "node") -> list[Path]:
    """Copies of a stopped node's directory beside it, as nodes of a cluster would have them.

    `directory` becomes the first of them: `<name>-1`, whatever it was called. Each has its own id
    and a high watermark at the log's end. To let one lag behind, cut its log with `cut_log`.
    """
    places = [directory.parent / f"{name}-{number}" for number in range(1, count + 1)]
    if directory != places[0]:
        directory.rename(places[0])
    for place in places[1:]:
        shutil.copytree(places[0], place)
    for place in places:
        set_node_id(place, place.name)
        set_high_watermark(place, log_end(place))
    return places


def set_node_id(directory: Path, node: str, cluster_id: bytes = CLUSTER_ID) -> None:
    """Write node.meta."""
    header = pack_file_header(FileType.NODE, Identity(cluster_id, FIRST_SHARD))
    atomic_file.write(RealDisk(directory), NODE_META, header, node.encode())


def set_high_watermark(directory: Path, offset: int) -> None:
    """Make a high watermark file that says `offset`."""
    identity = Identity(CLUSTER_ID, FIRST_SHARD)
    path = f"shard-0/{WATERMARK}"
    mark = FlushedMark.open(RealDisk(directory), path, identity, FileType.HIGH_WATERMARK)
    mark.lower(Offset(offset))
    mark.close()


def segments(directory: Path) -> list[Path]:
    """The files of a node's log, oldest first."""
    return sorted((directory / "shard-0" / "log").glob("*.log"))


def log_end(directory: Path) -> int:
    """Where the log ends, by its last file's size."""
    last = segments(directory)[-1]
    start = find_start_offset(last.name)
    assert start is not None
    return int(start) + last.stat().st_size - 64
