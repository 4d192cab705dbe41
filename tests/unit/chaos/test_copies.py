from dataclasses import replace
from typing import Final

import pytest

from chaos.checker import Bounds
from chaos.copies import Copy, check_copies, check_counts, check_masterships
from chaos.history import Delivery, History
from hourwheel.formats.message_id import MessageId

LOG: Final = bytes(range(100))
GOOD: Final = tuple(
    Copy(node, LOG, 0, "d", "d", counts={"pending_count": 3}, epochs=(epoch,))
    for epoch, node in enumerate(("n1", "n2", "n3"), 1)
)


def delivery(epoch: int, receive_ms: int) -> Delivery:
    return Delivery(
        "g", "t", 1, MessageId(0, 1, 1, 1), 1, epoch, receive_ms, float(receive_ms), 100
    )


def names(*copies: Copy) -> set[str]:
    return {one.name for one in check_copies(copies, len(LOG))}


def test_nothing_is_found_when_all_copies_are_the_same() -> None:
    assert names(*GOOD) == set()
    assert list(check_counts(GOOD, {"pending_count": 3})) == []
    assert list(check_masterships(GOOD, History(), Bounds())) == []


@pytest.mark.parametrize("at", [0, 50, 99])
def test_I5_logs_differ_when_one_byte_does(at: int) -> None:  # noqa: N802
    changed = LOG[:at] + b"\xff" + LOG[at + 1 :]
    found = list(check_copies((*GOOD[:2], replace(GOOD[2], log=changed)), len(LOG)))
    assert [one.name for one in found] == ["log differs"]
    assert f"from {at} on" in found[0].text


@pytest.mark.parametrize("node", range(3))
def test_logs_are_compared_where_both_are_when_one_begins_later(node: int) -> None:
    copies = list(GOOD)
    copies[node] = replace(GOOD[node], log=LOG[30:], start_offset=30)
    assert names(*copies) == set()
    copies[node] = replace(GOOD[node], log=LOG[30:99] + b"x", start_offset=30)
    assert names(*copies) == {"log differs"}


def test_I5_log_is_too_short_when_it_ends_below_the_high_watermark() -> None:  # noqa: N802
    short = replace(GOOD[0], log=LOG[:99])
    assert names(short, *GOOD[1:]) == {"log too short"}
    assert set(check_copies((short, *GOOD[1:]), 99)) == set()


def test_I5_views_differ_when_digests_do() -> None:  # noqa: N802
    assert names(*GOOD[:2], replace(GOOD[2], restored="x", rebuilt="x")) == {"views differ"}
    assert names(*GOOD[:2], replace(GOOD[2], rebuilt="x")) == {"views differ"}
    assert names(*GOOD[:2], replace(GOOD[2], rebuilt="")) == set()
    assert names(*GOOD[:2], replace(GOOD[2], fault="unreadable")) == {"damaged"}


def test_I5_views_and_log_differ_when_counts_do() -> None:  # noqa: N802
    found = list(check_counts(GOOD, {"pending_count": 4}))
    assert {one.name for one in found} == {"views and log differ"}
    assert len(found) == 3


def test_I4_two_masters_when_two_have_one_epoch() -> None:  # noqa: N802
    again = replace(GOOD[2], epochs=(1,))
    found = list(check_masterships((*GOOD[:2], again), History(), Bounds()))
    assert [one.name for one in found] == ["two masters"]


def test_I4_two_masters_when_an_old_one_serves_after_a_new_one() -> None:  # noqa: N802
    history = History(deliveries=[delivery(1, 100), delivery(2, 200), delivery(1, 199)])
    assert list(check_masterships(GOOD, history, Bounds())) == []
    history.deliveries.append(delivery(1, 206))
    found = list(check_masterships(GOOD, history, Bounds(clock_ms=5.0)))
    assert [one.name for one in found] == ["two masters"]
    assert list(check_masterships(GOOD, history, Bounds(clock_ms=6.0))) == []
