"""Receive streams at a real engine: how they end, and what becomes of answers that got lost."""

from collections.abc import Iterator

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings
from node.contracts.receive_stream import ReceiveStream
from tests.support.stepped_engine import SteppedEngine

INVISIBLE_MS = 30_000
RETRY_MS = 20_000
"""Longer than a group waits with a message that comes again."""
LOOK_MS = 10_000
"""So often a stream is asked whether there still is what it reads."""


class Client:
    """A stream, and what came of it."""

    def __init__(
        self,
        at: SteppedEngine,
        number: int = 1,
        received_count: int = 0,
        wanted: str | None = None,
        *,
        is_jammed: bool = False,
    ) -> None:
        self.at = at
        self.answers: list[Delivery] = []
        self.is_jammed = is_jammed
        """What is pushed is not sent."""
        self.stream = ReceiveStream(number, at.engine.answers)
        self.stream.begin(received_count, 100)
        work = at.receive_stream(self.stream, self._take, invisible_ms=INVISIBLE_MS, wanted=wanted)
        self.task = at.begin(work)
        at.settle()

    def _take(self, delivery: Delivery, held: HeldAnswer) -> None:
        held.end()
        self.answers.append(delivery)
        if not self.is_jammed:
            self.stream.note_sent()

    @property
    def told(self) -> list[tuple[int, int]]:
        """(sequence, attempt) of each message."""
        columns = [(one.units["sequence"], one.units["attempt"]) for one in self.answers]
        return [(int(a), int(b)) for each in columns for a, b in zip(*each, strict=True)]

    def leave(self, *, is_given_up: bool) -> None:
        """Give it up, or lose the session."""
        self.stream.is_cut, self.stream.is_given_up = True, is_given_up
        self.task.cancel()
        self.at.settle()


@pytest.fixture
def at() -> Iterator[SteppedEngine]:
    with SteppedEngine() as stepped:
        yield stepped


def publish(at: SteppedEngine, *delays_ms: int) -> None:
    at.call(at.publish(*delays_ms))
    at.settle()


def test_each_message_is_pushed_when_it_becomes_visible(at: SteppedEngine) -> None:
    client = Client(at)
    publish(at, 100, 200, 300)
    for count in (1, 2, 3):
        at.advance(99)
        assert len(client.told) == count - 1
        at.advance(1)
        assert len(client.told) == count
    assert [attempt for _, attempt in client.told] == [1, 1, 1]


def test_streams_of_a_group_take_turns(at: SteppedEngine) -> None:
    clients = [Client(at, number) for number in (1, 2)]
    for _ in range(4):
        publish(at, 0)
    assert [len(client.told) for client in clients] == [2, 2]


def test_a_stream_ends_when_the_node_steps_down(at: SteppedEngine) -> None:
    idle, waiting = Client(at, 1), Client(at, 2)
    idle.stream.grant(0, 0)
    at.step_down()
    at.settle()
    for client in (idle, waiting):
        with pytest.raises(errors.NotMaster):
            client.task.result()


def test_a_stream_ends_when_the_group_wants_something_else(at: SteppedEngine) -> None:
    client = Client(at, wanted="a")
    other = at.begin(at.engine.put_subscription("billing", "orders", FilterExpression.tags("b")))
    at.settle()
    other.result()
    with pytest.raises(errors.SubscriptionMismatch):
        client.task.result()


def test_a_stream_ends_in_order_when_its_group_is_deleted(at: SteppedEngine) -> None:
    client = Client(at)
    at.call(at.engine.delete_group("billing"))
    at.advance(LOOK_MS)
    assert client.task.result() is None


def test_nothing_is_pushed_while_the_group_is_paused(at: SteppedEngine) -> None:
    client = Client(at)
    pausing = CatalogUpdate(is_paused=True)
    at.call(at.engine.update_group("billing", pausing, GroupSettings()))
    publish(at, 0)
    assert not client.told
    going_on = CatalogUpdate(is_paused=False)
    at.call(at.engine.update_group("billing", going_on, GroupSettings()))
    at.settle()
    assert len(client.told) == 1


def test_what_did_not_arrive_comes_again_when_the_stream_is_opened_again(
    at: SteppedEngine,
) -> None:
    """By the same leases: no attempt is lost, and nobody else gets it."""
    client = Client(at)
    for _ in range(3):
        publish(at, 0)
    client.leave(is_given_up=False)
    again = Client(at, received_count=1)
    assert again.told == client.told[1:]
    assert [one.lease_id for one in again.answers] == [one.lease_id for one in client.answers[1:]]
    at.advance(INVISIBLE_MS - 1)
    assert len(again.told) == 2


def test_what_did_not_arrive_comes_again_when_the_node_has_not_seen_the_session_break(
    at: SteppedEngine,
) -> None:
    client = Client(at)
    publish(at, 0)
    again = Client(at)
    assert client.task.result() is None
    assert again.told == client.told
    publish(at, 0)
    assert len(again.told) == 2
    assert len(client.told) == 1


def test_what_arrived_does_not_come_again(at: SteppedEngine) -> None:
    client = Client(at)
    publish(at, 0)
    client.stream.grant(1, 100)
    client.leave(is_given_up=False)
    assert not Client(at, received_count=1).told


def test_a_stream_of_another_number_gets_nothing_of_what_was_lost(at: SteppedEngine) -> None:
    client = Client(at)
    publish(at, 0)
    client.leave(is_given_up=False)
    other = Client(at, number=2)
    at.advance(INVISIBLE_MS - 1)
    assert not other.told
    at.advance(1)
    at.advance(RETRY_MS)
    assert [attempt for _, attempt in other.told] == [2]


def test_what_was_never_sent_comes_soon_when_a_session_breaks(at: SteppedEngine) -> None:
    client = Client(at, is_jammed=True)
    publish(at, 0)
    lease_until_ms = at.now_ms + INVISIBLE_MS
    client.leave(is_given_up=False)
    other = Client(at, number=2)
    assert not other.told
    at.advance(5_000)
    at.advance(RETRY_MS)
    assert at.now_ms < lease_until_ms
    assert [attempt for _, attempt in other.told] == [2]


def test_what_was_never_sent_is_given_back_when_the_stream_is_given_up(at: SteppedEngine) -> None:
    client = Client(at, is_jammed=True)
    publish(at, 0)
    client.leave(is_given_up=True)
    leases = at.mastership.receiver.leases
    at.settle()
    assert leases.next_end_ms() is None
    assert client.task.cancelled()


def test_leases_stay_when_a_stream_is_given_up_behind_what_was_sent(at: SteppedEngine) -> None:
    client = Client(at)
    publish(at, 0)
    client.leave(is_given_up=True)
    assert at.mastership.receiver.leases.next_end_ms() == at.now_ms + INVISIBLE_MS
    again = Client(at)
    at.advance(INVISIBLE_MS - 1)
    assert not again.told


def test_a_stream_has_no_filter_of_its_own_when_its_topic_is_the_clusters(
    at: SteppedEngine,
) -> None:
    async def open_one() -> None:
        stream = ReceiveStream(1, at.engine.answers)
        await at.receive_stream(
            stream, lambda *_: None, topic="%DLQ%billing", wanted="a", group="audit"
        )

    Client(at)
    with pytest.raises(errors.InvalidArgument):
        at.call(open_one())
