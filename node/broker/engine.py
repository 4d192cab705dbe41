"""The engine: drives one shard in an event loop. Time, threads and waiting are here; rules are not.

callers --> service (while master) --> [flusher thread: write, fdatasync] --> apply --> answers
timers  --> turns: dispatch what is due, end leases, open the release gate
[background thread: checkpoints, merges, cascades]

What belongs to one epoch is the `MasterService` of its mastership (node/broker/master_service.py);
the engine has what a follower has as well.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import NO_EPOCH
from hourwheel.v1.status_pb2 import ShardStatus
from node.broker.disk_guard import DiskGuard
from node.broker.group_calls import GroupCalls
from node.broker.group_commit import GroupCommit, Replication
from node.broker.job_runner import Background
from node.broker.master_service import MasterService
from node.broker.precise_timer import make_timer
from node.broker.settings import EngineConfig
from node.broker.status import describe, shard_gauges, shard_status
from node.broker.topic_query import TopicQuery
from node.broker.transactions.gate import TransactionGate
from node.broker.wheel_query import WheelQuery
from node.catalog.listing import Listing
from node.consumers.dead_letters import DeadLetterSearch
from node.contracts import broker
from node.contracts.answer_budget import AnswerBudget
from node.contracts.control import CatalogControl
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from node.contracts.dead_letters import (
    DeadLetterQuery,
    DeadLettersInfo,
    DeadLettersPage,
    RedrivenPage,
)
from node.contracts.ending import Ending
from node.contracts.history import HistoryPage, MessageInfo
from node.contracts.lags import LagPlace, LagsPart
from node.contracts.message_topics import May, MessageTopics
from node.contracts.pending_page import ChangedPage, KeyPage, KeysCancelled, PendingPage
from node.contracts.pending_token import KeyQuery, PendingQuery
from node.contracts.publishing import PublishedOne
from node.contracts.receive_stream import Push
from node.contracts.recurring import RecurrencePort
from node.contracts.rescheduling import KeysRescheduled
from node.contracts.wheel_info import WheelInfo
from node.delivery.receiver import Receiver
from node.repair.damage_control import DamageControl
from node.repair.file_repair import FileRepair
from node.replica.mastership import Mastership
from node.shard.recovery import Opened
from node.telemetry import logs
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from storage.queues.consume_queues import Touched, all_freed

_HOUSEKEEPING_MS: Final = 1_000
_ANSWERED_FIRST_MAX: Final = 4
"""So many answers leave before the rest of their turn; more would keep it waiting."""
_log = logs.get(__name__)


class Time(Protocol):
    """The clocks of a node."""

    def now_ms(self) -> int:
        """The cluster clock, in epoch milliseconds."""
        ...

    def until_ms(self, at_ms: int) -> float:
        """How long until `now_ms` says so, more exactly than the difference of milliseconds."""
        ...

    def monotonic_ms(self) -> float:
        """The monotonic clock, of leases."""
        ...


class Membership(Replication, Protocol):
    """The node's part in its shard: what the engine asks of node/cluster/member.py."""

    def redirect(self) -> errors.NotMaster:
        """Where to go instead of this node."""
        ...

    async def wait_for_takeover(self, wait_ms: int) -> None:
        """While this node takes over, return when that is over, or after `wait_ms`, or sooner."""
        ...


class Engine(GroupCalls):
    """One node's broker (contract: node/contracts/broker.py). All calls on the loop's thread."""

    def __init__(
        self,
        opened: Opened,
        config: EngineConfig,
        time: Time,
        membership: Membership,
        guard: DiskGuard,
        failure: Failure,
    ) -> None:
        """Take over an open shard. `start` is next, and `serve` with each mastership."""
        self.shard, self.place = opened.shard, opened.maintenance.place
        self.config, self.guard = config, guard
        self.cluster_id = self.place.identity.cluster_id
        self.stats = EngineStats()
        self._turns = self.stats.spans.span("turn")
        self.answers = AnswerBudget(config.answer_bytes)
        self._time, self._failure, self._membership = time, failure, membership
        self.now_ms, self.monotonic_ms = time.now_ms, time.monotonic_ms
        self.redirect = membership.redirect
        self._loop = asyncio.get_running_loop()
        self.catalog_control: CatalogControl | None = None
        """Who decides about topics and groups; None: the log alone. Set before `start`."""
        self.is_closing = False
        """Nothing new is accepted any more."""
        self.service: MasterService | None = None
        """Of the current mastership; None for a follower."""
        self._timer = make_timer(self._loop, self.guarded(self.turn))
        self.transactions = TransactionGate(lambda: self._master)
        self.group_commit = GroupCommit(
            self.shard,
            guard,
            self.stats,
            config.durability,
            membership,
            now_ms=time.now_ms,
            on_applied=self._on_applied,
        )
        self.background = Background(
            opened.maintenance, time.now_ms, self.rearm, failure, self.stats
        )
        self.damage = DamageControl(
            self.shard,
            FileRepair(
                self.place,
                self.shard,
                self.stats,
                aside=self.background.run_aside,
                wake=self.group_commit.wake,
            ),
            self.stats,
            failure,
            wake=lambda queues: self.turn(all_freed(queues)),
            pace=config.damage_pace,
        )
        self.damage.files.delay_log_bytes = opened.maintenance.delay_log_bytes
        self._follower_listing = Listing(self.shard, Receiver(self.shard.views, self.shard.bodies))
        self._dead_letters, self._wheel_query = DeadLetterSearch(self.shard), WheelQuery(self)
        self._topic_query = TopicQuery(self)
        self._housekeeping: asyncio.TimerHandle | None = None
        self._is_turning = False
        """A turn is under way: it sets the timer at its end."""
        self._turn_soon: asyncio.Handle | None = None
        """Of a turn that lets answers leave first."""
        self.shard.applier.make_room = guard.give_up_reserve
        failure.found.add_done_callback(self._on_failure)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write and apply."""
        self.group_commit.start(self.fail)
        self._run_housekeeping()

    def serve(self, mastership: Mastership) -> None:
        """This node has taken over, and answers from now on."""
        self.shard.views.queues.look_again()  # the cluster clock may be behind its former one
        self.service = MasterService(self, mastership)

    def resume(self) -> None:
        """The lease is there, for the first time or again: polls may have missed something."""
        if self.service is not None:
            self.service.catalog_service.resume()
            self.turn(all_freed(self.service.receive_service.waited_queues()))

    def step_down(self, mastership: Mastership) -> None:
        """Close a mastership: all who wait are answered."""
        self._timer.clear()
        self.service = None
        mastership.close(self.redirect())

    def fail(self, error: errors.HourwheelError) -> None:
        """The node cannot go on: the process must end, and answers no call any more."""
        self.is_closing = True
        self._failure.report(error)

    def _on_failure(self, found: "asyncio.Future[errors.HourwheelError]") -> None:
        self.is_closing = True
        error = None if found.cancelled() else found.result()
        if isinstance(error, errors.CorruptFile):
            maintenance = self.background.maintenance
            self._failure.can_be_mended = maintenance.can_mend(error)
            self._failure.mending = self.background.end_with(lambda: maintenance.distrust(error))

    @contextmanager
    def failing_with_damage(self) -> Iterator[None]:
        """A damaged view is of no use to the next caller either."""
        try:
            yield
        except errors.CorruptFile as error:
            self.fail(error)
            raise

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` as a callback of the loop, which would only log an exception and go on."""

        def call() -> None:
            try:
                step()
            except errors.HourwheelError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
                self.fail(errors.Internal(repr(error)))

        return call

    async def close(self) -> None:
        """Stop dispatching, finish what is under way, write a checkpoint, close the files."""
        self.is_closing = True
        self._timer.close()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        if self.service is not None:
            self.service.close_polls()
        await self.damage.stop()
        if not self._failure.found.done():
            await self.group_commit.drain()
        await self.group_commit.close()
        if self._turn_soon is not None:
            self._turn_soon.cancel()
        is_sound = not self._failure.found.done()
        await self.background.close(save=is_sound)
        if is_sound:
            self.shard.log.close()
            self.shard.views.queues.close()
            self.shard.views.keys.close()

    # -- time -------------------------------------------------------------------------------------

    def rearm(self) -> None:
        """Something may be due earlier than the timer is set for."""
        service = self._acting
        if service is None or self._is_turning:
            return
        wakeup_ms = service.next_wakeup_ms()
        if wakeup_ms is None:
            self._timer.clear()
        else:
            self._timer.set_in(self._time.until_ms(wakeup_ms))

    @property
    def _acting(self) -> MasterService | None:
        """The service, while it may act."""
        service = self.service
        return service if service is not None and service.may_act else None

    def _on_applied(self, touched: Touched, answered_count: int) -> None:
        """Records were applied; these queues were touched, and callers will be answered.

        Where there is nothing to deliver and few callers are answered, they go first: what else a
        turn does takes longer than their answers.
        """
        if touched.are_some or answered_count > _ANSWERED_FIRST_MAX:
            self._turn_on_applied(touched)
        elif self._turn_soon is None:
            self._turn_soon = self._loop.call_soon(self._let_answers_leave)

    def _let_answers_leave(self) -> None:
        """The calls have gone on with their results; next, their streams write the answers."""
        self._turn_soon = self._loop.call_soon(self.guarded(self._turn_on_answered))

    def _turn_on_answered(self) -> None:
        self._turn_soon = None
        self._turn_on_applied(None)

    def _turn_on_applied(self, touched: Touched | None) -> None:
        self.turn(touched)
        self.background.start_if_due()

    def turn(self, touched: Touched | None = None) -> None:
        """All that time and new records ask for, by one reading of the clock.

        Serve polls, end leases, dispatch what is due, set the next alarm. While this node may
        not act it serves no poll: `resume` makes up for it.
        """
        service = self._acting
        if service is not None and not self.is_closing:
            with self._turns:
                self._is_turning = True
                try:
                    service.turn(touched or all_freed(()), self.now_ms())
                finally:
                    self._is_turning = False
                self.rearm()

    def _run_housekeeping(self) -> None:
        """Once a second: room on the disk, retention, forgotten producers, unused names."""
        if self.is_closing:
            return
        with self.stats.spans.span("housekeeping"):
            now_ms = self.now_ms()
            self.guard.check(now_ms)
            if self.shard.is_stalled:
                self.shard.try_again()
                self.group_commit.wake()
            service = self._acting
            if service is not None:
                service.look(now_ms)
            self.background.start_if_due()
        self._housekeeping = self._loop.call_later(
            _HOUSEKEEPING_MS / 1000, self.guarded(self._run_housekeeping)
        )

    # -- calls to the master ----------------------------------------------------------------------

    @property
    def _master(self) -> MasterService:
        """Who answers now. Raises ShuttingDown, NotMaster."""
        service = self.service
        if service is None:
            if self.is_closing:
                raise errors.ShuttingDown
            raise self.redirect()
        service.check()
        return service

    async def publish_batch(self, topic: str, batch: RecordBatch) -> broker.PublishedBatchResult:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.publishing.publish_batch(topic, batch))

    async def publish_joined(
        self, topics: list[tuple[str, int]], batch: RecordBatch
    ) -> broker.PublishedBatchResult:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.publishing.publish_joined(topics, batch))

    async def publish_messages(self, incoming: broker.IncomingMessages) -> list[PublishedOne]:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.publishing.publish_messages(incoming))

    async def cancel(self, ids: NDArray[np.void]) -> NDArray[np.uint8]:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.publishing.cancel(ids))

    async def cancel_keys(self, topic: str, keys: Sequence[bytes]) -> KeysCancelled:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.keys.cancel(topic, keys))

    async def reschedule(
        self, ids: NDArray[np.void], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> NDArray[np.void]:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.rescheduling.reschedule(ids, times_ms, are_delays=are_delays)
        )

    async def reschedule_keys(
        self, topic: str, keys: Sequence[bytes], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> KeysRescheduled:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.rescheduling.reschedule_keys(topic, keys, times_ms, are_delays=are_delays)
        )

    @property
    def recurring(self) -> RecurrencePort:
        """See EnginePort."""
        return self._master.recurring

    async def receive(self, params: broker.ReceiveParams) -> broker.Delivery | None:
        """See EnginePort."""
        if self.service is None:
            await self._membership.wait_for_takeover(params.wait_ms)
        master = self._master
        return await master.answer(master.receive(params))

    async def receive_stream(
        self, params: broker.ReceiveParams, push: Push[broker.Delivery]
    ) -> None:
        """See EnginePort."""
        if self.service is None:
            await self._membership.wait_for_takeover(params.wait_ms)
        await self._master.receive_stream(params, push)

    async def resolve(
        self,
        group: str,
        selections: "list[broker.Selection]",
        ending: Ending,
    ) -> list[ReceiptOutcome]:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.resolve(group, selections, ending))

    def change_invisible(
        self, group: str, selections: "list[broker.Selection]", invisible_ms: int
    ) -> tuple[list[ReceiptOutcome], int]:
        """See EnginePort."""
        return self._master.change_invisible(group, selections, invisible_ms)

    async def create_topic(
        self, name: str, queue_count: int, wanted: broker.NewTopic | None = None
    ) -> broker.TopicInfo:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.catalog_service.create_topic(name, queue_count, wanted))

    async def delete_topic(self, name: str) -> None:
        """See EnginePort."""
        await self._master.answer(self._master.catalog_service.delete_topic(name))

    async def put_group(self, name: str, settings: broker.GroupSettings) -> broker.GroupInfo:
        """See EnginePort."""
        return await self._master.answer(self._master.catalog_service.put_group(name, settings))

    async def update_topic(self, name: str, update: broker.CatalogUpdate) -> broker.TopicInfo:
        """See EnginePort."""
        return await self._master.answer(self._master.catalog_service.update_topic(name, update))

    async def update_group(
        self, name: str, update: broker.CatalogUpdate, settings: broker.GroupSettings
    ) -> broker.GroupInfo:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.catalog_service.update_group(name, update, settings))

    async def put_subscription(
        self, group: str, topic: str, wanted: FilterExpression
    ) -> broker.SubscriptionInfo:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.catalog_service.put_subscription(group, topic, wanted))

    async def delete_group(self, name: str) -> None:
        """See EnginePort."""
        await self._master.answer(self._master.catalog_service.delete_group(name))

    async def list_pending(
        self, query: PendingQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> PendingPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.pending.list_pending(query, token, count_max=count_max, with_bodies=with_bodies)
        )

    async def cancel_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.pending.cancel_pending(query, token))

    async def reschedule_pending(self, query: PendingQuery, token: bytes) -> ChangedPage:
        """See EnginePort."""
        return await self._master.answer(self._master.pending.reschedule_pending(query, token))

    async def list_by_key(self, query: KeyQuery, token: bytes, *, count_max: int) -> KeyPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.keys.listing.list_by_key(query, token, count_max=count_max)
        )

    async def history(self, of: MessageId, topic: str, token: bytes) -> HistoryPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.history.history(of, topic, token))

    async def list_damaged(
        self, group: str, topic: str, token: bytes, *, count_max: int
    ) -> DamagedPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.damage_service.list_damaged(group, topic, token, count_max=count_max)
        )

    async def discard_damaged(
        self, group: str, topic: str, ids: Sequence[MessageId] | None, *, count_max: int
    ) -> tuple[list[DamagedInfo], int]:
        """See EnginePort."""
        master = self._master
        return await master.answer(
            master.damage_service.discard_damaged(group, topic, ids, count_max=count_max)
        )

    async def list_dead_letters(
        self, query: DeadLetterQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> DeadLettersPage:
        """See EnginePort."""
        letters = self._master.dead_letter_service
        return await self._master.answer(
            letters.list_dead_letters(query, token, count_max=count_max, with_bodies=with_bodies)
        )

    async def redrive(self, query: DeadLetterQuery, token: bytes) -> RedrivenPage:
        """See EnginePort."""
        master = self._master
        return await master.answer(master.dead_letter_service.redrive(query, token))

    # -- what every node knows --------------------------------------------------------------------

    @property
    def _listing(self) -> Listing:
        service = self.service
        return self._follower_listing if service is None else service.catalog_service.listing

    def topic(self, name: str) -> broker.TopicInfo:
        """See EnginePort."""
        return self._listing.topic(name)

    def topics(
        self, after: str, count_max: int, *, include_internal: bool
    ) -> list[broker.TopicInfo]:
        """See EnginePort."""
        return self._listing.topics(after, count_max, include_internal=include_internal)

    def group(self, name: str, after: int, count_max: int) -> broker.GroupInfo:
        """See EnginePort."""
        return self._listing.group(name, after, count_max)

    def groups(self, after: str, count_max: int) -> list[broker.GroupInfo]:
        """See EnginePort."""
        return self._listing.groups(after, count_max)

    def lags(self, after: LagPlace | None) -> LagsPart:
        """See EnginePort."""
        return self._listing.lags(after)

    def gene_spec(self, topic: str) -> GeneSpec:
        """See EnginePort."""
        if self.service is not None:
            return self.service.catalog_service.gene_spec(topic)
        found = self.shard.views.catalog.find_topic(topic)
        return DEFAULT_SPEC if found is None else found.gene

    def status(self) -> ShardStatus:
        """See EnginePort."""
        epoch = NO_EPOCH if self.service is None else self.service.mastership.epoch
        return shard_status(self.shard, epoch, self.background.maintenance)

    def gauges(self) -> broker.ShardGauges:
        """See EnginePort."""
        return shard_gauges(self.shard, self.background.maintenance, self.guard, self.now_ms())

    def describe(self, message_id: MessageId) -> MessageInfo:
        """See EnginePort."""
        self._master.check()  # what this node has applied may be old
        return describe(self.shard, message_id, self.damage.damaged)

    async def is_shown(self, message_id: MessageId) -> bool:
        """See EnginePort."""
        return await self._master.answer(self._topic_query.is_shown(message_id, self.now_ms()))

    async def topics_of(self, ids: NDArray[np.void], may: May) -> MessageTopics:
        """See EnginePort."""
        return await self._master.answer(self._topic_query.topics_of(ids, may))

    async def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelInfo:
        """See EnginePort."""
        return await self._wheel_query.describe_wheel(bounds_ms)

    async def dead_letters(self, message_id: MessageId) -> DeadLettersInfo:
        """See EnginePort."""
        with self.failing_with_damage():
            return await self._master.answer(self._dead_letters.find(message_id.sequence))
