"""Stories of one producer; what holds in all of them: tests/property/test_inflight_batches.py."""

from collections.abc import Sequence

import pytest

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns
from hourwheel.client.inflight_batches import InflightBatches, Part, Published
from hourwheel.formats.record_batch import unpack_header
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import Backoff, Failure
from hourwheel.v1.broker_pb2 import PublishStreamRequest

CUT = Failure(errors.Unavailable("cut"), is_definite=False)


def build(name: str, producer_id: int, first_sequence: int) -> bytes:
    draft = batch_builder.draft_columns(Columns(bodies=[name.encode()] * 2))
    return batch_builder.build(draft, producer_id, first_sequence)


def take_apart(names: str, producer_id: int, first_sequence: int) -> list[Part[str]]:
    step = 2 if producer_id else 0
    return [
        Part(name, build(name, producer_id, first_sequence + step * at), 2, name)
        for at, name in enumerate(names)
    ]


class Story:
    """A window, and what its shell would see. Batches have 2 messages and are named by letters."""

    def __init__(self, *, is_idempotent: bool = True) -> None:
        self.ids = iter(range(100, 200))
        self.window: InflightBatches[str] = InflightBatches(
            make_producer_id=(lambda: next(self.ids)) if is_idempotent else None,
            take_apart=take_apart,
            backoff=Backoff(ms_min=10.0, ms_max=10.0),
            random=lambda: 1.0,
            answer_timeout_ms=1_000.0,
        )
        self.base = 0

    def submit(self, names: str, *, deadline_ms: float = 5_000.0) -> None:
        for name in names:
            raw = build(name, *self.window.next_position())
            self.window.submit((("t", 2),), raw, name, deadline_ms=deadline_ms)

    def submit_joined(self, names: str) -> None:
        """One batch that has 2 messages for each of these topics."""
        draft = batch_builder.draft_columns(Columns(bodies=[names.encode()] * 2 * len(names)))
        raw = batch_builder.build(draft, *self.window.next_position())
        topics = tuple((name, 2) for name in names)
        self.window.submit(topics, raw, names, deadline_ms=5_000.0)

    def sent(self, now_ms: float = 0.0) -> list[tuple[str, int, int]]:
        """(name, producer id, first number) of each batch that is to be sent now."""
        found = []
        for batch in self.window.take_sendable(now_ms):
            header = unpack_header(batch.raw)
            assert header.producer_id == batch.producer_id
            assert header.producer_sequence == batch.first_sequence
            found.append((batch.token, batch.producer_id, batch.first_sequence))
        return found

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.window.on_published(Published(0, 1, self.base, 0, is_duplicate=False))
            self.base += 2

    def refuse(self, *failures: errors.HourwheelError, now_ms: float = 0.0) -> None:
        for error in failures:
            self.window.on_refused(now_ms, error)

    def settled(self) -> list[tuple[str, object]]:
        """(name, error class or first sequence) of each settled batch."""
        return [
            (
                batch.token,
                outcome.base_sequence if isinstance(outcome, Published) else type(outcome),
            )
            for batch, outcome in self.window.take_settled()
        ]


def test_window_when_all_goes_well() -> None:
    story = Story()
    story.submit("abcde")
    assert not story.window.has_room
    assert story.sent() == [(name, 100, 2 * n) for n, name in enumerate("abcde")]
    assert story.sent() == []
    story.publish(2)
    assert story.settled() == [("a", 0), ("b", 2)]
    story.submit("f")
    assert story.sent() == [("f", 100, 10)]
    story.publish(4)
    assert story.settled() == [("c", 4), ("d", 6), ("e", 8), ("f", 10)]
    assert story.window.is_idle
    assert story.window.find_next_wakeup_ms() is None


def test_window_when_the_stream_breaks() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.publish()
    story.window.on_broken(100.0, CUT)
    story.submit("d")
    assert story.window.find_next_wakeup_ms() == 110.0
    assert story.sent(109.0) == []
    assert story.sent(110.0) == [("b", 100, 2), ("c", 100, 4)]
    assert story.sent(110.0) == []  # "d" waits until it is known what became of the others
    story.publish(2)
    assert story.sent(111.0) == [("d", 100, 6)]
    story.publish()
    assert story.settled() == [("a", 0), ("b", 2), ("c", 4), ("d", 6)]


def test_window_when_no_node_was_reached() -> None:
    story = Story(is_idempotent=False)
    story.submit("ab")
    story.sent()
    story.window.on_broken(0.0, Failure(errors.Unavailable(), is_definite=True))
    assert [name for name, *_ in story.sent(10.0)] == ["a", "b"]


def test_window_when_refused_for_now() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.refuse(errors.Overloaded())
    assert story.sent(50.0) == []  # the answers for "b" and "c" are still to come
    story.refuse(errors.OutOfOrderSequence(), errors.OutOfOrderSequence())
    assert story.settled() == []
    assert story.sent(50.0) == [("a", 100, 0), ("b", 100, 2), ("c", 100, 4)]
    story.publish(3)
    assert story.settled() == [("a", 0), ("b", 2), ("c", 4)]


def test_window_when_refused_for_good() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.publish()
    story.refuse(errors.BeyondHorizon(), errors.OutOfOrderSequence())
    assert story.settled() == [("a", 0), ("b", errors.BeyondHorizon)]
    story.submit("d")
    assert story.sent() == [("c", 100, 2), ("d", 100, 4)]


def test_window_when_the_first_is_refused_for_good() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.refuse(errors.BeyondHorizon(), errors.UnknownProducer())
    assert story.sent() == [("b", 100, 0)]


def test_window_when_it_is_unknown_whether_a_refused_batch_was_taken_before() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.window.on_broken(0.0, CUT)
    assert story.sent(10.0) == [("a", 100, 0), ("b", 100, 2), ("c", 100, 4)]
    story.refuse(errors.InvalidTopic(), errors.OutOfOrderSequence(), errors.OutOfOrderSequence())
    # Copies of "b" and "c" may still be on their way: they must not go again under other numbers.
    assert story.settled() == [(name, errors.Timeout) for name in "abc"]
    story.submit("d")
    assert story.sent(20.0) == [("d", 101, 0)]


@pytest.mark.parametrize("refusal", [errors.OutOfOrderSequence(), errors.UnknownProducer()])
def test_batch_that_may_still_be_on_its_way_keeps_its_numbers(
    refusal: errors.HourwheelError,
) -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.refuse(errors.InvalidTopic())
    story.window.on_broken(0.0, CUT)  # "b" is somewhere in between
    story.submit("c")
    assert story.sent(10.0) == [("b", 100, 2)]
    story.refuse(refusal)
    assert story.settled() == [("a", errors.InvalidTopic), ("b", errors.Timeout)]
    assert story.sent(20.0) == [("c", 101, 0)]


def test_batch_that_may_still_be_on_its_way_goes_again_where_nothing_is_missing() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.window.on_broken(0.0, CUT)
    story.sent(10.0)
    story.refuse(errors.Overloaded(), errors.OutOfOrderSequence(), now_ms=10.0)
    assert story.sent(30.0) == [("a", 100, 0), ("b", 100, 2)]
    story.refuse(errors.InvalidTopic(), errors.OutOfOrderSequence(), now_ms=30.0)
    assert story.settled() == [("a", errors.Timeout), ("b", errors.Timeout)]


def test_window_when_an_unsure_batch_is_out_of_order_for_no_reason() -> None:
    story = Story()
    story.submit("a")
    story.sent()
    story.window.on_broken(0.0, CUT)
    story.sent(10.0)
    story.refuse(errors.OutOfOrderSequence())
    assert story.settled() == [("a", errors.Timeout)]


def test_window_when_a_later_batch_overtook_an_earlier_one() -> None:
    """A node that has to wait for the first one's topic may look at the second one before."""
    story = Story()
    story.submit("ab")
    story.sent()
    story.publish()
    story.refuse(errors.OutOfOrderSequence())
    assert story.sent(9.0) == []
    assert story.sent(10.0) == [("b", 101, 0)]
    story.publish()
    assert story.settled() == [("a", 0), ("b", 2)]


def test_window_when_one_was_taken_before_the_break() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.window.on_broken(0.0, CUT)
    story.sent(10.0)
    story.window.on_published(Published(0, 1, 0, 0, is_duplicate=True))
    story.window.on_published(Published(0, 1, 2, 0, is_duplicate=False))
    assert story.settled() == [("a", 0), ("b", 2)]


def test_window_when_the_producer_was_forgotten_while_idle() -> None:
    story = Story()
    story.submit("a")
    story.sent()
    story.publish()
    story.submit("bc")
    assert story.sent() == [("b", 100, 2), ("c", 100, 4)]
    story.refuse(errors.UnknownProducer(), errors.UnknownProducer())
    assert story.sent() == [("b", 101, 0), ("c", 101, 2)]


def test_window_when_the_producer_was_forgotten_after_a_break() -> None:
    story = Story()
    story.submit("a")
    story.sent()
    story.publish()
    story.submit("bc")
    story.sent()
    story.window.on_broken(0.0, CUT)
    story.submit("d")
    story.sent(10.0)
    story.refuse(errors.UnknownProducer(), errors.UnknownProducer())
    assert story.settled() == [("a", 0)]
    assert story.sent(20.0) == [("b", 101, 0), ("c", 101, 2), ("d", 101, 4)]


def test_window_when_the_node_lost_what_it_had_taken() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.refuse(errors.OutOfOrderSequence(), errors.OutOfOrderSequence())
    assert story.sent(10.0) == [("a", 101, 0), ("b", 101, 2)]


def test_window_when_a_deadline_is_over() -> None:
    story = Story()
    story.submit("ab", deadline_ms=50.0)
    story.sent()
    story.submit("c", deadline_ms=50.0)
    story.refuse(errors.DiskFull())
    story.submit("d")
    assert story.window.find_next_wakeup_ms() == 50.0
    story.window.expire(50.0)
    assert story.settled() == [
        ("a", errors.DiskFull),
        ("b", errors.Timeout),
        ("c", errors.Unavailable),
    ]
    assert story.sent(60.0) == []  # the answer for "b" may still come
    story.refuse(errors.OutOfOrderSequence())
    assert story.sent(60.0) == [("d", 101, 0)]


def test_window_when_an_answer_is_overdue() -> None:
    story = Story()
    story.submit("a")
    story.sent(5.0)
    assert story.window.find_next_wakeup_ms() == 1_005.0
    assert not story.window.is_overdue(1_004.0)
    assert story.window.is_overdue(1_005.0)


def test_window_when_not_idempotent() -> None:
    story = Story(is_idempotent=False)
    story.submit("abcd")
    assert story.sent() == [(name, 0, 0) for name in "abcd"]
    story.refuse(errors.Overloaded())
    story.publish()
    story.refuse(errors.Timeout())
    story.window.on_broken(0.0, CUT)
    assert story.settled() == [("b", 0), ("c", errors.Timeout), ("d", errors.Timeout)]
    assert story.sent(20.0) == [("a", 0, 0)]


def test_window_when_the_stream_ends_for_good() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.submit("c")
    story.window.on_broken(0.0, Failure(errors.HourwheelError("no such method"), is_definite=True))
    assert story.settled() == [(name, errors.HourwheelError) for name in "abc"]


def test_window_when_an_answer_comes_for_nothing() -> None:
    with pytest.raises(errors.Internal):
        Story().publish()


def test_window_when_given_up() -> None:
    story = Story()
    story.submit("a")
    story.sent()
    story.submit("b")
    story.window.give_up(errors.Cancelled())
    assert story.settled() == [("a", errors.Timeout), ("b", errors.Cancelled)]


def test_submit_when_there_is_no_room() -> None:
    story = Story()
    story.submit("abcde")
    with pytest.raises(errors.InvariantViolated):
        story.submit("f")


def names_of(sent: Sequence[tuple[str, int, int]]) -> str:
    return "".join(name for name, *_ in sent)


def test_window_when_a_later_batch_stays_unsure() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.window.on_broken(0.0, CUT)
    story.sent(10.0)
    story.refuse(errors.Overloaded(), errors.OutOfOrderSequence(), errors.Overloaded())
    story.submit("d")
    assert names_of(story.sent(50.0)) == "abc"
    story.publish(3)
    assert names_of(story.sent(50.0)) == "d"


def test_broken_when_another_node_is_to_be_asked_at_once() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    story.window.on_broken(5.0, CUT, Move.AT_ONCE)
    assert story.sent(5.0) == [("a", 100, 0), ("b", 100, 2)]
    story.window.on_broken(6.0, CUT)
    assert story.sent(15.9) == []
    assert story.sent(16.0) == [("a", 100, 0), ("b", 100, 2)]


def test_refused_when_this_is_no_longer_the_master() -> None:
    story = Story()
    story.submit("abc")
    story.sent()
    story.publish()
    story.window.on_refused(5.0, errors.NotMaster(), Move.AT_ONCE)
    story.window.on_broken(5.0, Failure(errors.NotMaster(), is_definite=False), None)
    assert story.sent(5.0) == [("b", 100, 2), ("c", 100, 4)]
    story.publish(2)
    assert story.settled() == [("a", 0), ("b", 2), ("c", 4)]


def test_oldest_sent_when_some_are_answered() -> None:
    story = Story()
    assert story.window.oldest_sent_ms is None
    assert story.window.oldest_topic is None
    story.submit("a")
    story.sent(3.0)
    story.submit("b")
    story.sent(4.0)
    assert story.window.oldest_sent_ms == 3.0
    assert story.window.oldest_topic == "t"
    story.publish()
    assert story.window.oldest_sent_ms == 4.0
    story.publish()
    assert story.window.oldest_sent_ms is None


def test_producer_id_when_nothing_was_published() -> None:
    """A process that forks must not give one id to each of its children."""
    story = Story()
    assert next(story.ids) == 100
    assert story.window.next_position() == (101, 0)
    assert story.window.next_position() == (101, 0)
    assert Story(is_idempotent=False).window.next_position() == (0, 0)


@pytest.mark.parametrize(
    ("is_idempotent", "others"),
    [(True, []), (False, [("a", errors.Timeout)])],
)
def test_batch_that_grpc_lets_nobody_read_fails_alone(
    others: list[tuple[str, object]], *, is_idempotent: bool
) -> None:
    story = Story(is_idempotent=is_idempotent)
    story.submit("a")
    draft = batch_builder.draft_columns(Columns(bodies=[bytes(1_000)]))
    raw = batch_builder.build(draft, *story.window.next_position())
    story.window.submit((("t", 1),), raw, "large", deadline_ms=5_000.0)
    story.submit("b")
    story.sent()
    size_bytes = PublishStreamRequest(topic="t", record_batch=raw).ByteSize()
    error = errors.MessageTooLarge("too large", bytes=size_bytes)
    story.window.on_broken(0.0, Failure(error, is_definite=False))
    assert story.settled() == [*others, ("large", errors.MessageTooLarge)]
    # "a" may have been taken; "b" was behind the large one.
    if is_idempotent:
        assert story.sent(100.0) == [("a", 100, 0)]
        story.publish()
        assert story.sent(200.0) == [("b", 100, 2)]
    else:
        assert story.sent(100.0) == [("b", 0, 0)]


def test_all_batches_fail_when_grpc_does_not_say_which_is_too_large() -> None:
    story = Story()
    story.submit("ab")
    story.sent()
    error = errors.MessageTooLarge("too large", bytes=9_999)
    story.window.on_broken(0.0, Failure(error, is_definite=False))
    assert story.settled() == [("a", errors.Timeout), ("b", errors.Timeout)]


def test_batch_of_many_topics_goes_apart_when_it_is_refused_for_good() -> None:
    story = Story()
    story.submit("a")
    story.submit_joined("pqr")
    story.submit("b")
    assert story.sent() == [("a", 100, 0), ("pqr", 100, 2), ("b", 100, 8)]
    story.publish()
    story.refuse(errors.InvalidTopic("one of them"), errors.OutOfOrderSequence("8"))
    assert story.settled() == [("a", 0)]
    # Each under the numbers that it had: what was taken before would be recognised.
    assert story.sent() == [("p", 100, 2), ("q", 100, 4), ("r", 100, 6), ("b", 100, 8)]
    story.publish()
    story.refuse(errors.InvalidTopic("q"), *[errors.OutOfOrderSequence("behind it")] * 2)
    assert story.settled() == [("p", 2), ("q", errors.InvalidTopic)]
    assert story.sent() == [("r", 100, 4), ("b", 100, 6)]


def test_batch_of_many_topics_goes_apart_when_it_may_have_been_taken() -> None:
    story = Story()
    story.submit_joined("pq")
    story.sent()
    story.window.on_broken(0.0, CUT)
    assert story.sent(20.0) == [("pq", 100, 0)]
    story.refuse(errors.InvalidTopic("this node is an older one"))
    assert story.sent(20.0) == [("p", 100, 0), ("q", 100, 2)]
    story.publish()
    story.refuse(errors.InvalidTopic("it was deleted meanwhile"))
    assert story.settled() == [("p", 0), ("q", errors.Timeout)]


def test_no_more_are_under_way_than_a_node_remembers_when_a_batch_went_apart() -> None:
    story = Story()
    story.submit_joined("pqrstuv")
    story.sent()
    story.refuse(errors.InvalidTopic("one of them"))
    assert [name for name, _, _ in story.sent()] == list("pqrst")
    assert not story.window.has_room
    story.publish()
    assert [name for name, _, _ in story.sent()] == ["u"]
    story.publish(3)
    assert [name for name, _, _ in story.sent()] == ["v"]
    assert story.window.has_room


def test_batch_of_many_topics_fails_when_not_idempotent_and_nobody_knows_of_it() -> None:
    story = Story(is_idempotent=False)
    story.submit_joined("pq")
    story.submit_joined("rs")
    story.sent()
    story.refuse(errors.Timeout("nobody knows"), errors.InvalidTopic("one of them"))
    assert story.settled() == [("pq", errors.Timeout)]
    assert story.sent() == [("r", 0, 0), ("s", 0, 0)]


def test_batch_of_many_topics_goes_apart_when_grpc_lets_nobody_read_it() -> None:
    story = Story()
    story.submit_joined("pq")
    (batch,) = story.window.take_sendable(0.0)
    error = errors.MessageTooLarge("too large", bytes=batch.request().ByteSize())
    story.window.on_broken(0.0, Failure(error, is_definite=False))
    assert story.sent(100.0) == [("p", 100, 0), ("q", 100, 2)]


def test_batch_waits_as_long_as_its_node_says_where_a_quota_is_used_up() -> None:
    story = Story(is_idempotent=False)
    story.submit("a")
    story.sent()
    story.refuse(errors.QuotaExceeded(retry_after_ms=700))
    assert story.sent(699.0) == []
    assert [name for name, *_ in story.sent(700.0)] == ["a"]
    story.refuse(errors.QuotaReached())
    assert story.settled() == [("a", errors.QuotaReached)]
