"""Who was handed out before somebody of a higher priority is found, and who may be is not."""

from typing import Final

import pytest

from chaos.actors.priority_checks import VISIBLE_MS, check_priorities
from chaos.history import Accepted, Delivery, History, Sent, Stored
from hourwheel.formats.message_id import MessageId

DUE_MS: Final = 1_800_000_000_000
LATER_MS: Final = DUE_MS + int(VISIBLE_MS) + 2
"""All of the burst is visible by then."""


def a_burst(*ranks: int) -> History:
    """Messages of these priorities, with serials from 1 on, which fall due together."""
    history = History(groups={"slow": ("mails", 9)})
    for serial, rank in enumerate(ranks, 1):
        history.sent[serial] = Sent("mails", DUE_MS, DUE_MS - 500)
        history.accepted[serial] = Accepted(MessageId(0, 1, serial, DUE_MS), DUE_MS - 400)
        history.ranks[serial] = rank
    return history


def came(
    history: History, serial: int, receive_ms: int, *, epoch: int = 1, attempt: int = 1
) -> None:
    """Handed out then."""
    message_id = history.accepted[serial].message_id
    history.deliveries.append(
        Delivery(
            "slow", "mails", serial, message_id, attempt, epoch, receive_ms, receive_ms + 1, 1_000
        )
    )


def count(history: History, **moved: int) -> int:
    found = list(check_priorities(history, Stored(moved=dict.fromkeys(moved.values(), DUE_MS))))
    assert {name for name, _ in found} <= {"priority"}
    return len(found)


def test_higher_ones_first_are_right() -> None:
    history = a_burst(0, 9, 5)
    came(history, 2, LATER_MS)
    came(history, 3, LATER_MS + 1)
    came(history, 1, LATER_MS + 2)
    assert count(history) == 0


def test_lower_one_before_a_higher_one_is_found() -> None:
    history = a_burst(0, 9, 5)
    came(history, 3, LATER_MS)
    came(history, 2, LATER_MS + 5)
    came(history, 1, LATER_MS + 3)
    assert count(history) == 2


@pytest.mark.parametrize(
    ("at_ms", "epoch", "attempt", "moved"),
    [
        (DUE_MS + 10, 1, 1, 0),
        (LATER_MS, 2, 1, 0),
        (LATER_MS, 1, 2, 0),
        (LATER_MS, 1, 1, 2),
    ],
    ids=["just due", "another mastership", "it was leased before", "it was moved"],
)
def test_lower_one_may_come_first_when_the_higher_one_may_not_have_been_there(
    at_ms: int, epoch: int, attempt: int, moved: int
) -> None:
    history = a_burst(0, 9)
    came(history, 1, at_ms)
    came(history, 2, LATER_MS + 500, epoch=epoch, attempt=attempt)
    assert count(history, moved=moved) == 0


def test_bursts_and_groups_are_judged_alone() -> None:
    history = a_burst(0, 9)
    history.sent[2] = history.sent[2]._replace(requested_ms=1.0)
    came(history, 1, LATER_MS)
    came(history, 2, LATER_MS + 500)
    assert count(history) == 0
