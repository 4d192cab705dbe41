"""What a stream that is opened anew gets again, in parts: see `test_streams_reopened`."""

from collections.abc import Iterator

import pytest

from hourwheel import errors
from hourwheel.formats.receipt import Receipt
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Delivery, GroupSettings, Selection
from node.contracts.receive_stream import ReceiveStream
from tests.support.stepped_engine import SteppedEngine

GROUP = "billing"
INVISIBLE_MS = 8_000
MESSAGES = 8


@pytest.fixture
def stepped() -> Iterator[SteppedEngine]:
    with SteppedEngine([0]) as engine:
        engine.call(engine.engine.put_group(GROUP, GroupSettings(attempts_max=100)))
        yield engine


class Client:
    """One stream, opened with nothing received."""

    def __init__(self, stepped: SteppedEngine, number: int, credits_count: int) -> None:
        self._stepped = stepped
        self.stream = ReceiveStream(number, stepped.engine.answers, owner="someone")
        self.stream.begin(0, credits_count)
        self.answers: list[Delivery] = []

        def send(delivery: Delivery, held: HeldAnswer) -> None:
            held.end()
            self.answers.append(delivery)

        self.task = stepped.begin(
            stepped.receive_stream(
                *(self.stream, send), group=GROUP, count=32, invisible_ms=INVISIBLE_MS
            )
        )
        stepped.settle()

    def end(self, *, is_given_up: bool = False) -> None:
        """Nothing more is sent of it."""
        self.stream.cut(is_given_up=is_given_up)
        self.task.cancel()
        self._stepped.settle()

    @property
    def attempts(self) -> list[tuple[int, int]]:
        return [
            pair
            for one in self.answers
            for pair in zip(one.units["sequence"], one.units["attempt"], strict=True)
        ]


def with_an_answer(stepped: SteppedEngine, *, is_sent: bool) -> None:
    """Stream 1 got an answer of all messages, and its session broke."""
    client = Client(stepped, 1, 0)
    stepped.call(stepped.publish(*[0] * MESSAGES))
    stepped.settle()
    client.stream.grant(0, 10)
    stepped.settle()
    assert [len(one.units) for one in client.answers] == [MESSAGES]
    if is_sent:
        client.stream.note_sent()
    client.end()


@pytest.mark.parametrize("is_sent", [False, True])
def test_repeat_of_a_topic_that_is_deleted_meanwhile_is_left_out(
    stepped: SteppedEngine, is_sent: bool
) -> None:
    with_an_answer(stepped, is_sent=is_sent)
    client = Client(stepped, 1, 2)
    assert len(client.attempts) == 2
    stepped.call(stepped.engine.delete_topic("orders"))
    stepped.settle()
    client.stream.grant(0, 10)
    stepped.settle()
    assert len(client.attempts) == 2
    stepped.call(stepped.publish(0))
    stepped.settle()
    fresh = Client(stepped, 2, 10)
    assert [attempt for _, attempt in fresh.attempts] == [1]
    for one in (client, fresh):
        one.end()


@pytest.mark.parametrize("is_given_up", [False, True])
def test_rest_of_a_repeat_that_was_never_sent_comes_soon_and_is_no_attempt(
    stepped: SteppedEngine, is_given_up: bool
) -> None:
    with_an_answer(stepped, is_sent=False)
    client = Client(stepped, 1, 2)
    client.stream.note_sent()
    client.end(is_given_up=is_given_up)
    stepped.advance(0 if is_given_up else 5_100)
    other = Client(stepped, 2, 100)
    assert len(other.attempts) == MESSAGES - 2
    assert {attempt for _, attempt in other.attempts} == {1}
    other.end()


def test_lease_that_was_made_longer_stays_so_when_the_rest_is_repeated(
    stepped: SteppedEngine,
) -> None:
    with_an_answer(stepped, is_sent=True)
    client = Client(stepped, 1, 2)
    (first,) = client.answers
    held = Receipt(
        cluster=stepped.engine.shard.cluster,
        epoch=first.epoch,
        group_id=first.group_id,
        topic_queue=first.topic_queue,
        lease_id=first.lease_id,
        first_position=first.first_position,
        index=first.first_ordinal,
        count=2,
    )
    chosen = [Selection(held, first.first_ordinal, 2)]
    stepped.engine.change_invisible(GROUP, chosen, 600_000)
    client.stream.grant(2, 6)
    stepped.settle()
    assert len(client.attempts) == MESSAGES
    for _ in range(3):
        stepped.advance(INVISIBLE_MS)
    other = Client(stepped, 2, 100)
    kept = {sequence for sequence, _ in client.attempts[:2]}
    assert {sequence for sequence, _ in other.attempts} == {
        sequence for sequence, _ in client.attempts[2:]
    }
    assert not kept & {sequence for sequence, _ in other.attempts}, "it has a holder"
    for one in (client, other):
        one.end()


def test_count_that_no_client_can_have_got_is_refused(stepped: SteppedEngine) -> None:
    stream = ReceiveStream(5, stepped.engine.answers, owner="someone")
    with pytest.raises(errors.InvalidArgument) as caught:
        stream.begin((1 << 62) + 1, 10)
    assert caught.value.params["field"] == "received_count"
    largest = ReceiveStream(6, stepped.engine.answers, owner="someone")
    largest.begin(1 << 62, 10)
    task = stepped.begin(
        stepped.receive_stream(
            *(largest, lambda _delivery, held: held.end()),
            group=GROUP,
            count=32,
            invisible_ms=INVISIBLE_MS,
        )
    )
    stepped.call(stepped.publish(0))
    stepped.settle()
    assert largest.sent_count == (1 << 62) + 1
    stepped.transfer()  # with its leases
    task.cancel()
    stepped.settle()
