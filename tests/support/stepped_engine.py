"""A real engine in an event loop without threads and without real time: each life can be replayed.

The clock moves at *each* reading, by what a test says: what is decided by two readings in one turn
goes wrong here. Timers, long polls' waits included, run when that clock has reached them.

    engine = SteppedEngine(moves=[0, 3, 1])
    poll = engine.begin(engine.receive(wait_ms=60_000))
    engine.call(engine.publish(5))
    engine.settle()
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import cycle
from typing import Any, Final, Self, TypeVar
from unittest import mock

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.receipt import Receipt
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import FIRST_SHARD
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.master_service import MasterService
from node.broker.settings import EngineConfig
from node.cluster.standalone import elected
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from node.contracts.broker import (
    Delivery,
    PublishedBatchResult,
    ReceiveParams,
    Selection,
)
from node.contracts.ending import Attempt, Ending
from node.contracts.receive_stream import Push, ReceiveStream
from node.replica.mastership import Mastership
from node.shard.checkpoint import ShardPlace
from node.shard.dispatcher import DispatchConfig
from node.shard.recovery import ShardConfig, open_shard
from node.telemetry.failure import Failure
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.lone_engine import GivenTime, make_alone

START_MS: Final = 1_800_000_000_000
LEAD_MS: Final = 20
TOPICS: Final = ("orders", "bills")
"""They are there from the beginning."""
_CLUSTER_ID: Final = bytes(range(16))
_SHARD: Final = ShardConfig(dispatch=DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS))
_STEPS_MAX: Final = 10_000
MOVES_MAX: Final = 40
"""The clock moves at so many readings in one `settle`: else it would never come to rest."""

Answer = TypeVar("Answer")


class _Loop(asyncio.SelectorEventLoop):
    """One whose time is given, and whose threads are calls."""

    def __init__(self, read_s: Callable[[], float]) -> None:
        super().__init__()
        self._read_s = read_s
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._read_s()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Answer], *args: Any
    ) -> "asyncio.Future[Answer]":
        done: asyncio.Future[Answer] = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - as a thread hands it on
            done.set_exception(error)
        return done

    @property
    def is_idle(self) -> bool:
        """Nothing is to be called before time goes on."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        due_s = self.time() + self._clock_resolution
        return not ready and not any(one.when() < due_s and not one.cancelled() for one in timers)


class _Timer:
    """As node.broker.precise_timer's, by the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._handle: asyncio.TimerHandle | None = None

    def set_in(self, delay_ms: float) -> None:
        self.clear()
        self._handle = self._loop.call_later(max(0.0, delay_ms) / 1000, self._callback)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    close = clear


class Lapses:
    """A lease that a test takes away and gives back: no lease lasts beyond the end of time."""

    is_lapsed = False

    def monotonic_ms(self) -> float:
        return float("inf") if self.is_lapsed else 0.0


class SteppedEngine:
    """See the top of this file."""

    def __init__(
        self, moves: Sequence[int] = (0,), answer_bytes: int = 128 << 20, answer_bytes_min: int = 1
    ) -> None:
        """`moves`: by how much the clock moves at each reading, again and again.

        The others: see `AnswerBudget`.
        """
        self._answers = AnswerBudget(answer_bytes, answer_bytes_min=answer_bytes_min)
        self.now_ms = START_MS
        self._moves, self._moves_left = cycle(moves), MOVES_MAX
        self.loop = _Loop(lambda: (self.now_ms - START_MS) / 1_000)
        self.failure: Failure
        self.gate = Lapses()
        self.engine = self.loop.run_until_complete(self._open())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> int:
        """What the engine reads: the clock moves on meanwhile."""
        now_ms = self.now_ms
        if self._moves_left:
            self._moves_left -= 1
            self.now_ms += next(self._moves)
        return now_ms

    async def _open(self) -> Engine:
        disk = SimulatedDisk()
        self.failure = Failure()
        place = ShardPlace(disk, "shard-0", Identity(_CLUSTER_ID, FIRST_SHARD))
        self.opened = open_shard(place, _SHARD)
        with (
            mock.patch("node.broker.engine.make_timer", _Timer),
            mock.patch("node.broker.engine.AnswerBudget", return_value=self._answers),
            mock.patch(
                "node.consumers.loop_share.REST_S_MAX", 0.0
            ),  # nothing happens only as time passes
        ):
            lone = make_alone(
                self.opened,
                EngineConfig(),
                GivenTime(
                    self._read,
                    lambda at_ms: float(at_ms - self.now_ms),  # by the timer's own clock
                    self.gate.monotonic_ms,
                ),
                DiskGuard(disk, free_bytes_min=0, reserve_bytes=0),
                self.failure,
            )
            engine, self.member = lone.engine, lone.member
            await lone.serve()
        for topic in TOPICS:
            await engine.create_topic(topic, 1)
        return engine

    def close(self) -> None:
        """End it."""
        self.gate.is_lapsed = False
        self.loop.run_until_complete(self.member.close())
        self.loop.run_until_complete(self.engine.close())
        self.settle()
        self.loop.close()

    @property
    def service(self) -> MasterService:
        """What it does as master."""
        assert self.engine.service is not None
        return self.engine.service

    @property
    def mastership(self) -> Mastership:
        """Its present one."""
        return self.service.mastership

    def step_down(self) -> None:
        """End the mastership: somebody else is master from now on."""
        self.member.replica.step_down("a test says so")
        self.member.perform()

    def transfer(self) -> None:
        """Step down, and become the next master with what the former one left."""
        table = self.mastership.receiver.table().SerializeToString()
        self.step_down()
        self.member.replica.on_leases(LeaseTable.FromString(table))
        self.become_master()
        self.settle()

    def become_master(self) -> None:
        """Begin to take over again, in the next epoch."""
        replica = self.member.replica
        self.member.on_state(elected(self.opened, replica.identity, replica.assignment.epoch))

    # -- steps ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything happen that can happen without more time passing than readings take."""
        self._moves_left = MOVES_MAX
        for _ in range(_STEPS_MAX):
            if self.loop.is_idle:
                break
            self.loop.run_until_complete(asyncio.sleep(0))
        else:
            raise AssertionError("the engine never comes to rest")
        if self.failure.found.done():
            raise self.failure.found.result()

    def advance(self, by_ms: int) -> None:
        """Time passes, and what it brings happens."""
        self.now_ms += by_ms
        self.settle()

    def begin(self, work: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        """Let a call begin; it may wait."""
        return self.loop.create_task(work)

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """A call that needs no time to pass."""
        return self.loop.run_until_complete(work)

    # -- calls ------------------------------------------------------------------------------------

    async def publish(
        self, *delays_ms: int, topic: str = "orders", tag: str = "a"
    ) -> PublishedBatchResult:
        """One batch; all of them with one tag."""
        meta = encode(MessageMeta(tags=(tag,)))
        count = len(delays_ms)
        raw = build_publish(
            [self.now_ms + delay for delay in delays_ms],
            [tag.encode()] * count,
            metas=[meta.raw] * count,
            tag_genes=[meta.tag_gene] * count,
            gene_spec=DEFAULT_SPEC.number,
        )
        return await self.engine.publish_batch(topic, RecordBatch(raw))

    async def receive(
        self,
        *,
        group: str = "billing",
        topic: str = "orders",
        count: int = 32,
        wait_ms: int = 0,
        invisible_ms: int = 0,
        wanted: str | None = None,
        attempt: Attempt | None = None,
        held: HeldAnswer | None = None,
        overhead_bytes: int = 0,
    ) -> Delivery | None:
        """Lease messages. `wanted`: a filter by tags."""
        expression = None if wanted is None else FilterExpression.tags(wanted)
        return await self.engine.receive(
            ReceiveParams(
                *(group, topic, count, 1 << 20, wait_ms, invisible_ms, expression, attempt, held),
                overhead_bytes=overhead_bytes,
            )
        )

    async def receive_stream(
        self,
        stream: ReceiveStream,
        send: Callable[[Delivery, HeldAnswer], None],
        *,
        group: str = "billing",
        topic: str = "orders",
        count: int = 32,
        invisible_ms: int = 0,
        wanted: str | None = None,
    ) -> None:
        """Have messages pushed. `wanted`: a filter by tags."""
        expression = None if wanted is None else FilterExpression.tags(wanted)
        params = ReceiveParams(group, topic, count, 1 << 20, 0, invisible_ms, expression)
        await self.engine.receive_stream(params, Push(stream, send))

    async def resolve(
        self,
        delivery: Delivery,
        group: str,
        *,
        is_ack: bool,
        retry_delay_ms: int | None = None,
        is_unbegun: bool = False,
    ) -> list[ReceiptOutcome]:
        """Acknowledge all of a delivery, or give it back."""
        count = len(delivery.units)
        receipt = Receipt(
            cluster=self.engine.shard.cluster,
            epoch=delivery.epoch,
            group_id=delivery.group_id,
            topic_queue=delivery.topic_queue,
            lease_id=delivery.lease_id,
            first_position=delivery.first_position,
            index=delivery.first_ordinal,
            count=count,
        )
        chosen = [Selection(receipt, delivery.first_ordinal, count)]
        ending = Ending(is_ack, retry_delay_ms, is_unbegun)
        return await self.engine.resolve(group, chosen, ending)
