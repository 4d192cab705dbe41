"""Where calls meet the quotas of those who make them: what they publish, and what they would make.

    rates and pending messages    taken before the engine is asked, given back where it refuses
    pending messages that move    counted behind the call, which tells how many they are; refused
                                  while there are more than the quota says
    topics and groups             a call that would make one, of names that its caller may use,
                                  is refused when there are as many of those as the quota says

Which topics and groups a principal may use is what its grants say, so what is counted is there
after a restart, too: who made what is not kept. Those whose grants overlap count the same ones.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.formats.member_group import is_member_group
from hourwheel.v1.consumer_pb2 import JoinBroadcastRequest, ReceiveRequest
from node.access.control import CALLER, AccessControl
from node.access.permissions import RULES, group_resource, topic_resource
from node.access.quotas import Quotas, Taken, check_count, ranges_of
from node.api.group_settings import joined_group
from node.contracts.access import Operation, Principal, Resource, ResourceKind
from node.contracts.broker import EnginePort

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

_PRODUCER: Final = "hourwheel.v1.ProducerService."
_CONSUMER: Final = "hourwheel.v1.ConsumerService."
_ADMIN: Final = "hourwheel.v1.AdminService."
_RECURRENCE: Final = "hourwheel.v1.RecurrenceService."
MAKERS: Final = frozenset(
    {
        *(_PRODUCER + "Publish", _PRODUCER + "PublishStream"),
        *(_CONSUMER + "Receive", _CONSUMER + "JoinBroadcast"),
        "hourwheel.v1.TransactionService.Prepare",
        *(_RECURRENCE + "PutRecurrence", _RECURRENCE + "ResumeRecurrence"),
        *(_ADMIN + "CreateTopic", _ADMIN + "PutGroup", _ADMIN + "PutSubscription"),
    }
)
"""Full names of the methods that make the topics and groups that they name."""
_LISTED_AT_ONCE: Final = 500
_UNDECIDED: Final = (errors.Timeout, errors.Cancelled, errors.Internal)
_USES: Final = {
    ResourceKind.TOPIC: ("topics", (Operation.PUBLISH, Operation.ADMINISTER)),
    ResourceKind.GROUP: ("groups", (Operation.RECEIVE, Operation.ADMINISTER)),
}
"""Kind -> name of its limit, and which operations make one."""


class _Made(NamedTuple):
    """Somebody makes something just now."""

    name: str
    resource: Resource


class _Turns:
    """The calls of one principal are counted one after the other, as they came."""

    __slots__ = ("calls", "lock")

    def __init__(self) -> None:
        """None is in them."""
        self.calls = 0
        self.lock = asyncio.Lock()


def _as_made(request: object, named: Resource) -> Resource:
    """What a request makes that names this: of a broadcast, the group of a member."""
    if named.kind is ResourceKind.GROUP:
        if isinstance(request, JoinBroadcastRequest):
            return Resource(ResourceKind.GROUP, joined_group(request))
        if isinstance(request, ReceiveRequest) and is_member_group(request.group):
            return Resource(ResourceKind.GROUP, request.group)
    return named


class QuotaGate:
    """See the top of this file. Belongs to one event loop."""

    def __init__(
        self, quotas: Quotas, access: AccessControl, engine: EnginePort, clock: Clock
    ) -> None:
        """`access`: says which names a principal may use; `engine`: which ones there are."""
        self._quotas, self._access, self._engine, self._clock = quotas, access, engine, clock
        self._being_made: Counter[_Made] = Counter()
        self._turns: dict[str, _Turns] = {}
        """By principal, of those that have calls in them."""
        self._moving: set[object] = set()
        """Nothing else may hold on to them: their callers may have gone away."""

    @property
    def is_on(self) -> bool:
        """Whether anybody is limited."""
        return self._quotas.is_on

    def check_rates(self) -> None:
        """Refuse the caller whose rates are used up, before its batch is looked at: that is dearer.

        Raises:
            QuotaExceeded, QuotaReached: see `publishing`.
        """
        if self._quotas.is_on:
            _ = self._quotas.check_rates(CALLER.get().name, self._clock.monotonic_ms())

    @contextmanager
    def publishing(
        self, count: int, size_bytes: int, due_ms: Callable[[], NDArray[np.int64]]
    ) -> Iterator[Callable[[], None]]:
        """The caller publishes so much inside; what it is given says that nothing new was accepted.

        Args:
            count: of messages.
            size_bytes: of them.
            due_ms: their instants; asked only where they are counted.

        Raises:
            QuotaExceeded, QuotaReached: it may not now, or not at all.
        """
        name, now_ms = CALLER.get().name, self._engine.now_ms()
        quotas, ranges = self._quotas, dict[int, int]()
        if quotas.limits_of(name).pending_messages is not None:
            ranges = ranges_of(due_ms(), now_ms)
            quotas.hold_pending(name, ranges, now_ms)

        def give_back() -> None:
            quotas.give_pending_back(name, ranges)

        taken: Taken = []
        try:
            taken = quotas.publish(name, count, size_bytes, self._clock.monotonic_ms())
            yield give_back
        except errors.HourwheelError as error:
            if not isinstance(error, _UNDECIDED):
                give_back()
                quotas.give_rates_back(taken)
            raise

    async def moving(
        self,
        move: Callable[[], Awaitable[AnswerT]],
        due_ms_of: Callable[[AnswerT], NDArray[np.int64]],
    ) -> AnswerT:
        """What `move` says, by which the caller moves pending messages.

        It is counted also where the caller goes away meanwhile.

        Args:
            move: of the engine; it goes on to its end once it is begun.
            due_ms_of: of its answer, the new instants of the messages that were moved.

        Raises:
            QuotaExceeded, QuotaReached: the caller may not, and nothing was moved.
        """
        quotas, name = self._quotas, CALLER.get().name
        if not quotas.is_on or quotas.limits_of(name).pending_messages is None:
            return await move()
        quotas.check_moving(name, self._engine.now_ms())
        moving = asyncio.ensure_future(move())
        self._moving.add(moving)

        def note(done: "asyncio.Future[AnswerT]") -> None:
            self._moving.discard(done)
            if not done.cancelled() and done.exception() is None:
                now_ms = self._engine.now_ms()
                quotas.note_moved(name, ranges_of(due_ms_of(done.result()), now_ms), now_ms)

        moving.add_done_callback(note)
        return await asyncio.shield(moving)

    def limited(
        self, method: str, implement: Callable[[RequestT, Any], Coroutine[Any, Any, AnswerT]]
    ) -> Callable[[RequestT, Any], Coroutine[Any, Any, AnswerT]]:
        """`implement`, which makes no more topics and groups than its caller's quota says.

        Args:
            method: its full name.
            implement: does it.
        """
        if method not in MAKERS:
            return implement
        quotas, named = self._quotas, RULES[method].resources

        def resources(request: RequestT) -> tuple[Resource, ...]:
            return tuple(_as_made(request, one) for one in named(request))

        async def count_and_implement(request: RequestT, context: Any) -> AnswerT:
            made: list[_Made] = []
            try:
                await self._begin_in_turn(CALLER.get(), resources(request), made)
                return await implement(request, context)
            finally:
                self._end(made)

        def call(request: RequestT, context: Any) -> Coroutine[Any, Any, AnswerT]:
            if quotas.is_on:
                return count_and_implement(request, context)
            return implement(request, context)

        return call

    async def _begin_in_turn(
        self, principal: Principal, resources: Sequence[Resource], made: list[_Made]
    ) -> None:
        """`_begin`, behind the calls that came before: batches reach the engine in their order."""
        limits = self._quotas.limits_of(principal.name)
        if limits.topics is None and limits.groups is None and principal.name not in self._turns:
            return
        turns = self._turns.setdefault(principal.name, _Turns())
        turns.calls += 1
        try:
            async with turns.lock:
                await self._begin(principal, resources, made)
        finally:
            turns.calls -= 1
            if not turns.calls:
                del self._turns[principal.name]

    async def _begin(
        self, principal: Principal, resources: Sequence[Resource], made: list[_Made]
    ) -> None:
        """Note in `made` what the call would make. Raises QuotaReached: that is too much."""
        limits = self._quotas.limits_of(principal.name)
        for kind, (quota, operations) in _USES.items():
            most: int | None = getattr(limits, quota)
            if most is None:
                continue
            new = [one for one in dict.fromkeys(resources) if self._is_new(one, kind)]
            if not new:
                continue
            # With a limit of 0 there is nothing to count.
            count = await self._count(principal, kind, operations) if most else 0
            count += sum(
                each.name == principal.name and self._is_new(each.resource, kind)
                for each in self._being_made
            )
            for resource in new:
                one = _Made(principal.name, resource)
                if one not in self._being_made:
                    check_count(quota, most, count)
                    count += 1
                self._being_made[one] += 1
                made.append(one)

    def _end(self, made: list[_Made]) -> None:
        for one in made:
            self._being_made[one] -= 1
            if not self._being_made[one]:
                del self._being_made[one]

    def _is_new(self, resource: Resource, kind: ResourceKind) -> bool:
        if resource.kind is not kind:
            return False
        try:
            if kind is ResourceKind.TOPIC:
                self._engine.topic(resource.name)
            else:
                self._engine.group(resource.name, 0, 1)
        except (errors.UnknownTopic, errors.UnknownGroup):
            return True
        return False

    async def _count(
        self, principal: Principal, kind: ResourceKind, operations: tuple[Operation, ...]
    ) -> int:
        """How many there are whose names the principal may use, in slices."""
        policy, count, after = self._access.policy, 0, ""
        while True:
            names = self._names(kind, after)
            if not names:
                return count
            for name in names:
                one = topic_resource(name) if kind is ResourceKind.TOPIC else group_resource(name)
                count += any(policy.allows(principal, each, one) for each in operations)
            after = names[-1]
            await asyncio.sleep(0)

    def _names(self, kind: ResourceKind, after: str) -> list[str]:
        if kind is ResourceKind.TOPIC:
            topics = self._engine.topics(after, _LISTED_AT_ONCE, include_internal=False)
            return [one.name for one in topics]
        return [one.name for one in self._engine.groups(after, _LISTED_AT_ONCE)]
