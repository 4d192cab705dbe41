"""Recurrences: which occurrences count, and what a checkpoint keeps."""

import hashlib

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from storage.views.recurrences import NEVER_MS, NO_SEQUENCE, Recurrences

NAME = "orders\nnightly"


def put(view: Recurrences, offset: int, *, version: int = 0, name: str = NAME) -> bool:
    config = RecurrenceConfig(name=name, topic="orders", every_ms=1, missed=1, body=b"x" * 9)
    change = RecurrenceChange(expected_version=version, put=config)
    return view.change(change, offset, 1_000, [])


def pause(view: Recurrences, offset: int, version: int, taken_back: list[int]) -> bool:
    change = RecurrenceChange(expected_version=version, pause_name=NAME)
    return view.change(change, offset, 2_000, taken_back)


def test_occurrence_when_it_is_the_next_of_the_current_version() -> None:
    view = Recurrences()
    assert put(view, 64)
    assert not view.take(65, 0, 5_000, 1)
    assert not view.take(64, 1, 5_000, 1)
    assert view.take(64, 0, 5_000, 1)
    assert not view.take(64, 0, 6_000, 2)
    assert not view.take(64, 1, 5_000, 2)
    assert view.take(64, 1, 5_001, 2)
    state = view.find(NAME)
    assert state is not None
    assert (state.next_index, state.count, state.after_ms, state.sequence) == (2, 2, 5_001, 2)


def test_pause_when_it_takes_an_occurrence_back() -> None:
    view = Recurrences()
    put(view, 64)
    view.take(64, 0, 5_000, 1)
    assert not pause(view, 128, 65, [1])
    assert pause(view, 128, 64, [1])
    state = view.find(NAME)
    assert state is not None
    assert state[:7] == (128, 1, 0, 0, 2_000, NEVER_MS, NO_SEQUENCE)
    assert not state.has_more
    assert not view.take(128, 1, 6_000, 2)
    assert view.find_name(64) is None
    resume = RecurrenceChange(expected_version=128, resume_name=NAME)
    assert view.change(resume, 192, 3_000, [])
    assert view.take(192, 1, 5_000, 2)


def test_change_of_what_is_not_there_takes_no_effect() -> None:
    view = Recurrences()
    assert not pause(view, 64, 0, [])
    assert not view.change(RecurrenceChange(delete_name=NAME), 64, 1_000, [])
    assert not put(view, 64, version=9)
    assert len(view) == 0


def test_recurrences_when_they_come_from_a_checkpoint_are_the_same() -> None:
    view = Recurrences()
    for offset, name in ((64, NAME), (128, "orders\na"), (192, "bills\nb")):
        put(view, offset, name=name)
    view.take(64, 0, 5_000, 1)
    view.change(RecurrenceChange(expected_version=128, delete_name="orders\na"), 256, 1, [])
    raw = view.capture()()
    assert len(raw) == view.size_bytes
    again = Recurrences(raw)
    assert list(again.names_after("")) == ["bills\nb", NAME]
    assert list(again.names_after("bills\nb")) == [NAME]
    digests = []
    for one in (view, again):
        hasher = hashlib.sha256()
        one.digest_into(hasher)
        digests.append(hasher.digest())
    assert digests[0] == digests[1]
    for damaged in (raw[:-1], raw[:10]):
        with pytest.raises(errors.CorruptFile):
            Recurrences(damaged)
