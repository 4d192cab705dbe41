"""The engine: drives one shard in an event loop. Time, threads and waiting are here; rules are not.

callers --> shard --> [flusher thread: write, fdatasync] --> apply --> answers
timers  --> dispatch what is due, end leases, open the release gate
[background thread: checkpoints, merges, cascades]
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from node.broker.damage_desk import DamageDesk
from node.broker.disk_guard import DiskGuard
from node.broker.job_runner import Background
from node.broker.pending_query import Pending
from node.broker.precise_timer import make_timer
from node.broker.publish_service import Intake
from node.broker.status import describe, shard_status
from node.broker.sync_schedule import SyncSchedule
from node.broker.wheel_query import WheelQuery
from node.broker.writer import Writer
from node.catalog.name_expiry import NameExpiry
from node.catalog.service import Configurator, DefaultsConfig
from node.consumers.dead_letters import DeadLetterSearch
from node.consumers.receive_service import Consuming
from node.contracts import broker
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from node.contracts.broker import Failure
from node.repair.damage_control import DamageControl
from node.repair.file_repair import FileRepair
from node.shard.recovery import Opened
from node.telemetry import logs
from node.telemetry.stats import EngineStats

P = ParamSpec("P")
T = TypeVar("T")
Call: TypeAlias = Callable[P, Coroutine[Any, Any, T]]

_DISPATCHES_AHEAD: Final = 4
_HOUSEKEEPING_MS: Final = 1_000
_log = logs.get(__name__)


class Gate(Protocol):
    """Whether this node is the shard's master.

    Asked before anything is done in its name, and again before anything is told.
    """

    def check(self) -> None:
        """Raises NotMaster: nothing was done."""
        ...

    def confirm(self) -> None:
        """Raises Timeout: what was done may not stand."""
        ...

    def may_act(self) -> bool:
        """The same as a question."""
        ...


@dataclass(frozen=True)
class EngineConfig:
    """What the engine is told."""

    horizon_ms: int = 1_100 * 86_400_000
    is_durable: bool = True
    """Acknowledge after fdatasync; else after the write."""
    async_flush_ms: int = 200
    """With `is_durable` off: fdatasync at least this often."""
    answer_bytes: int = 128 << 20
    """Of messages that were handed out and not read yet."""
    defaults: DefaultsConfig = field(default_factory=DefaultsConfig)


class Engine:
    """One node's broker (contract: node/contracts/broker.py). All calls on the loop's thread."""

    def __init__(
        self,
        opened: Opened,
        config: EngineConfig,
        *,
        now_ms: Callable[[], int],
        until_ms: Callable[[int], float] | None = None,
        guard: DiskGuard,
        failure: Failure,
        cluster_id: bytes,
        gate: Gate | None = None,
    ) -> None:
        """Take over an open shard; `start` begins its reign.

        With a `gate`, one of several nodes: `start_replica`, and `begin_serving` when it is master.

        `until_ms` tells how long it is until `now_ms` says something, more exactly than the
        difference of whole milliseconds.
        """
        self.shard = opened.shard
        self.config = config
        self.cluster_id = cluster_id
        self.stats = EngineStats()
        self.answers = AnswerBudget(config.answer_bytes)
        self._now_ms, self._failure = now_ms, failure
        self._until_ms = until_ms or (lambda at_ms: float(at_ms - now_ms()))
        self._loop = asyncio.get_running_loop()
        self._gate = gate
        self._is_closing = False
        self._timer = make_timer(self._loop, self._or_fail(self._on_timer))
        self._guard = guard
        self.writer = Writer(
            self.shard,
            guard,
            self.stats,
            now_ms=now_ms,
            on_applied=self._on_applied,
            syncs=SyncSchedule(is_durable=config.is_durable, flush_ms=config.async_flush_ms),
            flush_ms=config.async_flush_ms,
        )
        self.background = Background(opened.maintenance, now_ms, self.rearm, failure, self.stats)
        self.consuming = Consuming(
            *(self.shard, now_ms, self.propose, self.rearm, self.stats),
            *(self._or_fail, self._check_master, self.answers),
        )
        self.place = opened.maintenance.place
        self.damage = DamageControl(
            self.shard,
            FileRepair(
                *(self.place, self.shard, self.stats),
                aside=self.background.run_aside,
                wake=self.writer.wake,
            ),
            self.stats,
            failure,
            propose=self.propose,
            wake=self._turn,
        )
        self.damage.files.delay_log_bytes = opened.maintenance.delay_log_bytes
        self.consuming.see_damage_by(self.damage.take_found)
        self.configurator = Configurator(
            *(self.shard, now_ms, self.propose, config.defaults),
            pass_over=self.consuming.unasked.pass_over,
            on_filter=self.consuming.on_filter,
        )
        self._dead_letters = DeadLetterSearch(self.shard)
        self.intake = Intake(self, config.horizon_ms, guard)
        self.expiry = NameExpiry(
            *(self.shard, self.configurator, config.defaults, self.stats, self.fail),
            retention_ms=opened.maintenance.retention_ms,
            are_some_waiting=lambda: self.intake.has_merges,
        )
        self._delegate()
        self._housekeeping: asyncio.TimerHandle | None = None
        self.shard.applier.make_room = guard.give_up_reserve
        failure.found.add_done_callback(self._on_failure)

    def _delegate(self) -> None:
        """The calls of EnginePort that are somebody else's as they stand."""
        intake, configurator = self.intake, self.configurator
        as_master = self._as_master
        self.publish_batch = as_master(intake.publish_batch)
        self.publish_messages = as_master(intake.publish_messages)
        self.cancel = as_master(intake.cancel)
        self.create_topic = as_master(configurator.create_topic)
        self.delete_topic = as_master(configurator.delete_topic)
        listing = configurator.listing
        self.topic, self.topics = listing.topic, listing.topics
        self.gene_spec = configurator.gene_spec
        self.group, self.groups, self.lags = listing.group, listing.groups, listing.lags
        self.put_group = as_master(configurator.put_group)
        self.put_subscription = as_master(configurator.put_subscription)
        self.delete_group = as_master(configurator.delete_group)
        pending = Pending(self)
        self.list_pending = as_master(pending.list_pending)
        self.cancel_pending = as_master(pending.cancel_pending)
        self.describe_wheel = WheelQuery(self).describe_wheel
        desk = DamageDesk(self)
        self.list_damaged = as_master(desk.list_damaged)
        self.discard_damaged = as_master(desk.discard_damaged)
        self.receive = as_master(self._receive)
        self.resolve = as_master(self._resolve)

    def _as_master(self, call: Call[P, T]) -> Call[P, T]:
        """`call`, made and answered only while this node is the master."""
        gate = self._gate
        if gate is None:
            return call

        async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            gate.check()
            answer = await call(*args, **kwargs)
            gate.confirm()
            return answer

        return guarded

    # -- life -------------------------------------------------------------------------------------

    async def start(self, node_id: str, boot_id: str) -> None:
        """Begin the reign: its first records are durable and applied when this returns.

        Where there is no room for them, not even the reserve's, it waits for some.

        Raises:
            HourwheelError: why the node cannot go on.
        """
        self.writer.start(self.intake, self.fail)
        self.expiry.begin(self._now_ms())
        await self._begin_when_there_is_room(node_id, boot_id)
        self._keep_house()
        self._on_timer()

    def start_replica(self) -> None:
        """Begin to write and apply what a master sends."""
        self.writer.start(self.intake, self.fail)
        self._keep_house()

    def begin_serving(self) -> None:
        """This node is the master now, or is again: who waits may have missed something."""
        self.expiry.begin(self._now_ms())
        self._turn(self.consuming.waited_queues())

    def end_serving(self, error: HourwheelError) -> None:
        """It is not any more; who waits is told."""
        self._timer.clear()
        self.consuming.retire(error)
        self.damage.retire()
        self.intake.retire(error)
        self.configurator.retire()

    async def _begin_when_there_is_room(self, node_id: str, boot_id: str) -> None:
        tries = 0
        while True:
            try:
                return await self._begin_epoch(node_id, boot_id)
            except errors.DiskFull as error:
                tries += 1
                if tries == 1:
                    continue  # the reserve was given up meanwhile, if there was one
                if tries == 2:  # noqa: PLR2004 - once
                    _log.error("shard_waits_for_room", **logs.fields_of(error))
                await asyncio.sleep(_HOUSEKEEPING_MS / 1_000)

    async def _begin_epoch(self, node_id: str, boot_id: str) -> None:
        begun: asyncio.Future[Any] = self._loop.create_future()
        self.shard.begin_epoch(node_id, boot_id, self._now_ms(), begun)
        self.writer.wake()
        failed: asyncio.Future[Any] = self._failure.found
        await asyncio.wait([begun, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            raise failed.result()
        await begun

    def fail(self, error: HourwheelError) -> None:
        """The node cannot go on: the process must end, and nobody is answered any more."""
        self._is_closing = True
        self._failure.report(error)

    def _on_failure(self, found: "asyncio.Future[HourwheelError]") -> None:
        self._is_closing = True
        if not found.cancelled() and isinstance(found.result(), errors.CorruptFile):
            self._failure.can_be_mended = self.background.maintenance.distrust()

    @contextmanager
    def _failing_with_damage(self) -> Iterator[None]:
        """A damaged view is of no use to the next caller either."""
        try:
            yield
        except errors.CorruptFile as error:
            self.fail(error)
            raise

    def _or_fail(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` as a callback of the loop, which would only log an exception and go on."""

        def call() -> None:
            try:
                step()
            except HourwheelError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
                self.fail(errors.Internal(repr(error)))

        return call

    async def close(self) -> None:
        """Stop dispatching, finish what is under way, write a checkpoint, close the files."""
        self._is_closing = True
        self._timer.close()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self.expiry.close()
        self.consuming.close()
        await self.damage.close()
        if not self._failure.found.done():
            await self.writer.drain()
        await self.writer.close()
        is_sound = not self._failure.found.done()
        await self.background.close(save=is_sound)
        if is_sound:
            self.shard.log.close()
            self.shard.views.queues.close()

    @property
    def is_closing(self) -> bool:
        """Nothing new is accepted any more."""
        return self._is_closing

    def now_ms(self) -> int:
        """The cluster clock."""
        return self._now_ms()

    def propose(
        self, append: Callable[[int, Any], None], now_ms: int | None = None
    ) -> "asyncio.Future[Any]":
        """See `node.catalog.service.Propose`.

        Raises:
            ShuttingDown: nothing is appended any more.
        """
        if self._is_closing:
            raise errors.ShuttingDown
        self._check_master()
        future: asyncio.Future[Any] = self._loop.create_future()
        append(self._now_ms() if now_ms is None else now_ms, future)
        self.writer.wake()
        return future

    # -- time -------------------------------------------------------------------------------------

    def rearm(self) -> None:
        """Something may be due earlier than the timer is set for."""
        self._set_timer()

    def _on_applied(self, queues: set[int]) -> None:
        """Records were applied; these queues got entries."""
        self._turn(queues)
        self.background.start_if_due()

    def _on_timer(self) -> None:
        self._turn(())

    def _turn(self, touched: Iterable[int]) -> None:
        """All that time and new records ask for, by one reading of the clock.

        Serve who waits, end leases, dispatch what is due, set the next alarm. While this node may
        not act nobody is served: `begin_serving` makes up for it.
        """
        if self._is_closing or not self._may_act():
            return
        now_ms = self._now_ms()
        is_appended = self.consuming.turn(touched, now_ms)
        # What could not be applied need not be dispatched.
        while not self.shard.is_stalled and self.shard.dispatches_in_flight < _DISPATCHES_AHEAD:
            if not self.shard.dispatch_due(now_ms):
                break
            is_appended = True
        self.shard.views.wheel.load_ahead(self.shard.views.cursor.key, now_ms)
        if is_appended:
            self.writer.wake()
        self._set_timer()

    def _check_master(self) -> None:
        """Raises NotMaster."""
        if self._gate is not None:
            self._gate.check()

    def _may_act(self) -> bool:
        return self._gate is None or self._gate.may_act()

    def _set_timer(self) -> None:
        if not self._may_act():
            return
        is_stalled = self.shard.is_stalled  # housekeeping looks whether there is room
        wakeups = [
            None if is_stalled else self.shard.dispatcher.next_wakeup_ms(self.shard.views),
            self.consuming.next_wakeup_ms(),
        ]
        times = [at for at in wakeups if at is not None]
        if not times:
            self._timer.clear()
            return
        self._timer.set_in(self._until_ms(min(times)))

    def _keep_house(self) -> None:
        """Once a second: room on the disk, retention, forgotten producers, unused names."""
        if self._is_closing:
            return
        now_ms = self._now_ms()
        self._guard.check(now_ms)
        if self.shard.is_stalled:
            self.shard.try_again()
            self.writer.wake()
        maintenance = self.background.maintenance
        if self._may_act() and maintenance.is_clean_up_due(now_ms):
            trim, expire = maintenance.plan_trim_ms(now_ms), maintenance.plan_expire_ms(now_ms)
            if trim is not None:
                self.shard.trim(trim, now_ms)
            if expire is not None:
                self.shard.expire_producers(expire, now_ms)
            self.writer.wake()
        if self._may_act():
            self.expiry.look(now_ms)
        self.background.start_if_due()
        self._housekeeping = self._loop.call_later(
            _HOUSEKEEPING_MS / 1000, self._or_fail(self._keep_house)
        )

    # -- the rest, by those who know --------------------------------------------------------------

    async def _receive(
        self,
        group: str,
        topic: str,
        *,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        invisible_ms: int,
        wanted: FilterExpression | None = None,
        attempt: broker.Attempt | None = None,
        held: HeldAnswer | None = None,
    ) -> broker.Delivery | None:
        """See EnginePort."""
        if self._is_closing:
            raise errors.ShuttingDown
        subscribed = await self.configurator.subscribe(group, topic, wanted)
        group_id = subscribed.group.group_id
        with self._failing_with_damage(), self.expiry.using(group_id, self._now_ms):
            return await self.consuming.receive(
                subscribed,
                max_messages=max_messages,
                max_bytes=max_bytes,
                wait_ms=wait_ms,
                invisible_ms=invisible_ms or subscribed.group.invisible_ms,
                attempt=attempt,
                held=held,
            )

    async def _resolve(
        self,
        group: str,
        selections: "list[broker.Selection]",
        *,
        retry_delay_ms: int | None,
        is_ack: bool,
    ) -> list[int]:
        """See EnginePort."""
        found = self.shard.views.catalog.get_group(group)
        with self._failing_with_damage(), self.expiry.using(found.group_id, self._now_ms):
            return await self.consuming.resolve(
                found, selections, retry_delay_ms=retry_delay_ms, is_ack=is_ack
            )

    def change_invisible(
        self, group: str, selections: "list[broker.Selection]", invisible_ms: int
    ) -> tuple[list[int], int]:
        """See EnginePort."""
        self._check_master()
        found = self.shard.views.catalog.get_group(group)
        with self.expiry.using(found.group_id, self._now_ms):
            return self.consuming.change_invisible(found, selections, invisible_ms)

    def status(self) -> broker.ShardStatusData:
        """See EnginePort."""
        return shard_status(self.shard, self.background.maintenance, self._guard, self._now_ms())

    def describe(self, message_id: Any) -> broker.MessageInfo:
        """See EnginePort."""
        return describe(self.shard, message_id, self.damage.damaged)

    async def dead_letters(self, message_id: Any) -> broker.DeadLettersInfo:
        """See EnginePort."""
        try:
            return await self._dead_letters.find(message_id.sequence)
        except errors.CorruptFile as error:
            self.fail(error)
            raise
