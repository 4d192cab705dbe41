"""A receive stream is a loop of polls: the same messages, in the same order, by the same limits.

Two engines live the same life by the same clock. One group reads in both: here by a stream, there
by long polls, one after the other, each for as many messages as the stream has credits.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings
from node.contracts.receive_stream import ReceiveStream
from storage.views.catalog_items import GroupOrder
from tests.support.stepped_engine import SteppedEngine

GROUP: Final = "billing"
INVISIBLE_MS: Final = 2_000
Told = tuple[int, int, int]
"""(queue, sequence, attempt)"""


class Reader:
    """A consumer of one engine: what it was told, and what it holds."""

    def __init__(self, stepped: SteppedEngine, credits_count: int, wanted: str | None) -> None:
        self.stepped, self.credits_count, self.wanted = stepped, credits_count, wanted
        self.told: list[Told] = []
        self.held: list[Delivery] = []
        self.unread_count = 0

    def note(self, delivery: Delivery) -> None:
        units = delivery.units
        columns = units["sequence"].tolist(), units["attempt"].tolist()
        self.told += [(delivery.topic_queue, *one) for one in zip(*columns, strict=True)]
        self.held.append(delivery)
        self.unread_count += len(units)

    def begin(self) -> None:
        """Read."""
        raise NotImplementedError

    def read(self) -> None:
        """All that has come is read: there are all credits again."""
        raise NotImplementedError


class Streaming(Reader):
    """By a stream."""

    def begin(self) -> None:
        """See `Reader`."""
        self.stream = ReceiveStream(1, self.stepped.engine.answers)
        self.stream.begin(0, self.credits_count)
        work = self.stepped.receive_stream(
            *(self.stream, self._take),
            group=GROUP,
            count=5,
            invisible_ms=INVISIBLE_MS,
            wanted=self.wanted,
        )
        self.task = self.stepped.begin(work)

    def _take(self, delivery: Delivery, held: HeldAnswer) -> None:
        held.end()
        self.stream.note_sent()
        self.note(delivery)

    def read(self) -> None:
        """See `Reader`."""
        self.unread_count = 0
        self.stream.grant(self.stream.sent_count, self.credits_count)


class Polling(Reader):
    """By one poll after the other."""

    def begin(self) -> None:
        """See `Reader`."""
        self.task = self.stepped.begin(self._poll())

    async def _poll(self) -> None:
        while self.unread_count < self.credits_count:
            delivery = await self.stepped.receive(
                group=GROUP,
                count=min(5, self.credits_count - self.unread_count),
                wait_ms=60_000,
                invisible_ms=INVISIBLE_MS,
                wanted=self.wanted,
            )
            if delivery is not None:
                self.note(delivery)

    def read(self) -> None:
        """See `Reader`."""
        self.task.cancel()
        self.stepped.settle()
        self.unread_count = 0
        self.begin()


_steps = st.one_of(
    st.tuples(
        st.just("publish"),
        st.lists(st.one_of(st.just(0), st.integers(0, 40)), min_size=1, max_size=12),
        st.sampled_from("ab"),
    ),
    st.tuples(st.just("advance"), st.one_of(st.integers(1, 50), st.integers(50, 3_000))),
    st.tuples(st.just("read")),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("nack"), st.integers(0, 9), st.integers(0, 100)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("limit"), st.sampled_from([0, 1, 3]), st.sampled_from([0, 10, 100])),
)


def _begun(reader: Reader, order: GroupOrder) -> None:
    """Its group is there, with nothing behind it, and it reads."""
    stepped = reader.stepped
    stepped.call(stepped.engine.put_group(GROUP, GroupSettings(order=order)))
    reader.begin()
    stepped.settle()


def _do(reader: Reader, step: tuple[object, ...]) -> None:
    stepped, (what, *how) = reader.stepped, step
    actions: dict[object, Callable[..., object]] = {
        "publish": lambda delays, tag: stepped.call(stepped.publish(*sorted(delays), tag=tag)),
        "advance": stepped.advance,
        "read": reader.read,
        "ack": lambda index: _end(reader, index, None),
        "nack": lambda index, delay_ms: _end(reader, index, delay_ms),
        "pause": lambda is_paused: stepped.call(
            stepped.engine.update_group(GROUP, CatalogUpdate(is_paused=is_paused), GroupSettings())
        ),
        "limit": lambda in_flight, per_second: stepped.call(
            stepped.engine.put_group(
                GROUP, GroupSettings(in_flight_max=in_flight, per_second_max=per_second)
            )
        ),
    }
    actions[what](*how)
    stepped.settle()


def _end(reader: Reader, index: int, delay_ms: int | None) -> None:
    """Messages are done with, or given back."""
    if reader.held:
        delivery = reader.held.pop(index % len(reader.held))
        work = reader.stepped.resolve(
            delivery, GROUP, is_ack=delay_ms is None, retry_delay_ms=delay_ms
        )
        reader.stepped.call(work)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(_steps, min_size=3, max_size=25),
    credits_count=st.sampled_from([1, 4, 200]),
    wanted=st.sampled_from([None, "a"]),
    order=st.sampled_from([GroupOrder.NONE, GroupOrder.BLOCK]),
)
def test_a_stream_brings_what_polls_bring(
    steps: list[tuple[object, ...]], credits_count: int, wanted: str | None, order: GroupOrder
) -> None:
    with ExitStack() as stack:
        readers: list[Reader] = [
            kind(stack.enter_context(SteppedEngine()), credits_count, wanted)
            for kind in (Streaming, Polling)
        ]
        for reader in readers:
            _begun(reader, order)
        for step in (*steps, ("read",), ("advance", 5_000)):
            for reader in readers:
                _do(reader, step)
            stream, polls = readers
            assert stream.told == polls.told, step
            assert stream.unread_count <= credits_count
        for reader in readers:
            reader.task.cancel()  # type: ignore[attr-defined]
            reader.stepped.settle()
