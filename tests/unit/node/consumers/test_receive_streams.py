"""Receive streams at a real engine: how they end, and what becomes of answers that got lost."""

from collections.abc import Iterator

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.outcomes import ReceiptOutcome
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings
from node.contracts.ending import Attempt
from node.contracts.group_positions import ResetTarget
from node.contracts.receive_stream import ReceiveStream
from storage.views.catalog_items import GroupOrder
from tests.support.stepped_engine import SteppedEngine

INVISIBLE_MS = 30_000
RETRY_MS = 20_000
"""Longer than a group waits with a message that comes again."""
COMES_BACK_MS = 5_000
"""So long a client whose session broke may take to open its stream again."""
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
        credits_count: int = 100,
        owner: str = "",
    ) -> None:
        self.at = at
        self.answers: list[Delivery] = []
        self.is_jammed = is_jammed
        """What is pushed is not sent."""
        self.stream = ReceiveStream(number, at.engine.answers, owner=owner)
        self.stream.begin(received_count, credits_count)
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
        self.stream.cut(is_given_up=is_given_up)
        self.task.cancel()
        self.at.settle()


@pytest.fixture
def at() -> Iterator[SteppedEngine]:
    with SteppedEngine() as stepped:
        yield stepped


def publish(at: SteppedEngine, *delays_ms: int) -> None:
    at.call(at.publish(*delays_ms))
    at.settle()


def end_leases(at: SteppedEngine) -> None:
    """All of them; what comes again has come by then."""
    at.advance(INVISIBLE_MS)
    at.advance(RETRY_MS)


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


def test_no_more_comes_again_than_there_are_credits(at: SteppedEngine) -> None:
    """A lease of many messages comes in parts, and each of them once."""
    client = Client(at)
    publish(at, *[0] * 7)
    publish(at, 0)
    client.leave(is_given_up=False)
    again = Client(at, credits_count=3)
    publish(at, 0)
    for count, credits_count in ((3, 1), (4, 0), (4, 2), (6, 2), (8, 100)):
        assert len(again.told) == count, "as many as there were credits"
        again.stream.grant(count, credits_count)
        at.settle()
    assert again.told[:8] == client.told
    assert again.answers[0].lease_id == again.answers[3].lease_id == client.answers[0].lease_id
    for one in again.answers:
        assert at.call(at.resolve(one, "billing", is_ack=True)) == [ReceiptOutcome.OK]
    end_leases(at)
    assert len(again.told) == 9


def test_parts_come_again_when_the_session_breaks_once_more(at: SteppedEngine) -> None:
    client = Client(at)
    publish(at, *[0] * 5)
    client.leave(is_given_up=False)
    middle = Client(at, credits_count=2)
    middle.stream.grant(2, 1)
    middle.leave(is_given_up=False)
    again = Client(at, received_count=2)
    assert middle.told == client.told[:3]
    assert again.told == client.told[2:]


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
@pytest.mark.parametrize("wanted", [None, "a"])
def test_what_did_not_arrive_comes_again_from_the_next_master(
    at: SteppedEngine, order: GroupOrder, wanted: str | None
) -> None:
    """Answers got lost with the connection as the master stepped down in order."""
    at.call(at.engine.put_group("billing", GroupSettings(order=order)))
    client = Client(at, wanted=wanted)
    for tag in "abaab":
        at.call(at.publish(0, 0, tag=tag))
    at.settle()
    at.transfer()
    at.transfer()
    other = Client(at, number=2, wanted=wanted)
    again = Client(at, received_count=2, wanted=wanted)
    assert again.told == client.told[2:]
    assert not other.told
    for delivery in again.answers:
        assert at.call(at.resolve(delivery, "billing", is_ack=True)) == [ReceiptOutcome.OK]
    end_leases(at)
    late = [*other.told, *again.told[len(client.told) - 2 :]]
    assert [attempt for _, attempt in late] == [2, 2]


def test_a_poll_of_the_same_number_gets_nothing_of_a_stream_of_the_master_before(
    at: SteppedEngine,
) -> None:
    Client(at)
    publish(at, 0)
    at.transfer()
    assert at.call(at.receive(attempt=Attempt(1, 1))) is None


def test_nobody_else_opens_a_stream_again(at: SteppedEngine) -> None:
    alice = Client(at, owner="alice")
    publish(at, 0)
    assert not Client(at, owner="mallory").told
    assert not alice.task.done()
    alice.leave(is_given_up=False)
    assert not Client(at, owner="mallory").told
    at.transfer()
    assert not Client(at, owner="mallory").told
    assert Client(at, owner="alice").told == alice.told


def test_streams_that_ended_are_kept_when_somebody_else_has_very_many(
    at: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.consumers.receive_streams.KEPT_MAX", 4)
    clients = [Client(at, owner="alice")]
    publish(at, 0)
    clients[0].leave(is_given_up=False)
    for number in range(1, 8):
        clients.append(Client(at, number, owner="mallory"))
        publish(at, 0)
        clients[-1].leave(is_given_up=False)
    assert Client(at, owner="alice").told == clients[0].told
    assert not Client(at, 1, owner="mallory").told, "the oldest of whoever has most"
    assert Client(at, 7, owner="mallory").told == clients[7].told


def test_who_waits_gets_retries_when_the_group_was_reset_while_the_node_might_not_act(
    at: SteppedEngine,
) -> None:
    """The lease of the mastership ran out as the record was applied."""
    client = Client(at)
    publish(at, 0)
    catalog = at.opened.shard.views.catalog
    of = catalog.get_group("billing").group_id, catalog.get_topic("orders").topic_id
    before = catalog.find_subscription(*of)
    resetting = at.begin(
        at.engine.reset_group("billing", "orders", ResetTarget(None), count_only=False)
    )
    while catalog.find_subscription(*of) == before:  # one turn of the loop after the other
        at.loop.call_soon(at.loop.stop)
        at.loop.run_forever()
    at.gate.is_lapsed = True
    at.settle()
    with pytest.raises(errors.Timeout):
        resetting.result()
    at.gate.is_lapsed = False
    at.engine.resume()
    at.settle()
    assert [attempt for _, attempt in client.told] == [1, 1]
    at.call(at.resolve(client.answers[-1], "billing", is_ack=False, retry_delay_ms=100))
    at.advance(100)
    assert [attempt for _, attempt in client.told] == [1, 1, 2]


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
    client.leave(is_given_up=False)
    other = Client(at, number=2)
    at.advance(COMES_BACK_MS - 1)
    assert not other.told
    at.advance(1)
    assert other.told == client.told, "nobody has seen it: that was no attempt"


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
@pytest.mark.parametrize("wanted", [None, "a"])
def test_what_was_never_sent_is_as_if_never_leased_when_the_stream_is_given_up(
    at: SteppedEngine, order: GroupOrder, wanted: str | None
) -> None:
    """Even of a group that tries once, and however often: nobody has seen it."""
    at.call(at.engine.put_group("billing", GroupSettings(attempts_max=1, order=order)))
    other = Client(at, 2, wanted=wanted, credits_count=0)
    for number in range(5):
        client = Client(at, 10 + number, wanted=wanted, is_jammed=True)
        if not number:
            for tag in "abaab":
                at.call(at.publish(0, 0, tag=tag))
        at.settle()
        assert len(client.told) == (10 if wanted is None else 6), number
        client.leave(is_given_up=True)
        assert client.task.cancelled()
        assert not at.mastership.receiver.leases.count
    other.stream.grant(0, 100)
    at.settle()
    assert sorted(other.told) == sorted(client.told)
    for delivery in other.answers:
        assert set(at.call(at.resolve(delivery, "billing", is_ack=True))) == {ReceiptOutcome.OK}
    end_leases(at)
    assert not Client(at, 3, wanted=wanted).told
    assert at.engine.stats.lease_expirations == 0


def test_what_was_never_sent_goes_to_the_next_master_as_if_never_leased(
    at: SteppedEngine,
) -> None:
    client = Client(at, is_jammed=True)
    publish(at, 0)
    client.leave(is_given_up=False)
    at.transfer()
    assert Client(at, number=2).told == client.told


def test_only_what_was_not_sent_is_given_back_when_a_lease_came_again_in_parts(
    at: SteppedEngine,
) -> None:
    first = Client(at)
    publish(at, 0, 0, 0, 0)
    first.leave(is_given_up=False)
    again = Client(at, credits_count=2)
    again.is_jammed = True
    again.stream.grant(2, 2)
    assert again.told == first.told
    again.leave(is_given_up=True)
    leases = at.mastership.receiver.leases
    assert leases.next_end_ms() == at.now_ms + INVISIBLE_MS, "the client holds the first two"
    assert at.engine.stats.lease_expirations == 1, "the others may have been seen by now"


def test_nothing_is_leased_for_a_stream_that_its_client_has_given_up(at: SteppedEngine) -> None:
    """Room, credits or messages that come in the same moment bring nothing more to it."""
    idle, waiting = Client(at, 1, credits_count=0), Client(at, 2)
    for client in (idle, waiting):
        client.stream.cut(is_given_up=True)
        client.stream.grant(0, 100)
        client.stream.look()
    publish(at, 0)
    idle.stream.look()
    assert not idle.told
    assert not waiting.told
    assert not at.mastership.receiver.leases.count


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
