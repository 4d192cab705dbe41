import pytest

from chaos.recurring.model import RecurrenceModel
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig

NAME = "orders\na"


def made(model: RecurrenceModel, offset: int, version: int = 0) -> bool:
    change = RecurrenceChange(expected_version=version, put=RecurrenceConfig(name=NAME))
    return model.change(change, offset, 1_000, set())


def test_occurrences_count_when_they_are_the_next_of_the_current_version() -> None:
    model = RecurrenceModel()
    assert made(model, 64)
    assert not made(model, 128)
    assert [model.take(*one) for one in ((64, 1, 5, 1), (64, 0, 5, 2), (64, 0, 6, 3))] == [
        *(False, True, False)
    ]
    assert not model.take(64, 1, 5, 4)
    pause = RecurrenceChange(expected_version=64, pause_name=NAME)
    assert model.change(pause, 192, 2_000, {2})
    assert not model.take(192, 1, 7, 5)
    assert model.recurrences[NAME].sequences == []


def test_check_when_an_instant_comes_twice() -> None:
    model = RecurrenceModel()
    made(model, 64)
    model.take(64, 0, 5, 1)
    made(model, 128, 64)
    model.take(128, 0, 5, 2)
    model.check({1})
    with pytest.raises(AssertionError):
        model.check(set())


def test_what_was_deleted_has_no_occurrences_and_may_be_made_again() -> None:
    model = RecurrenceModel()
    delete = RecurrenceChange(expected_version=64, delete_name=NAME)
    assert not model.change(delete, 64, 1_000, set()), "there is none"
    made(model, 64)
    assert model.change(delete, 128, 2_000, set())
    assert not model.take(64, 0, 5, 1)
    assert made(model, 192)
    assert model.take(192, 0, 5, 1)


def test_nothing_is_changed_when_there_is_nothing_of_the_name() -> None:
    model = RecurrenceModel()
    assert not model.change(RecurrenceChange(pause_name="daily"), 7, 0, set())
    assert not model.recurrences


def test_what_was_resumed_has_no_occurrences_of_before() -> None:
    model = RecurrenceModel()
    assert made(model, 64)
    assert model.change(RecurrenceChange(expected_version=64, pause_name=NAME), 128, 2_000, set())
    assert model.change(RecurrenceChange(expected_version=128, resume_name=NAME), 192, 3_000, set())
    resumed = model.recurrences[NAME]
    assert (resumed.after_ms, resumed.is_paused, resumed.version) == (3_000, False, 192)
