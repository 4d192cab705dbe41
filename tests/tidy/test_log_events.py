"""Log events: short stable keys, each of them in the tables of docs/LOGS.md."""

import ast
import re
from typing import Final

from tests.tidy import tree
from tests.tidy.log_events import calls, table_of_keys

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
KEY: Final = re.compile(r"[a-z]+(_[a-z]+)+")
LOGGER: Final = re.compile(r"(?<![\w.])_log\.|\blogs\.get\(")
PAGE: Final = "docs/LOGS.md"


def test_events_are_keys_of_small_words() -> None:
    wrong = [
        call.place
        for call in calls()
        if not (isinstance(call.event, ast.Constant) and KEY.fullmatch(str(call.event.value)))
    ]
    assert wrong == []


def test_page_lists_each_event_with_its_levels_and_no_other() -> None:
    logged: dict[str, set[str]] = {}
    for call in calls():
        if isinstance(call.event, ast.Constant):
            logged.setdefault(str(call.event.value), set()).add(call.level)
    told: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|", tree.text(PAGE), re.MULTILINE):
        for event in re.findall(r"`(\w+)`", row[0]):
            assert event not in told, f"{event} is listed twice"
            told[event] = set(row[1].split(", "))
    assert sorted(told) == sorted(logged)
    wrong = {event for event, levels in logged.items() if not levels - {""} <= told[event]}
    assert wrong == set()
    assert set().union(*told.values()) <= set(LEVELS)


def test_keys_are_words_as_everywhere() -> None:
    """That the page lists them as they are: tests/tidy/test_docs.py."""
    keys = re.findall(r"`(\w+)`", "".join(row.split("|")[2] for row in table_of_keys().split("\n")))
    assert [key for key in keys if not re.fullmatch(r"[a-z]+(_[a-z]+)*", key)] == []
    assert {"timestamp", "level", "event", "logger"} & set(keys) == set(), "each line has these"


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
