"""What is known of damage: by place, and who waits for it."""

import pytest

from hourwheel import errors
from node.delivery import damaged as module
from node.delivery.damaged import DamagedMessages
from node.delivery.deliveries import Corrupt
from node.shard.group_queue import GroupQueue
from storage.views.unit import Units
from tests.support.units import make_units

FIRST, SECOND = GroupQueue(1, 256), GroupQueue(2, 256)


def unit_at(position: int, sequence: int = 7) -> Units:
    return make_units(sequence, 1, position=position, topic_queue=256)


def corrupt(group_queue: GroupQueue, position: int, place: int) -> Corrupt:
    return Corrupt(
        group_queue, position, unit_at(place, sequence=position), errors.DataLoss("a bit")
    )


def test_two_groups_wait_for_one_place() -> None:
    found = DamagedMessages()
    news = found.note(corrupt(FIRST, 3, 900), 10)
    assert news is not None
    assert news.position == 3
    assert found.note(corrupt(FIRST, 3, 900), 11) is None
    assert found.note(corrupt(SECOND, 3, 900), 12) is None
    assert (found.count, len(found), found.found_count) == (2, 1, 1)
    assert [one.group_queue for _, one in found.entries()] == [FIRST, SECOND]
    assert [one.found_ms for _, one in found.entries()] == [10, 12]
    assert [one.group_queue for _, one in found.entries(after_serial=1)] == [SECOND]
    assert found.positions(FIRST) == [3]
    assert found.has(3)
    taken = found.take(news.place)
    assert [one.group_queue for one in taken] == [FIRST, SECOND]
    assert (found.count, len(found), found.take(news.place)) == (0, 0, [])
    assert not found.has(3)


def test_place_is_forgotten_with_the_last_who_waits() -> None:
    found = DamagedMessages()
    found.note(corrupt(FIRST, 3, 900), 10)
    found.note(corrupt(SECOND, 3, 900), 10)
    for _, entry in list(found.entries()):
        assert len(found) == 1
        found.drop(entry)
        found.drop(entry)
    assert (found.count, len(found)) == (0, 0)


def test_those_are_due_first_that_waited_longest_and_last_those_nobody_waits_for() -> None:
    found = DamagedMessages()
    assert found.next_s() is None
    found.note_listed(unit_at(100), errors.DataLoss("a bit"))
    for number, again_s in enumerate((5.0, 3.0, 4.0)):
        news = found.note(corrupt(FIRST, number, 200 + number), 0)
        assert news is not None
        news.again_s = again_s
    assert [one.place.position for one in found.due(4.5, 9)] == [201, 202, 100]
    assert [one.place.position for one in found.due(4.5, 1)] == [201]
    assert found.next_s() == 0.0
    found.take(found.due(9, 9)[-1].place)
    assert found.next_s() == 3.0


def test_more_are_only_counted_by_their_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    found = DamagedMessages()
    for position in range(4):
        found.note(corrupt(FIRST, position, position), 0)
    assert (found.count, found.overflowed, found.is_full) == (2, {FIRST}, True)
    assert found.note_listed(unit_at(77), errors.DataLoss("a bit")) is None
    found.take(found.due(0, 1)[0].place)
    assert not found.is_full
