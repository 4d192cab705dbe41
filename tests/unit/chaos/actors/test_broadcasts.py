"""What members of a broadcast and a paused group got is held against what they should get."""

from typing import Any, Final

import pytest

from chaos.actors import broadcasts
from chaos.history import Delivery, Entry, Heard, History, Kept, Pause, Stored
from hourwheel.formats.message_id import MessageId
from tests.support.impatient_load import ImpatientLoad

T_MS: Final = 1_800_000_000_000
SERIALS: Final = (1, 2)
CHANGES: Final = 21


def a_run() -> tuple[History, Stored]:
    """Two messages, which each member got once."""
    history, stored = History(), Stored()
    for serial in SERIALS:
        stored.queued.append(Entry(broadcasts.TOPIC, serial - 1, 1))
        stored.messages[serial - 1] = Kept(serial, 3, T_MS)
        history.heard += [
            Heard(member, serial, T_MS + 10, T_MS + 20.0) for member in broadcasts.MEMBERS
        ]
    return history, stored


def names(history: History, stored: Stored) -> set[str]:
    return {name for name, _ in broadcasts.check_members(history, stored)}


def test_nothing_is_found_when_each_member_got_all() -> None:
    history, stored = a_run()
    again = Heard("late", 1, T_MS + 15, None)
    history.heard.append(again)  # before it was acknowledged
    assert names(history, stored) == set()
    assert names(History(), stored) == set(), "there is no broadcast in this run"


def test_message_is_missed_when_one_member_did_not_get_it() -> None:
    history, stored = a_run()
    del history.heard[-1]
    assert names(history, stored) == {"missed by a member"}
    history.is_cut_off = True
    assert names(history, stored) == set()


def test_member_was_done_with_what_comes_again() -> None:
    history, stored = a_run()
    history.heard.append(Heard("early", 1, T_MS + 30, None))
    assert names(history, stored) == {"delivered after ack"}


@pytest.mark.parametrize(
    ("receive_ms", "is_found"), [(90, False), (120, True), (320, False), (620, True)]
)
def test_paused_group_gets_nothing_until_it_is_to_be_resumed(
    receive_ms: int, *, is_found: bool
) -> None:
    history = History()
    history.pauses = [
        Pause(True, T_MS + 0.0, T_MS + 100.0),
        Pause(False, T_MS + 300.0, T_MS + 310.0),
        Pause(True, T_MS + 500.0, T_MS + 600.0),
    ]
    who = broadcasts.PAUSED, broadcasts.TOPIC, 1, MessageId(0, 3, 0, T_MS), 1, 3
    history.deliveries = [Delivery(*who, T_MS + receive_ms, T_MS + receive_ms + 1.0, 500)]
    found = {name for name, _ in broadcasts.check_pauses(history)}
    assert found == ({"while paused"} if is_found else set())


class Admin:
    def __init__(self) -> None:
        self.states: list[bool] = []

    async def update_group(self, group: str, **changes: Any) -> None:
        assert group == broadcasts.PAUSED
        self.states.append(changes["is_paused"])


async def test_group_is_paused_and_resumed_and_runs_in_the_end() -> None:
    load, admin = ImpatientLoad.ending_after(CHANGES), Admin()
    await broadcasts.pause_and_resume(load, admin)  # type: ignore[arg-type]
    assert admin.states == [True, False] * (CHANGES // 2 + 1)
    assert [one.is_paused for one in load.history.pauses] == admin.states
