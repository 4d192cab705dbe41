"""What a node does for its callers as master of a shard, in one epoch. Made anew for each.

    calls  --> publish, catalog, receive, pending, damage services --> mastership --> log
    turns  --> long polls, leases that end, dispatches
    the end of the mastership answers everything that waits here: `Mastership.close`

It may act only while it has the lease, and checks that when a call comes and again when its answer
leaves. While it has none, it refuses calls, and polls go on waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.instants import earliest
from hourwheel.outcomes import ReceiptOutcome
from node.broker.damage_service import DamageService
from node.broker.disk_guard import DiskGuard
from node.broker.group_commit import GroupCommit
from node.broker.history_query import HistoryQuery
from node.broker.job_runner import Background
from node.broker.keys.service import KeyService
from node.broker.pending_query import Pending
from node.broker.publish_service import PublishService
from node.broker.recurring.occurrence_planner import OccurrencePlanner
from node.broker.recurring.recurrence_service import RecurrenceService
from node.broker.reschedule_service import RescheduleService
from node.broker.settings import EngineConfig
from node.broker.transactions.check_back_service import CheckBackService
from node.broker.transactions.service import TransactionService
from node.catalog.group_reset import Resetter
from node.catalog.name_expiry import NameExpiry
from node.catalog.positions import Skipper
from node.catalog.service import CatalogService
from node.catalog.subscriptions import Subscribed
from node.consumers.dead_letter_service import DeadLetterService
from node.consumers.receive_service import ReceiveService
from node.contracts import broker
from node.contracts.answer_budget import AnswerBudget
from node.contracts.control import CatalogControl
from node.contracts.ending import Ending
from node.contracts.receive_stream import Push
from node.repair.damage_control import DamageControl
from node.replica.mastership import OUTCOME_UNKNOWN, Mastership, Proposer
from node.telemetry.stats import EngineStats
from storage.queues.consume_queues import Touched

T = TypeVar("T")

_LOAD_REST_MS: Final = 5
"""Between two pieces of what is loaded ahead; each takes the loop for some three milliseconds."""


class Host(Protocol):
    """What every node has, master or not: what is used of node/broker/engine.py."""

    stats: EngineStats
    answers: AnswerBudget
    config: EngineConfig
    guard: DiskGuard
    group_commit: GroupCommit
    background: Background
    damage: DamageControl
    catalog_control: CatalogControl | None
    cluster_id: bytes
    is_closing: bool
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], float]
    redirect: Callable[[], errors.NotMaster]

    def rearm(self) -> None:
        """Set the timer for the next turn."""
        ...

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """See `Serving`."""
        ...

    def fail(self, error: HourwheelError) -> None:
        """See `Serving`."""
        ...

    def failing_with_damage(self) -> AbstractContextManager[None]:
        """A damaged view that is found inside stops the node."""
        ...


class _Caller(Generic[T]):
    """One call that waits for what apply says of its record."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[T]") -> None:
        self._future = future

    def answer(self, result: T | None, error: HourwheelError | None) -> None:
        """See `Proposer`; the call may have gone away."""
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(cast("T", result))


class MasterService:
    """See the top of this file. Is a `Serving`. All on the event loop's thread."""

    def __init__(self, host: Host, mastership: Mastership) -> None:
        """Serve from now on, until the mastership is closed."""
        self._host, self.mastership = host, mastership
        self.stats, self._shard = host.stats, mastership.shard
        self.now_ms, self.rearm = host.now_ms, host.rearm
        self.guarded, self.fail = host.guarded, host.fail
        self._loop = asyncio.get_running_loop()
        self._load_ms: int | None = None
        """When to go on with what is loaded ahead."""
        damage, defaults = host.damage, host.config.defaults
        damage.serve(mastership, self.propose)
        self.receive_service = ReceiveService(self, host.answers, damage.take_found)
        self.catalog_service = CatalogService(
            self,
            defaults,
            resolve_filtered=self.receive_service.housekeeping.resolve_filtered,
            on_filter=self.receive_service.on_filter,
            control=host.catalog_control,
        )
        self.expiry = NameExpiry(
            self,
            self.catalog_service,
            defaults,
            retention_ms=host.background.maintenance.retention_ms,
            are_some_waiting=lambda: self.publishing.are_some_waiting,
        )
        self.publishing = PublishService(
            serving=self,
            group_commit=host.group_commit,
            background=host.background,
            catalog_service=self.catalog_service,
            expiry=self.expiry,
            guard=host.guard,
            horizon_ms=host.config.horizon_ms,
        )
        self.keys = KeyService(
            self, self.publishing.small_calls, host.group_commit, host.cluster_id
        )
        self.history = HistoryQuery(self)
        self.rescheduling = RescheduleService(self, self.publishing, self.keys)
        self.transactions = TransactionService(
            self,
            self.publishing,
            self.catalog_service,
            self.expiry,
            host.config.transactions,
            damage.records,
        )
        self.check_back_service = CheckBackService(self, self.transactions)
        self._planner = OccurrencePlanner(
            self,
            self.publishing,
            self.catalog_service,
            horizon_ms=host.config.horizon_ms,
            monotonic_ms=host.monotonic_ms,
        )
        self.recurring = RecurrenceService(
            self, self.publishing, self.catalog_service, self.expiry, self._planner
        )
        self.pending = Pending(self, host.cluster_id, damage, self.rescheduling)
        self.damage_service = DamageService(mastership, damage)
        self.dead_letter_service = DeadLetterService(
            self, self.receive_service.ack_service.rejections
        )
        self.skipper = Skipper(self)
        self.resetter = Resetter(
            self,
            self.catalog_service,
            append_waiting=lambda: self.publishing.small_calls.append(self.now_ms),
            retention_ms=host.background.maintenance.retention_ms,
            on_reset=self.receive_service.on_reset,
        )
        services = self.receive_service, self.expiry, self.check_back_service, self._planner
        for waiting in (*services, self.catalog_service):
            mastership.hold(waiting)
        self._is_releasing = False
        mastership.release_due = self._release_due

    # -- may it act -------------------------------------------------------------------------------

    @property
    def may_act(self) -> bool:
        """Whether this node is the master, now."""
        return self._host.monotonic_ms() < self.mastership.act_until_ms

    def check(self) -> None:
        """Raises ShuttingDown or NotMaster: nothing was done."""
        if self._host.is_closing:
            raise errors.ShuttingDown
        if not self.may_act:
            raise self._host.redirect()

    async def answer(self, call: Awaitable[T]) -> T:
        """What a call that was begun as master answers. Raises Timeout where it may not stand."""
        answer = await call
        if not self.may_act:
            raise errors.Timeout(OUTCOME_UNKNOWN)
        return answer

    def propose(
        self, append: Callable[[int, Proposer[T]], None], now_ms: int | None = None
    ) -> "asyncio.Future[T]":
        """See `Propose`."""
        self.check()
        future: asyncio.Future[T] = self._loop.create_future()
        append(self.now_ms() if now_ms is None else now_ms, _Caller(future))
        self._host.group_commit.wake()
        return future

    def propose_resolve(self, rows: NDArray[np.void]) -> "asyncio.Future[Sequence[int]]":
        """See `Serving`."""
        self.check()
        future: asyncio.Future[Sequence[int]] = self._loop.create_future()
        self.publishing.small_calls.resolve(rows, future)
        self._host.group_commit.wake()
        return future

    # -- turns ------------------------------------------------------------------------------------

    def turn(self, touched: Touched, now_ms: int) -> None:
        """All that time and new records ask for: see `Engine.turn`."""
        shard = self._shard
        is_appended = self.receive_service.turn(touched, now_ms)
        if not shard.is_stalled:
            is_appended |= self._planner.turn(now_ms)
        is_appended |= self._dispatch(now_ms, is_urgent=False)
        is_loading = shard.views.wheel.load_ahead(shard.views.cursor.key, now_ms)
        self._load_ms = now_ms + _LOAD_REST_MS if is_loading else None
        if is_appended:
            self._host.group_commit.wake()

    def _dispatch(self, now_ms: int, *, is_urgent: bool) -> bool:
        """Append what is due; whether anything was."""
        mastership, is_appended = self.mastership, False
        # What could not be applied need not be dispatched.
        while (
            self._planner.is_ready
            and not self._shard.is_stalled
            and mastership.may_dispatch_more
            and mastership.dispatch_due(now_ms, is_urgent=is_urgent)
        ):
            is_appended = True
        return is_appended

    def _release_due(self, now_ms: int) -> None:
        """See `Mastership.release_due`. An error is the node's, as in a turn, and no caller's."""

        def release() -> None:
            if not self._planner.is_ready and not self._is_releasing:
                self._is_releasing = True  # occurrences are published, too
                self._planner.turn(now_ms)
                self._is_releasing = False
            self._dispatch(now_ms, is_urgent=True)

        self.guarded(release)()

    def next_wakeup_ms(self) -> int | None:
        """When the next turn has to be, or None."""
        dispatch_ms = plan_ms = None
        # Housekeeping looks whether there is room; what is applied next has a turn.
        if not self._shard.is_stalled:
            plan_ms = self._planner.next_wakeup_ms()
            if self._planner.is_ready and self.mastership.may_dispatch_more:
                dispatch_ms = self.mastership.dispatcher.next_wakeup_ms(self._shard.views)
        serve_ms = self.receive_service.next_wakeup_ms()
        return earliest(dispatch_ms, plan_ms, serve_ms, self._load_ms)

    def look(self, now_ms: int) -> None:
        """Once a second: retention, forgotten producers, unused names."""
        maintenance = self._host.background.maintenance
        if maintenance.is_clean_up_due(now_ms):
            trim, expire = maintenance.plan_trim_ms(now_ms), maintenance.plan_expire_ms(now_ms)
            floor = maintenance.plan_sequence_floor(now_ms)
            if trim is not None:
                self.mastership.trim(trim, now_ms)
            if expire is not None:
                self.mastership.expire_producers(expire, now_ms)
            if floor is not None:
                self.mastership.trim_sequences(floor, now_ms)
            self._host.group_commit.wake()
        self.catalog_service.resume()
        self.expiry.look(now_ms)
        self.check_back_service.look(now_ms)

    def close_polls(self) -> None:
        """The node stops: answer each long poll with nothing. What is proposed is still applied."""
        self.receive_service.close()
        self.expiry.close(errors.ShuttingDown())
        self.check_back_service.close(errors.ShuttingDown())

    # -- consumers' calls -------------------------------------------------------------------------

    async def receive(self, params: broker.ReceiveParams) -> broker.Delivery | None:
        """See EnginePort."""
        subscribed = await self._subscribe(params)
        with self._host.failing_with_damage(), self.expiry.using(subscribed.group, self.now_ms):
            return await self.receive_service.receive(subscribed, params)

    async def receive_stream(
        self, params: broker.ReceiveParams, push: Push[broker.Delivery]
    ) -> None:
        """See EnginePort."""
        subscribed = await self._subscribe(params)
        with self._host.failing_with_damage(), self.expiry.using(subscribed.group, self.now_ms):
            await self.receive_service.receive_stream(subscribed, params, push)

    async def _subscribe(self, params: broker.ReceiveParams) -> Subscribed:
        return await self.catalog_service.subscribe(
            params.group, params.topic, params.filter, member_token=params.member_token
        )

    async def resolve(
        self,
        group: str,
        selections: "list[broker.Selection]",
        ending: Ending,
    ) -> list[ReceiptOutcome]:
        """See EnginePort."""
        found = self._shard.views.catalog.get_group(group)
        using = self.expiry.using(found, self.now_ms)
        with self._host.failing_with_damage(), using:
            return await self.receive_service.ack_service.resolve(found, selections, ending)

    def change_invisible(
        self, group: str, selections: "list[broker.Selection]", invisible_ms: int
    ) -> tuple[list[ReceiptOutcome], int]:
        """See EnginePort."""
        found = self._shard.views.catalog.get_group(group)
        with self.expiry.using(found, self.now_ms):
            return self.receive_service.ack_service.change_invisible(
                found, selections, invisible_ms
            )
