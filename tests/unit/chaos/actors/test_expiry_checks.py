"""What is promised of messages that expire is sought by what their producer asked for."""

from typing import Final

import pytest

from chaos.actors.expiry_checks import check_expiry
from chaos.checker import check
from chaos.history import (
    Accepted,
    Delivery,
    Entry,
    Expired,
    Fault,
    Finish,
    History,
    Kept,
    Sent,
    Stored,
)
from hourwheel.formats.message_id import MessageId

DUE_MS: Final = 1_800_000_000_000
LIFE_MS: Final = 300
ID: Final = MessageId(0, 1, 0, DUE_MS)
IN_TIME: Final = Delivery(
    "drop", "orders", 1, ID, 1, 1, DUE_MS + LIFE_MS - 1, DUE_MS + LIFE_MS + 900, 1_000
)
GONE: Final = Expired("drop", 0, DUE_MS + LIFE_MS)


def a_message(*, life_ms: int = LIFE_MS) -> tuple[History, Stored]:
    """One that was published, released, and expires."""
    history = History(groups={"drop": ("orders", 3)})
    history.sent[1], history.lives[1] = Sent("orders", DUE_MS), life_ms
    history.accepted[1] = Accepted(ID, DUE_MS)
    stored = Stored(messages={0: Kept(1, 1, DUE_MS)}, queued=[Entry("orders", 0, 1)])
    return history, stored


def names(history: History, stored: Stored) -> set[str]:
    return {name for name, _ in check_expiry(history, stored, held_ms=50.0)}


def test_message_may_come_until_it_expires_and_be_seen_while_its_lease_lasts() -> None:
    history, stored = a_message()
    history.deliveries.append(IN_TIME)
    assert names(history, stored) == set()


@pytest.mark.parametrize("receive_ms", [DUE_MS + LIFE_MS, DUE_MS + LIFE_MS + 5_000])
def test_message_is_found_that_is_handed_out_when_it_has_expired(receive_ms: int) -> None:
    history, stored = a_message()
    history.deliveries.append(IN_TIME._replace(receive_ms=receive_ms))
    assert names(history, stored) == {"expired"}
    history.lives[1] = 0
    assert names(history, stored) == set()


def test_message_is_found_that_is_seen_long_after_what_the_node_says() -> None:
    history, stored = a_message()
    history.deliveries.append(IN_TIME._replace(seen_ms=DUE_MS + LIFE_MS + 1_100))
    assert names(history, stored) == {"expired"}
    history.faults.append(Fault("freeze", ("n1",), DUE_MS + 400.0, DUE_MS + 1_000.0))
    assert names(history, stored) == set(), "what was on its way stood still, too"


def test_message_that_nobody_got_is_done_with_when_it_has_expired() -> None:
    history, stored = a_message()
    assert {one.name for one in check(history, stored)} == {"not delivered"}
    stored.expired.append(GONE)
    assert check(history, stored) == []


def test_retry_need_not_come_when_it_has_expired() -> None:
    history, stored = a_message()
    history.deliveries.append(IN_TIME)
    given_back = Finish("drop", 1, 1, "nack", True, DUE_MS + 299.5, DUE_MS + 299.6)
    history.finishes.append(given_back)
    assert {one.name for one in check(history, stored)} == {"not given back"}
    stored.expired.append(GONE)
    assert check(history, stored) == []


def test_message_is_found_that_is_done_with_before_it_has_expired() -> None:
    history, stored = a_message()
    stored.expired.append(GONE._replace(store_ms=GONE.store_ms - 1))
    assert names(history, stored) == {"expired early"}


def test_what_the_log_says_is_told() -> None:
    history, stored = a_message()
    stored.expiry_faults.append("message 0: expired-early")
    assert names(history, stored) == {"expired early"}
    stored.expiry_faults[0] = "message 0: expired-delivered"
    assert names(history, stored) == {"expired"}


def test_message_is_found_that_does_not_expire_and_has() -> None:
    history, stored = a_message(life_ms=0)
    stored.expired.append(GONE)
    assert names(history, stored) == {"expired early"}


def test_message_is_found_that_is_done_with_twice() -> None:
    history, stored = a_message()
    stored.expired += [GONE, GONE._replace(group="keep")]
    assert names(history, stored) == set(), "each group by itself"
    stored.expired.append(GONE)
    assert names(history, stored) == {"expired twice"}


def test_message_is_found_that_has_expired_when_it_was_acknowledged() -> None:
    history, stored = a_message()
    history.deliveries.append(IN_TIME)
    acked = Finish("drop", 1, 1, "ack", True, DUE_MS + 299.5, DUE_MS + 299.6)
    history.finishes.append(acked)
    stored.expired.append(GONE)
    assert names(history, stored) == {"expired twice"}
