"""The demo's books: whatever is wrong with what arrives is found."""

from collections.abc import Callable

import pytest

from hourwheel.outcomes import CancelOutcome
from node.tools.demo.ledger import Arrival, Ledger
from node.tools.demo.trace import NEVER, build_trace, generate_orders

START_MS = 1_800_000_000_000


def ledger() -> Ledger:
    """The books of a small trace, in which nothing has happened yet."""
    return Ledger(build_trace(generate_orders(20, 1), 10), START_MS)


def arrival(books: Ledger, index: int, *, late_ms: float = 2.0, **changes: object) -> Arrival:
    due_ms = books.due_ms(index)
    good = Arrival(f"id-{index}", books.bodies[index], due_ms, START_MS, due_ms + late_ms)
    return good._replace(**changes)


def play(books: Ledger, *, skip: int = -1, late_ms: float = 2.0) -> None:
    """All happens as it should; but timer `skip` is not delivered."""
    for index in range(len(books.trace)):
        books.note_published(index, f"id-{index}")
    for index in range(len(books.trace)):
        if books.trace.cancel_ms[index] != NEVER:
            books.note_cancelled([index], [CancelOutcome.CANCELLED])
        elif index != skip:
            books.note_arrived([arrival(books, index, late_ms=late_ms)])


def first_delivered(books: Ledger) -> int:
    return int((books.trace.cancel_ms == NEVER).argmax())


def first_cancelled(books: Ledger) -> int:
    return int((books.trace.cancel_ms != NEVER).argmax())


def test_all_is_good_when_everything_comes_once_and_on_time() -> None:
    books = ledger()
    play(books)
    summary = books.close()
    assert summary.is_good
    assert summary.scheduled == summary.cancelled + summary.delivered == len(books.trace)
    assert summary.lateness is not None
    assert tuple(summary.lateness) == (2.0, 2.0, 2.0)
    assert [sum(column) for column in zip(*(kind[1:] for kind in summary.kinds), strict=True)] == [
        *(summary.scheduled, summary.cancelled, 0, summary.delivered)
    ]


def test_books_say_how_it_stands_on_the_way() -> None:
    books = ledger()
    assert (books.pending, books.lateness(), books.is_complete) == (0, None, False)
    for index in range(len(books.trace)):
        books.note_published(index, f"id-{index}")
    assert books.pending == books.scheduled == len(books.trace)
    index = first_delivered(books)
    books.note_arrived([arrival(books, index)])
    assert books.pending == len(books.trace) - 1
    assert sum(books.delivered_by_second.values()) == books.delivered == 1
    play(books, skip=index)
    assert books.is_complete


def test_message_is_missing_when_it_never_came() -> None:
    books = ledger()
    play(books, skip=first_delivered(books))
    summary = books.close()
    assert (summary.missing, summary.is_good, books.is_complete) == (1, False, False)
    assert "never came" in summary.problems[0]


def test_message_may_come_before_its_publish_is_answered() -> None:
    books = ledger()
    books.note_arrived([arrival(books, first_delivered(books))])
    play(books, skip=first_delivered(books))
    assert books.close().is_good


def test_message_comes_after_all_when_it_was_too_late_to_cancel_it() -> None:
    books = ledger()
    index = first_cancelled(books)
    play(books)
    books.cancelled -= 1
    books.note_cancelled([index], [CancelOutcome.ALREADY_RELEASED])
    assert books.close().missing == 1
    books.note_arrived([arrival(books, index)])
    summary = books.close()
    assert (summary.missing, summary.too_late) == (0, 1)


def twice(books: Ledger, index: int) -> None:
    books.note_arrived([arrival(books, index)])


def strange(books: Ledger, _: int) -> None:
    books.note_arrived([Arrival("id", b"x", 1, 1, 1.0)])


def cancelled(books: Ledger, _: int) -> None:
    books.note_arrived([arrival(books, first_cancelled(books))])


def unknown(books: Ledger, _: int) -> None:
    books.note_cancelled([first_cancelled(books)], [CancelOutcome.UNKNOWN])


def renamed(books: Ledger, index: int) -> None:
    books.note_published(index, "other")


@pytest.mark.parametrize(
    ("happens", "counted", "why"),
    [
        (twice, "duplicated", "came again"),
        (strange, "wrong", "a body that was never sent"),
        (cancelled, "wrong", "although it was cancelled"),
        (unknown, "wrong", "does not know"),
        (renamed, "wrong", "was scheduled as other"),
    ],
)
def test_it_is_found_when_something_is_wrong(
    happens: Callable[[Ledger, int], None], counted: str, why: str
) -> None:
    books = ledger()
    play(books)
    happens(books, first_delivered(books))
    summary = books.close()
    assert not summary.is_good
    assert getattr(summary, counted) == 1
    assert why in " ".join(summary.problems)


@pytest.mark.parametrize(
    ("changes", "counted", "why"),
    [
        ({"arrived_ms": START_MS - 1.0}, "early", "early"),
        ({"due_ms": 5}, "wrong", "says due 5"),
        ({"message_id": "x"}, "wrong", "was scheduled as"),
        ({"body": b"{}"}, "wrong", "never sent"),
    ],
)
def test_delivery_is_compared_with_what_was_scheduled(
    changes: dict[str, object], counted: str, why: str
) -> None:
    books = ledger()
    index = first_delivered(books)
    play(books, skip=index)
    books.note_arrived([arrival(books, index, **changes)])
    summary = books.close()
    assert getattr(summary, counted) == 1
    assert why in " ".join(summary.problems)


def test_lateness_counts_from_acceptance_when_it_was_due_already() -> None:
    books = ledger()
    index = first_delivered(books)
    play(books, skip=index)
    accepted_ms = books.due_ms(index) + 900
    late = arrival(books, index, store_ms=accepted_ms, arrived_ms=accepted_ms + 1.0)
    books.note_arrived([late])
    summary = books.close()
    assert (summary.due_at_once, summary.is_good) == (1, True)
    assert summary.lateness is not None
    assert summary.lateness.max_ms == 2.0


def test_problems_are_told_up_to_a_limit() -> None:
    books = ledger()
    for index in range(len(books.trace)):
        books.note_published(index, f"id-{index}")
    summary = books.close()
    assert summary.missing == len(books.trace)
    assert len(summary.problems) == 10


@pytest.mark.parametrize(
    ("changes", "redelivered", "duplicated"),
    [
        ({"epoch": 2}, 1, 0),
        ({"epoch": 1}, 0, 1),
        ({"epoch": 0}, 0, 1),
        ({"epoch": 2, "place": (1, 8)}, 0, 1),
        ({"epoch": 2, "place": (2, 7)}, 0, 1),
    ],
)
def test_message_may_come_again_only_from_its_place_and_a_later_master(
    changes: dict[str, object], redelivered: int, duplicated: int
) -> None:
    books = ledger()
    index = first_delivered(books)
    play(books, skip=index)
    first = arrival(books, index, place=(1, 7), epoch=1)
    books.note_arrived([first])
    books.note_arrived([first._replace(**changes)])
    summary = books.close()
    assert (summary.redelivered, summary.duplicated) == (redelivered, duplicated)
    assert summary.is_good == (duplicated == 0)
    assert summary.missing == 0


def test_message_comes_again_once_for_each_later_master() -> None:
    books = ledger()
    index = first_delivered(books)
    for epoch in (1, 2, 5, 5):
        books.note_arrived([arrival(books, index, epoch=epoch)])
    assert (books.redelivered, books.duplicated) == (2, 1)


def test_gap_is_the_longest_that_reaches_beyond_the_moment() -> None:
    books = ledger()
    assert books.longest_gap_ms(0) == 0.0
    for at_ms in (100.0, 900.0, 1_000.0, 1_300.0, 1_310.0):
        books.note_arrived([arrival(books, 0, arrived_ms=at_ms)])
    assert books.longest_gap_ms(0) == 800.0
    assert books.longest_gap_ms(950) == 300.0
    assert books.longest_gap_ms(1_300) == 10.0
