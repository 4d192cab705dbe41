from hourwheel.client import batch_builder
from hourwheel.client.accumulator import Accumulator
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


def tokens(taken: tuple[str, list[object]] | None) -> object:
    return taken and (taken[0], [piece.token for piece in taken[1]])  # type: ignore[attr-defined]


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
    assert tokens(waiting.take(110.0)) == ("t", ["a", "b"])  # type: ignore[arg-type]
    assert not waiting


def test_take_when_flushing() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "a", 100.0)
    assert tokens(waiting.take(100.0, is_flushing=True)) == ("t", ["a"])  # type: ignore[arg-type]


def test_take_when_the_batch_is_full_by_count() -> None:
    waiting = accumulator()
    for name, count in (("a", 4), ("b", 4), ("c", 4), ("d", 6)):
        waiting.add("t", draft(count), name, 0.0)
    assert tokens(waiting.take(0.0)) == ("t", ["a", "b"])  # type: ignore[arg-type]
    assert tokens(waiting.take(0.0)) == ("t", ["c", "d"])  # type: ignore[arg-type]
    assert waiting.take(0.0) is None


def test_take_when_the_batch_is_full_by_bytes() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1, b"x" * 1_000), "a", 0.0)
    assert waiting.take(0.0) is None
    waiting.add("t", draft(1, b"x" * 1_000), "b", 0.0)
    assert tokens(waiting.take(0.0)) == ("t", ["a"])  # type: ignore[arg-type]
    assert waiting.take(0.0) is None
    assert tokens(waiting.take(10.0)) == ("t", ["b"])  # type: ignore[arg-type]


def test_take_when_topics_and_kinds_of_times_differ() -> None:
    waiting = accumulator()
    waiting.add("t", draft(1), "delay 1", 0.0)
    waiting.add("t", draft(1, is_relative=False), "instant", 1.0)
    waiting.add("u", draft(1), "other topic", 2.0)
    waiting.add("t", draft(1), "delay 2", 3.0)
    taken = [tokens(waiting.take(50.0)) for _ in range(4)]  # type: ignore[arg-type]
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
