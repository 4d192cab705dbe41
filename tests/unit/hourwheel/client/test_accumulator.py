from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.client import batch_builder
from hourwheel.client.accumulator import Accumulator, Joining, Piece
from hourwheel.client.batch_builder import Columns, Draft


def draft(count: int, body: bytes = b"x" * 56, *, is_relative: bool = True) -> Draft:
    times = [0] * count
    columns = Columns(
        bodies=[body] * count,
        delay_ms=times if is_relative else None,
        due_ms=None if is_relative else times,
    )
    return batch_builder.draft_columns(columns)


def accumulator(*, linger_ms: float = 10.0) -> Accumulator[str]:
    return Accumulator(messages_max=10, bytes_max=1_500, linger_ms=linger_ms)


def tokens(taken: list[Piece[str]] | None) -> object:
    return taken and (taken[0].topic, [piece.token for piece in taken])


def test_take_when_nothing_waits() -> None:
    empty = accumulator()
    assert empty.take(0.0) is None
    assert empty.find_next_wakeup_ms() is None
    assert not empty


def test_take_when_drafts_have_waited_enough() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "a", 100.0)
    waiting.add("t", draft(1), "b", 105.0)
    assert waiting
    assert waiting.find_next_wakeup_ms() == 110.0
    assert waiting.take(109.0) is None
    assert tokens(waiting.take(110.0)) == ("t", ["a", "b"])
    assert not waiting


def test_take_when_flushing() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "a", 100.0)
    assert tokens(waiting.take(100.0, is_flushing=True)) == ("t", ["a"])


def test_take_when_the_batch_is_full_by_count() -> None:
    waiting = accumulator()
    for name, count in (("a", 4), ("b", 4), ("c", 4), ("d", 6)):
        waiting.add("t", draft(count), name, 0.0)
    assert tokens(waiting.take(0.0)) == ("t", ["a", "b"])
    assert tokens(waiting.take(0.0)) == ("t", ["c", "d"])
    assert waiting.take(0.0) is None


def test_take_when_the_batch_is_full_by_bytes() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1, b"x" * 1_000), "a", 0.0)
    assert waiting.take(0.0) is None
    waiting.add("t", draft(1, b"x" * 1_000), "b", 0.0)
    assert tokens(waiting.take(0.0)) == ("t", ["a"])
    assert waiting.take(0.0) is None
    assert tokens(waiting.take(10.0)) == ("t", ["b"])


def test_take_when_topics_and_kinds_of_times_differ() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "delay 1", 0.0)
    waiting.add("t", draft(1, is_relative=False), "instant", 1.0)
    waiting.add("u", draft(1), "other topic", 2.0)
    waiting.add("t", draft(1), "delay 2", 3.0)
    taken = [tokens(waiting.take(50.0)) for _ in range(4)]
    assert taken == [
        ("t", ["delay 1", "delay 2"]),
        ("t", ["instant"]),
        ("u", ["other topic"]),
        None,
    ]


def test_take_all_when_given_up() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "a", 0.0)
    waiting.add("u", draft(1), "b", 0.0)
    assert [piece.token for piece in waiting.take_all()] == ["a", "b"]
    assert not waiting


TOGETHER = Joining(3, lambda topic: None if topic == "alone" else topic.isupper())


def names(taken: list[Piece[str]] | None) -> list[str]:
    return [piece.token for piece in taken or ()]


def test_take_when_topics_join() -> None:
    waiting = accumulator()
    for at, (topic, token) in enumerate(
        [("t", "t1"), ("u", "u1"), ("t", "t2"), ("UP", "up"), ("v", "v1"), ("w", "w1"), ("u", "u2")]
    ):
        waiting.add(topic, draft(1), token, float(at))
    waiting.add("t", draft(1, is_relative=False), "instant", 7.0)
    taken = [names(waiting.take(50.0, TOGETHER)) for _ in range(5)]
    assert taken == [["t1", "t2", "u1", "u2", "v1"], ["up"], ["w1"], ["instant"], []]


def test_take_when_a_topic_goes_alone() -> None:
    waiting = accumulator()
    for at, topic in enumerate(["t", "alone", "u"]):
        waiting.add(topic, draft(1), topic, float(at))
    assert names(waiting.take(50.0, TOGETHER)) == ["t", "u"]
    waiting.add("t", draft(1), "later", 3.0)
    assert names(waiting.take(50.0, TOGETHER)) == ["alone"]
    assert names(waiting.take(50.0, TOGETHER)) == ["later"]


def test_take_when_enough_of_all_topics_is_there() -> None:
    waiting = accumulator()
    for topic in "abcd":
        waiting.add(topic, draft(3), topic, 0.0)
    assert waiting.take(1.0) is None
    assert names(waiting.take(1.0, TOGETHER)) == ["a", "b", "c"]
    assert waiting.take(1.0, TOGETHER) is None
    assert names(waiting.take(10.0, TOGETHER)) == ["d"]


@given(st.data())
def test_take_when_anything_was_added(data: st.DataObject) -> None:
    """No draft is lost or doubled, a topic's keep their order, and no batch goes beyond anything.

    A topic's drafts stand together, and what has waited longest is in the next batch.
    """
    waiting = accumulator(linger_ms=0.0)
    topics = st.sampled_from(["a", "b", "c", "d", "A", "B", "alone"])
    left: list[tuple[str, bool, str]] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 8))):
        for topic, count, is_relative in data.draw(
            st.lists(st.tuples(topics, st.integers(1, 6), st.booleans()), max_size=8)
        ):
            waiting.add(topic, draft(count, is_relative=is_relative), str(number), float(number))
            left.append((topic, is_relative, str(number)))
            number += 1
        is_joined = data.draw(st.booleans())
        taken = waiting.take(float(number), TOGETHER if is_joined else Joining(1, str))
        if taken is None:
            assert not left
            continue
        assert left[0][2] in names(taken)
        assert sum(piece.draft.count for piece in taken) <= 10
        assert len({piece.draft.is_relative for piece in taken}) == 1
        seen = [topic for topic, _ in groupby(piece.topic for piece in taken)]
        assert len(seen) == len(set(seen)) <= (3 if is_joined else 1)
        assert len({TOGETHER.lane_of(topic) for topic in seen}) == 1
        for topic in seen:
            kind = [
                token
                for of, is_relative, token in left
                if (of, is_relative) == (topic, taken[0].draft.is_relative)
            ]
            own = [piece.token for piece in taken if piece.topic == topic]
            assert kind[: len(own)] == own
        gone = set(names(taken))
        left = [one for one in left if one[2] not in gone]
    assert sorted(piece.token for piece in waiting.take_all()) == sorted(one[2] for one in left)
