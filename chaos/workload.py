"""Load on real nodes, from producers, cancellers and consumers, written down in a `History`.

    async with Workload(servers, seed).running() as load:
        await load.wait_for(lambda: load.event_count >= 100)
        ...                                  # what goes wrong with the node goes wrong here
        await load.settle()                  # no more new messages; all due ones are consumed
    violations = check(load.history, read_stored(directory))

It goes on by itself while nodes are away, and takes nothing back. One that is ended in the middle
of a call has taken it down as one without an answer. The number of messages that are under way is
bounded, so the load follows what the node and the machine can do: nothing is paced by a clock. The
same seed makes the same choices; threads and processes still differ.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.actors import ordered_keys, resets
from chaos.actors.clients import (
    CONSUMERS,
    QUEUES,
    groups_of,
    note_rules,
    publishers,
    settings_of,
    watched_groups,
    watchers,
    work_ms_max,
)
from chaos.actors.transactions import TransactionClient
from chaos.history import (
    Accepted,
    Cancel,
    Delivery,
    Finish,
    GuestCall,
    History,
    Move,
    Sent,
    Verb,
    body_of,
    serial_of,
)
from chaos.message_mix import FAR_MS, Mix, choose_delay, own_key, publish_list, request_of
from chaos.principals import ADMIN, GUEST, LOAD, GuestGrant, Principals
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncTransactions,
    Channel,
    Message,
    MessageId,
    ReceivedMessage,
    errors,
)
from hourwheel.clock import SystemClock
from hourwheel.formats import message_id
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.methods import Method
from hourwheel.transport.retry import is_undecided
from hourwheel.v1 import broker_pb2

TOPICS: Final = {"alpha": 1, "beta": 3}
"""Name -> number of queues, of those without order."""
INVISIBLE_MS: Final = 1_500
GUEST_TOPIC: Final = "alpha"
_TRADE_PAUSE_MS: Final = 20
_GUEST_PAUSE_MS: Final = 20
_LOOK_S: Final = 0.2
_CANCELS_AT_ONCE: Final = 50
_PUBLISH_PATH: Final = "/hourwheel.v1.ProducerService/Publish"
_PUBLISH_ONCE: Final = Method(
    _PUBLISH_PATH, broker_pb2.PublishRequest, broker_pb2.PublishResponse, is_repeatable=False
)
_PUBLISH_AGAIN: Final = Method(
    _PUBLISH_PATH, broker_pb2.PublishRequest, broker_pb2.PublishResponse, is_repeatable=True
)


@dataclass
class Workload:
    """See the top of this file."""

    servers: str
    seed: int
    mix: Mix = field(default_factory=Mix)
    history: History = field(default_factory=History)
    hang_s: float = 120.0  # how long anything may take
    event_count: int = 0  # answers of all kinds
    publish_count: int = 0
    """Those of them that said that messages are safe."""
    given_up: list[errors.HourwheelError] = field(default_factory=list)
    """Why clients that try again until there is an answer ended with an error all the same."""
    is_stopping: bool = False
    """No more messages are to be published."""
    clock: SystemClock = field(default_factory=SystemClock)
    principals: Principals | None = None
    """Who the clients are; None: anonymous."""
    guest_grant: GuestGrant | None = None
    """While it runs, where there are principals."""

    def __post_init__(self) -> None:
        """Nothing is connected yet."""
        self.history.groups = groups_of(self.mix)
        self._open: dict[str, set[int]] = defaultdict(set)
        """Topic -> messages that have not come yet."""
        self._to_cancel: asyncio.Queue[int] = asyncio.Queue()
        self._keyed: set[int] = set()
        """Messages that have a key of their own."""
        self._to_move: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        """(serial, where to)."""
        self._changed = asyncio.Event()
        self._asking_count = 0
        self._producing: list[asyncio.Task[None]] = []

    @property
    def open_count(self) -> int:
        """Messages that have not come yet."""
        return sum(map(len, self._open.values()))

    def chooser(self, name: object) -> random.Random:
        """Makes the same choices for the same seed and name."""
        return random.Random(f"{self.seed} {name}")

    # -- life -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Workload]":
        """Load inside, none after it. What an actor raises is raised here."""
        async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
            options = self.options(LOAD)
            channel = await clients.enter_async_context(Channel(self.servers, **options))
            self.admin = await clients.enter_async_context(AsyncAdmin(channel))
            await self._set_up()
            background = [
                tasks.create_task(self._consume(channel, group, number))
                for number, group in enumerate(CONSUMERS)
                if group in self.history.groups
            ]
            background.append(tasks.create_task(self._cancel_some()))
            mover = await clients.enter_async_context(AsyncProducer(channel))
            background.append(tasks.create_task(self._move_some(mover)))
            producer = await clients.enter_async_context(
                AsyncProducer(Channel(self.servers, **options), batch_messages=60)
            )
            callers = range(self.mix.stream_callers)
            self._producing = [
                *(tasks.create_task(self._publish_lists(producer, number)) for number in callers),
                tasks.create_task(self._publish_unary(channel, 1 + self.seed)),
                tasks.create_task(self._publish_unary(channel, 0)),
            ]
            if self.mix.has_transactions:
                of = AsyncTransactions(channel, group="transactions")
                odd = self.history.contradictions
                self.transactions = TransactionClient(of, "beta", self._accept_all, self.fail, odd)
                background.append(tasks.create_task(self.transactions.answer()))
                self._producing.append(tasks.create_task(self._run_transactions()))
            others = publishers(self, producer, self.admin)
            self._producing += [tasks.create_task(one) for one in others]
            if self.mix.has_order:
                unblocker = self.chooser("decide")
                background.append(
                    tasks.create_task(ordered_keys.decide(self.admin, self.history, unblocker))
                )
            watching = watchers(self, channel, self.admin)
            background += [tasks.create_task(one) for one in watching]
            if self.principals is not None:
                as_guest = await clients.enter_async_context(
                    Channel(self.servers, **self.options(GUEST))
                )
                administrator = await clients.enter_async_context(
                    AsyncAdmin(self.servers, **self.options(ADMIN))
                )
                self.guest_grant = GuestGrant(administrator, GUEST_TOPIC, self.history, self.clock)
                self._producing.append(tasks.create_task(self._publish_as_guest(as_guest)))
            yield self
            for task in (*background, *self._producing):
                task.cancel()

    def options(self, name: str) -> dict[str, Any]:
        """Of a client that is this principal."""
        return {} if self.principals is None else self.principals.options(name)

    async def _set_up(self) -> None:
        for topic, queue_count in (TOPICS | QUEUES).items():
            await self.admin.create_topic(topic, queue_count=queue_count)
        times: dict[str, Any] = {"invisible_ms": INVISIBLE_MS, "retry_delay_ms": 50}
        for group in self.history.groups:
            await self.admin.put_group(group, **settings_of(group), **times)
            note_rules(group, self.history)

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Go on until `condition` holds."""
        async with asyncio.timeout(self.hang_s):
            while not condition():
                self._changed.clear()
                # Not `asyncio.wait_for`: Python 3.11's loses a cancellation that meets the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()

    def expect(self, serials: Sequence[int]) -> None:
        """These messages are to come before all is settled."""
        for serial in serials:
            self._open[self.history.sent[serial].topic].add(serial)

    def close(self, serial: int) -> None:
        """This message is not waited for any more."""
        if serial in self.history.sent:
            self._open[self.history.sent[serial].topic].discard(serial)

    def open_in(self, topic: str) -> int:
        """How many messages of the topic have not come yet."""
        return len(self._open[topic])

    def note(self) -> None:
        """An answer came."""
        self.event_count += 1
        self._changed.set()

    async def settle(self) -> None:
        """Publish no more; wait until everything that is not of the far future is done with."""
        self.is_stopping = True
        self._changed.set()
        await asyncio.wait_for(asyncio.gather(*self._producing), self.hang_s)
        await self.wait_for(lambda: not self.open_count)
        async with asyncio.timeout(self.hang_s):
            while not await self._is_drained():
                await self.pass_ms(50)

    async def _is_drained(self) -> bool:
        """Whether nothing is left in the wheel, in a queue, or under way to the node.

        Each is asked for by itself, and a message may move from one to the other in between: due
        when the queues have been looked at, given back when the wheel has. So the wheel is asked
        for twice. Whatever moves is a record in the log: if that did not grow, then all answers are
        of one state.
        """
        before = await self._place_if_wheel_is_empty()
        if before is None:
            return False
        for group in (*self.history.groups, *watched_groups(self.mix)):
            lags = (await self.admin.get_group(group)).lags
            if any(lag.unresolved_count for lag in lags):
                return False
        if await self._place_if_wheel_is_empty() != before:
            return False
        # Last: nothing else runs between this and the end of the load.
        is_quiet = self._to_cancel.empty() and self._to_move.empty()
        return is_quiet and not self._asking_count

    async def _place_if_wheel_is_empty(self) -> tuple[int, int] | None:
        """(epoch, end of the log), as the master says; None where something is due soon.

        None also where another node answered, which may be behind, or where the log's end has not
        been applied. The consumers, on the same channel, lead it to the master.
        """
        status = (await self.admin.status()).shards[0]
        horizon_ms = self.clock.wall_ms() + FAR_MS / 2
        is_known = status.may_act and status.applied_offset == status.log_end_offset
        if not is_known or 0 < status.next_due_ms < horizon_ms:
            return None
        return status.epoch, status.log_end_offset

    async def publish_together(
        self,
        producer: AsyncProducer,
        topic: str,
        serials: list[int],
        messages: Sequence[Message],
        chooser: random.Random,
    ) -> None:
        """Publish messages of these serials as one list, and take down what is said of it."""
        try:
            with self.asking():
                ids = await producer.publish_many(topic, messages)
        except errors.HourwheelError as error:
            self.given_up.append(error)
            self.fail(serials, error)
        else:
            self.accept(serials, list(ids), chooser)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What is asked for inside may happen before its answer has been taken down."""
        self._asking_count += 1
        try:
            yield
        finally:
            self._asking_count -= 1

    async def pass_ms(self, duration_ms: float) -> None:
        """Let the real node have some real time."""
        passed = asyncio.Event()
        duration_s = duration_ms * self.mix.pace / 1_000
        asyncio.get_running_loop().call_later(duration_s, passed.set)
        await passed.wait()

    # -- producers --------------------------------------------------------------------------------

    def make(
        self, topic: str, count: int, chooser: random.Random, *, with_far: bool = True
    ) -> tuple[list[int], list[int], bool]:
        """(serials, times, whether those are delays) of new messages, taken down as sent."""
        now_ms = int(self.clock.wall_ms())
        is_delay = chooser.random() < 0.5
        serials, times = [], []
        for _ in range(count):
            serial = self.history.next_serial()
            delay_ms, is_far = choose_delay(chooser, self.mix, with_far=with_far)
            if not is_delay and chooser.random() < 0.05:
                delay_ms, is_far = -1_000, False  # an instant in the past is at once
            self.history.sent[serial] = Sent(topic, now_ms + delay_ms, now_ms)
            if not is_far:
                self._open[topic].add(serial)
            serials.append(serial)
            times.append(delay_ms if is_delay else now_ms + delay_ms)
        return serials, times, is_delay

    async def room(self, topic: str) -> bool:
        """Wait until more may be published to it; False when nothing is to be any more."""
        await self.wait_for(lambda: self.is_stopping or self.open_in(topic) < self.mix.open_max)
        return not self.is_stopping

    async def _publish_lists(self, producer: AsyncProducer, number: int) -> None:
        """Lists and columns over the stream, idempotent: in the end each of them is accepted."""
        chooser = self.chooser(f"stream {number}")
        topic = chooser.choice(list(TOPICS)) if number > 1 else list(TOPICS)[number]
        while await self.room(topic):
            count = chooser.randint(1, self.mix.batch_messages)
            serials, times, is_delay = self.make(topic, count, chooser)
            try:
                made = [body_of(serial) for serial in serials], times, is_delay
                ids = await publish_list(producer, topic, made, chooser)
            except errors.HourwheelError as error:
                self.given_up.append(error)
                self.fail(serials, error)
            else:
                self._keyed.update(serials)
                self.accept(serials, list(ids), chooser)

    async def _publish_unary(self, channel: Channel, producer_id: int) -> None:
        """Few messages a call, sent again until there is an answer; without a producer id, once."""
        chooser = self.chooser(f"unary {producer_id}")
        first_sequence = 0
        while await self.room("beta"):
            count = chooser.randint(1, 8)
            serials, times, is_delay = self.make("beta", count, chooser, with_far=False)
            request = request_of("beta", serials, times, is_delay=is_delay)
            if producer_id:
                request.producer.producer_id = producer_id
                request.producer.first_sequence = first_sequence
                first_sequence += count
            method = _PUBLISH_AGAIN if producer_id else _PUBLISH_ONCE
            try:
                answer = await channel.call(method, request, timeout_ms=self.hang_s * 1_000)
            except errors.HourwheelError as error:
                if producer_id:  # whether its next number follows is not known: begin another one
                    self.given_up.append(error)
                    producer_id, first_sequence = producer_id + (1 << 32), 0
                self.fail(serials, error)
            else:
                ids = [message_id.parse(one.message_id) for one in answer.messages]
                self.accept(serials, ids, chooser)

    async def _run_transactions(self) -> None:
        """Transactions of few messages, one after the other."""
        chooser = self.chooser("transactions")
        while await self.room("beta"):
            serials, times, is_delay = self.make("beta", chooser.randint(1, 4), chooser)
            self.history.deals.append(tuple(serials))
            messages = [
                Message(body_of(serial), delay_ms=at)
                if is_delay
                else Message(body_of(serial), due_ms=at)
                for serial, at in zip(serials, times, strict=True)
            ]
            await self.transactions.run(serials, messages)
            await self.pass_ms(_TRADE_PAUSE_MS)

    def _accept_all(self, serials: list[int], ids: list[MessageId]) -> None:
        self.accept(serials, ids, self.chooser(serials[0]))

    async def _publish_as_guest(self, channel: Channel) -> None:
        """One message a call, each once: it is let in, or it is not."""
        chooser = self.chooser(GUEST)
        while await self.room(GUEST_TOPIC):
            serials, times, is_delay = self.make(GUEST_TOPIC, 1, chooser, with_far=False)
            request = request_of(GUEST_TOPIC, serials, times, is_delay=is_delay)
            requested_ms, is_ok = self.clock.wall_ms(), True
            try:
                answer = await channel.call(_PUBLISH_ONCE, request, timeout_ms=self.hang_s * 1_000)
            except errors.HourwheelError as error:
                is_ok = False
                self.fail(serials, error)
            else:
                ids = [message_id.parse(one.message_id) for one in answer.messages]
                self.accept(serials, ids, chooser)
            call = GuestCall(requested_ms, self.clock.wall_ms(), is_ok)
            self.history.guest_calls.append(call)
            await self.pass_ms(_GUEST_PAUSE_MS)

    def accept(self, serials: list[int], ids: list[MessageId], chooser: random.Random) -> None:
        """These messages are safe; some of them are to be taken back, or moved."""
        now_ms = self.clock.wall_ms()
        loop = asyncio.get_running_loop()
        for serial, one in zip(serials, ids, strict=True):
            self.history.accepted[serial] = Accepted(one, now_ms)
            if chooser.random() < self.mix.cancel_ratio:
                lag_s = chooser.random() * chooser.random() * 3.0
                loop.call_later(lag_s, self._to_cancel.put_nowait, serial)
            if chooser.random() < self.mix.move_ratio:
                lag_s = chooser.random() * chooser.random() * 2.0
                due_ms = int(now_ms) + chooser.randint(0, 2 * self.mix.delay_ms_max)
                loop.call_later(lag_s, self._to_move.put_nowait, (serial, due_ms))
        self.publish_count += 1
        self.note()

    def fail(self, serials: list[int], error: errors.HourwheelError) -> None:
        """These were refused, or it is unknown."""
        for serial in serials:
            self.close(serial)
        if not is_undecided(error):
            self.history.refused.update(serials)
        self.note()

    # -- cancelling -------------------------------------------------------------------------------

    async def _cancel_some(self) -> None:
        """Take some back, a few of them twice; asked again until there is an answer."""
        chooser = self.chooser("cancel")
        while True:
            serials = [await self._to_cancel.get()]
            while not self._to_cancel.empty() and len(serials) < _CANCELS_AT_ONCE:
                serials.append(self._to_cancel.get_nowait())
            serials += chooser.choices(serials, k=1)
            by_key = chooser.random() < 0.5
            requested_ms = self.clock.wall_ms()
            try:
                with self.asking():
                    outcomes = await self._cancel(serials, by_key=by_key)
            except (errors.HourwheelError, asyncio.CancelledError) as error:
                unanswered = (None, self.clock.wall_ms(), requested_ms)
                self.history.cancels += [Cancel(serial, *unanswered) for serial in serials]
                if isinstance(error, asyncio.CancelledError):
                    raise
                for serial in set(serials):
                    self._to_cancel.put_nowait(serial)
            else:
                now_ms = self.clock.wall_ms()
                for serial, outcome in zip(serials, outcomes, strict=True):
                    self.history.cancels.append(Cancel(serial, outcome, now_ms, requested_ms))
                    if outcome.name == "CANCELLED":
                        self.close(serial)
            self.note()

    async def _cancel(self, serials: list[int], *, by_key: bool) -> list[CancelOutcome]:
        """By the keys that are their own, where they have one and that is wanted; else by id."""
        outcomes: dict[int, CancelOutcome] = {}
        for topic in TOPICS:
            mine = [
                serial
                for serial in serials
                if by_key and serial in self._keyed and self.history.sent[serial].topic == topic
            ]
            if mine:
                keys = [own_key(body_of(serial)) for serial in mine]
                found = await self.admin.cancel_by_keys(topic, keys)
                outcomes.update(zip(mine, (one.outcome for one in found), strict=True))
        rest = [serial for serial in serials if serial not in outcomes]
        if rest:
            ids = [self.history.accepted[serial].message_id for serial in rest]
            outcomes.update(zip(rest, await self.admin.cancel_many(ids), strict=True))
        return [outcomes[serial] for serial in serials]

    async def _move_some(self, producer: AsyncProducer) -> None:
        """Move some to other due times; asked again until there is an answer."""
        while True:
            moving = [await self._to_move.get()]
            while not self._to_move.empty() and len(moving) < _CANCELS_AT_ONCE:
                moving.append(self._to_move.get_nowait())
            ids = [self.history.accepted[serial].message_id for serial, _ in moving]
            requested_ms = self.clock.wall_ms()
            try:
                with self.asking():
                    answers = await producer.reschedule_many(
                        ids, due_ms=[due_ms for _, due_ms in moving]
                    )
            except (errors.HourwheelError, asyncio.CancelledError) as error:
                now_ms = self.clock.wall_ms()
                self.history.moves += [Move(*one, None, now_ms, requested_ms) for one in moving]
                if isinstance(error, asyncio.CancelledError):
                    raise
                for one in moving:
                    self._to_move.put_nowait(one)
            else:
                now_ms = self.clock.wall_ms()
                for one, answer in zip(moving, answers, strict=True):
                    self.history.moves.append(Move(*one, answer.outcome, now_ms, requested_ms))
            self.note()

    # -- consumers --------------------------------------------------------------------------------

    async def _consume(self, channel: Channel, group: str, number: int) -> None:
        topic, attempts_max = self.history.groups[group]
        chooser = self.chooser(f"consumer {number}")
        consumer = AsyncConsumer(
            channel,
            group=group,
            topic=topic,
            prefetch_messages=200,
            unavailable_ms_max=self.hang_s * 1_000,
        )
        try:
            while True:
                try:
                    messages = await consumer.receive(64)
                except errors.HourwheelError as error:
                    self.given_up.append(error)
                    continue
                self._take_down(group, messages)
                if busy_ms := work_ms_max(group):
                    await self.pass_ms(chooser.random() * busy_ms)
                await self._finish(consumer, group, attempts_max, messages, chooser)
        finally:
            with suppress(errors.HourwheelError):
                await consumer.close()

    def _take_down(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        seen_ms = self.clock.wall_ms()
        for one in messages:
            try:
                serial = serial_of(one.body)
            except errors.InvalidBatch:
                serial = None
            self.close(serial or 0)
            epoch, lease_id = resets.lease_of(one)
            times = one.receive_ms, seen_ms, INVISIBLE_MS
            delivery = Delivery(
                group, one.topic, serial, one.message_id, one.attempt, epoch, *times, lease_id
            )
            self.history.deliveries.append(delivery)
        self.note()

    async def _finish(
        self,
        consumer: AsyncConsumer,
        group: str,
        attempts_max: int,
        messages: Sequence[ReceivedMessage],
        chooser: random.Random,
    ) -> None:
        """Acknowledge most, give some back, forget some."""
        done, given_back = [], []
        patience = 4 if attempts_max > 4 else attempts_max + 1
        kept = self.mix.give_back_ratio + self.mix.forget_ratio
        for one in messages:
            chance = chooser.random()
            serial = serial_of(one.body) or 0
            if group in ordered_keys.ORDERED and ordered_keys.is_poison(serial):
                given_back.append(one)
            elif one.attempt >= patience or chance > kept:
                done.append(one)
            elif chance > self.mix.forget_ratio:
                given_back.append(one)
        if done:
            await self._tell(consumer, group, "ack", done, 0)
        if given_back:
            await self._tell(consumer, group, "nack", given_back, chooser.randint(0, 400))

    async def _tell(
        self,
        consumer: AsyncConsumer,
        group: str,
        verb: Verb,
        messages: list[ReceivedMessage],
        delay_ms: int,
    ) -> None:
        requested_ms, is_ok = self.clock.wall_ms(), False
        try:
            # Of some of them it may be done all the same, or an answer was lost.
            with suppress(errors.HourwheelError), self.asking():
                if verb == "ack":
                    await consumer.ack(messages)
                else:
                    await consumer.nack(messages, delay_ms)
                is_ok = True
        finally:
            at_ms = requested_ms, self.clock.wall_ms()
            for one in messages:
                known = serial_of(one.body) or 0, one.attempt, verb, is_ok
                lease = resets.lease_of(one)
                self.history.finishes.append(Finish(group, *known, *at_ms, delay_ms, *lease))
        self.note()
