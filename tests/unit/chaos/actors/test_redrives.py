"""Each dead letter comes again once for a re-drive: what consumers saw is held against that."""

import asyncio
from typing import Any, Final

import pytest

from chaos.actors import redrives
from chaos.history import Chance, Entry, History, Kept, Redrive, Stored
from hourwheel import errors
from hourwheel.client.groups.dead_letters import Redriven
from tests.support.impatient_load import ImpatientLoad

T_MS: Final = 1_800_000_000_000
EPOCH: Final = 3
REDRIVES: Final = 30


def chance(lease_id: int, attempt: int, end: str, *, epoch: int = EPOCH) -> Chance:
    """At the second of its lease; its end is told right behind it."""
    at_ms = T_MS + 1_000 * lease_id
    return Chance(1, attempt, epoch, lease_id, at_ms, end, True, at_ms + 10, at_ms + 20)


def redrive(lease_id: int) -> Redrive:
    """Half a second behind that lease."""
    at_ms = T_MS + 1_000 * lease_id + 500
    return Redrive(1, at_ms, at_ms + 10)


def found(*chances: Chance, requested: tuple[Redrive, ...] = ()) -> set[str]:
    history, stored = History(), Stored()
    stored.queued.append(Entry(redrives.TOPIC, 0, 1))
    stored.messages[0] = Kept(1, EPOCH, T_MS)
    history.chances, history.redrives = list(chances), list(requested)
    whole = {name for name, _ in redrives.check_redrives(history, stored)}
    history.is_cut_off = True
    cut_off = {name for name, _ in redrives.check_redrives(history, stored)}
    assert cut_off == whole - {"not re-driven", "not delivered"}
    return whole


TWICE: Final = chance(1, 1, "reject"), chance(2, 2, "reject"), chance(3, 2, "ack")


def test_nothing_is_found_when_each_rejected_one_came_again() -> None:
    assert found(*TWICE, requested=(redrive(1), redrive(2), redrive(3))) == set()
    lost = chance(1, 1, "reject"), chance(2, 2, ""), chance(3, 3, "reject"), chance(4, 2, "ack")
    assert found(*lost) == set()
    another_master = chance(1, 1, "reject"), chance(2, 2, ""), chance(3, 2, "ack", epoch=4)
    assert found(*another_master) == set()
    assert found(chance(1, 1, "reject"), requested=(redrive(0),)) == set(), "it was too early"
    undecided = Redrive(0, T_MS + 9_000, None)
    assert found(chance(1, 1, "reject"), requested=(undecided,)) == set()


@pytest.mark.parametrize(
    ("chances", "requested", "violation"),
    [
        ((), (), "not delivered"),
        (TWICE[:2], (redrive(2),), "not re-driven"),
        ((TWICE[0], *(chance(at, 2, "") for at in (2, 3, 4))), (), "re-driven twice"),
        ((*TWICE, chance(4, 2, "ack")), (), "delivered after ack"),
    ],
)
def test_what_is_not_kept_is_found(
    chances: tuple[Chance, ...], requested: tuple[Redrive, ...], violation: str
) -> None:
    assert violation in found(*chances, requested=requested)


class Admin:
    """The second call is refused, of the third nobody knows."""

    def __init__(self) -> None:
        self.count = 0

    async def redrive(self, group: str, wanted: str) -> Redriven:
        assert (group, wanted) == (redrives.GROUP, "*")
        self.count += 1
        if self.count == 2:
            raise errors.InvalidArgument
        if self.count == 3:
            raise errors.Timeout
        return Redriven(redriven_count=self.count)


async def test_redrives_are_taken_down_and_the_last_one_is_done() -> None:
    load, admin = ImpatientLoad.ending_after(REDRIVES), Admin()
    await redrives.redrive(load, admin)  # type: ignore[arg-type]
    told = [one.redriven_count for one in load.history.redrives]
    assert told[:3] == [1, 0, 4]
    assert load.history.redrives[1].answered_ms is None
    assert load.history.redrives[-1].answered_ms is not None
    assert admin.count == REDRIVES + 1, "one more in the end"


async def test_redrive_that_is_cut_off_may_have_been_done() -> None:
    begun = asyncio.Event()

    class Silent:
        async def redrive(self, *_: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

    load = ImpatientLoad.ending_after(REDRIVES)
    working = asyncio.create_task(redrives.redrive(load, Silent()))  # type: ignore[arg-type]
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [one.answered_ms for one in load.history.redrives] == [None]
