"""When a write is synced, and how long one may wait for it."""

from node.broker.group_commit import Durability, SyncSchedule


def test_every_write_is_synced_when_durable() -> None:
    schedule = SyncSchedule(Durability(is_durable=True, flush_ms=500))
    assert schedule.is_due(0.0)
    assert schedule.note(0.0, is_synced=True) is False
    assert schedule.is_due(0.0)
    assert schedule.wait_s(9.0) is None


def test_nothing_is_due_when_nothing_was_written() -> None:
    schedule = SyncSchedule(Durability(is_durable=False, flush_ms=500))
    assert not schedule.is_due(1e9)
    assert schedule.wait_s(1e9) is None


def test_wait_counts_from_the_first_write_that_is_not_synced() -> None:
    schedule = SyncSchedule(Durability(is_durable=False, flush_ms=500))
    assert schedule.note(10.0, is_synced=False) is True
    assert schedule.note(10.25, is_synced=False) is False
    assert schedule.wait_s(10.25) == 0.25
    assert not schedule.is_due(10.25)
    assert schedule.wait_s(10.5) == 0.0
    assert schedule.is_due(10.5)
    assert schedule.wait_s(99.0) == 0.0, "late is due, not negative"


def test_wait_begins_anew_when_a_sync_ended() -> None:
    schedule = SyncSchedule(Durability(is_durable=False, flush_ms=500))
    schedule.note(10.0, is_synced=False)
    assert schedule.note(10.5, is_synced=True) is False
    assert schedule.wait_s(10.5) is None
    assert not schedule.is_due(99.0)
    assert schedule.note(20.0, is_synced=False) is True
    assert schedule.wait_s(20.0) == 0.5


def test_a_write_is_due_at_once_when_the_interval_is_nothing() -> None:
    schedule = SyncSchedule(Durability(is_durable=False, flush_ms=0))
    schedule.note(10.0, is_synced=False)
    assert schedule.is_due(10.0)
