"""Product code has a user beside its tests."""

import tomllib
from typing import Final

from vulture import Vulture  # type: ignore[import-untyped]

from tests.tidy import tree

ALLOWED: Final = {
    "called by name, by others' code": (
        *("get_status", "describe_message", "get_history"),  # gRPC
        *("list_recurrences", "list_next_times"),
        *("between", "comparison"),  # Lark
        *("deleteEntriesFrom", "setCurrentTerm", "setRaftCommitIndex"),  # PySyncObj
        *("getTransmissionData", "setTransmissionData"),
        *("METHODS", "TRANSPORT_METHODS"),  # names of PySyncObj's, which a test looks up
        "pushFilters",  # Spark
        "writeable",  # numpy
    ),
    "named in annotations only, which are strings": ("DataFrame",),
    "part of what clients, or readers of a verdict, are told": (
        "trimmed_unacked",
        "principal_method",
    ),
    "what handlers of users call": ("publish_async", "cancel_async", "move_async"),
    "what programs with dramatiq begin with": ("HourwheelBroker",),
    "what tests of users call": ("advance_async", "advance_to", "advance_to_async"),
    "runs an audit's steps without Java: for tests, by decision 15": ("LocalRunner", "FAST"),
    "what the harness of chaos lends to tests of real clusters": ("QUICK_MIX",),
    "what a state machine says of itself: only its effects are for the product": ("trouble_at",),
}
"""Names that only tests use, by why they are there all the same. It shrinks."""


def unused() -> set[str]:
    """Names of product code that no product code uses, by the settings of `make lint`."""
    settings = tomllib.loads(tree.text("pyproject.toml"))["tool"]["vulture"]
    found = Vulture(
        ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"]
    )
    rooms = [str(tree.ROOT / room) for room in settings["paths"] if room != "tests"]
    found.scavenge(rooms, exclude=[f"*/{path}*" for path in settings["exclude"]])
    return {item.name for item in found.get_unused_code(settings["min_confidence"])}


def test_no_name_is_there_for_tests_alone() -> None:
    allowed = {name for names in ALLOWED.values() for name in names}
    found = unused()
    assert found - allowed == set(), "used by tests at most: it goes, or the product uses it"
    assert allowed - found == set(), "used by now, or gone: take it off the list"
