"""Log events: short stable keys, each of them in the tables of docs/LOGS.md."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.tidy import tree

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
KEY: Final = re.compile(r"[a-z]+(_[a-z]+)+")
LOGGER: Final = re.compile(r"(?<![\w.])_log\.|\blogs\.get\(")
PAGE: Final = "docs/LOGS.md"


def calls() -> Iterator[tuple[str, str, ast.expr]]:
    """(place, level, event) of each call that logs; level is empty where it is decided there."""
    for path in tree.modules():
        if path.split("/")[0] not in {"node", "replication"}:
            continue
        for node in ast.walk(tree.syntax(path)):
            if not isinstance(node, ast.Call):
                continue
            name, place = tree.dotted_name(node.func), f"{path}:{node.lineno}"
            method = name.removeprefix("_log.")
            if name == "_log.log":
                yield place, "", node.args[1]
            elif name == "self._log_seldom":
                level = node.args[0]
                assert isinstance(level, ast.Constant), place
                yield place, str(level.value), node.args[1]
            elif name.startswith("_log."):
                yield place, "error" if method == "exception" else method, node.args[0]


def test_events_are_keys_of_small_words() -> None:
    wrong = [
        place
        for place, _, event in calls()
        if not (isinstance(event, ast.Constant) and KEY.fullmatch(str(event.value)))
    ]
    assert wrong == []


def test_page_lists_each_event_with_its_levels_and_no_other() -> None:
    logged: dict[str, set[str]] = {}
    for _, level, event in calls():
        if isinstance(event, ast.Constant):
            logged.setdefault(str(event.value), set()).add(level)
    told: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|", tree.text(PAGE), re.MULTILINE):
        for event in re.findall(r"`(\w+)`", row[0]):
            assert event not in told, f"{event} is listed twice"
            told[event] = set(row[1].split(", "))
    assert sorted(told) == sorted(logged)
    wrong = {event for event, levels in logged.items() if not levels - {""} <= told[event]}
    assert wrong == set()
    assert set().union(*told.values()) <= set(LEVELS)


def test_no_module_of_the_server_logs_around_the_logger() -> None:
    """A logger under another name would escape the tests above."""
    other = [
        path
        for path in tree.modules()
        if path.split("/")[0] in {"node", "replication"}
        for node in ast.walk(tree.syntax(path))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call | ast.Attribute | ast.IfExp)
        and LOGGER.search(ast.unparse(node.value))
        and [ast.unparse(target) for target in node.targets] != ["_log"]
    ]
    assert other == []
