import re

import grpc
import pytest

from hourwheel import errors
from hourwheel.errors import BY_REASON, HourwheelError

CLASSES = sorted(BY_REASON.values(), key=lambda one: one.__name__)


def subclasses(root: type[HourwheelError]) -> list[type[HourwheelError]]:
    """Those of the wire; the HTTP gateway has some of its own."""
    children = [one for one in root.__subclasses__() if one.__module__ == errors.__name__]
    return [root, *(found for child in children for found in subclasses(child))]


def drawn() -> dict[str, str]:
    """The tree of the module's docstring: class -> the class that it hangs on."""
    text = (errors.__doc__ or "").split("`retriable`")[0]
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines()[1:]:
        match = re.match(r"^(?P<indent>[ |]*(?:\+-- )?)(?P<rest>[A-Z].*)", line)
        if not match:
            continue
        depth = len(match["indent"])
        names = re.match(r"\w+(?:(?: \(.*?\))?[:,] [A-Z]\w+)*", match["rest"])
        assert names is not None, line
        first, *others = re.findall(r"[A-Z]\w+", re.sub(r"\(.*?\)", "", names[0]))
        while above and above[-1][0] >= depth:
            above.pop()
        parent = above[-1][1] if above else ""
        is_family = ":" in names[0]
        parents[first] = parent
        for other in others:
            parents[other] = first if is_family else parent
        above.append((depth, first))
    return parents


def test_tree_when_drawn_is_the_tree_of_classes() -> None:
    actual = {one.__name__: one.__bases__[0].__name__ for one in subclasses(HourwheelError)}
    actual["HourwheelError"] = ""
    expected = drawn()
    expected["StartupError"] = "HourwheelError"  # drawn apart: it is never on the wire
    assert expected == actual


def test_reasons_when_listed_are_unique() -> None:
    everyone = subclasses(HourwheelError)
    assert len({one.reason for one in everyone}) == len(everyone)
    assert {one.reason: one for one in everyone} == BY_REASON


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_class_when_looked_at_has_all_that_the_wire_needs(one: type[HourwheelError]) -> None:
    assert re.fullmatch(r"[A-Z][A-Z0-9_]*", one.reason)
    assert one.code in grpc.StatusCode.__members__
    assert one.__doc__, "its docstring is its default message"
    assert one().message == one.__doc__.strip().splitlines()[0]
    if one.code in {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "DATA_LOSS"}:
        assert not one.retriable


def test_retriable_when_listed_are_these() -> None:
    assert {one.__name__ for one in CLASSES if one.retriable} == {
        *("ResourceExhausted", "Overloaded", "DiskFull", "QuotaExceeded", "TooManyDedupKeys"),
        *("Unavailable", "NotMaster", "ShuttingDown", "ClockUnsure", "NotFollowed"),
        *("Timeout", "LoginEnded"),
    }


def test_error_when_made_keeps_its_facts_as_text() -> None:
    error = errors.CorruptFile("it is bad", file="a/b", offset=64, is_sure=True)
    assert str(error) == error.message == "it is bad"
    assert error.params == {"file": "a/b", "offset": "64", "is_sure": "True"}
    assert isinstance(error, errors.DataLoss)


def test_invariant_when_it_does_not_hold_stops_with_the_facts() -> None:
    errors.invariant(True, "never seen")
    with pytest.raises(errors.InvariantViolated, match="the sky is blue") as found:
        errors.invariant(False, "the sky is blue", colour="grey")
    assert found.value.params == {"colour": "grey"}
    assert "grey" in found.value.message
    with pytest.raises(errors.InvariantViolated, match=r"^plain$"):
        errors.violated("plain")


def test_required_gives_what_is_there_and_stops_where_nothing_is() -> None:
    assert errors.required(0, "a count") == 0
    with pytest.raises(errors.InvariantViolated, match="a count") as found:
        errors.required(None, "a count", of="clouds")
    assert found.value.params == {"of": "clouds"}


def test_not_master_when_the_node_names_the_master() -> None:
    error = errors.NotMaster(master_address="n2:7400", epoch=7)
    assert (error.master_address, error.epoch) == ("n2:7400", 7)
    assert error.params == {"master_address": "n2:7400", "epoch": "7"}


@pytest.mark.parametrize("epoch", ["", "-1", "1.5", "x", "\u0661", "9" * 11])
def test_not_master_when_the_node_does_not_know(epoch: str) -> None:
    assert (errors.NotMaster().master_address, errors.NotMaster().epoch) == ("", 0)
    assert errors.NotMaster(epoch=epoch).epoch == 0
