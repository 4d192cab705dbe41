"""Every call that logs, and the keys of its fields; docs/LOGS.md has them in tables."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from hourwheel.client.pending import PendingCancelled
from node.access.audit import AuditEvent
from node.shard.snapshot_files import Marker
from storage.log.recovery import TailCut
from tests.tidy import tree

FACTS: Final = "facts of the error"
"""Stands for the parameters of a typed error, such as `file`: docs/ERRORS.md."""
SPREAD: Final = {
    "report.cut._asdict()": TailCut._fields,
    "found.installed._asdict()": Marker._fields,
    "asdict(done)": tuple(PendingCancelled.__dataclass_fields__),
    "event._asdict()": AuditEvent._fields,
    "fields": ("follower", "detail", "reason"),
}
"""What lies in a mapping that is logged whole, by how the code writes it."""


class LogCall(NamedTuple):
    """One call."""

    place: str
    level: str
    """Empty where it is decided there."""
    event: ast.expr
    keys: frozenset[str]


def calls() -> Iterator[LogCall]:
    """All calls of the server that log an event."""
    for path in tree.modules():
        if path.split("/")[0] not in {"node", "replication"}:
            continue
        for node in ast.walk(tree.syntax(path)):
            if not isinstance(node, ast.Call):
                continue
            name, place = tree.dotted_name(node.func), f"{path}:{node.lineno}"
            if not name.startswith(("_log.", "self._log_seldom")):
                continue
            keys = frozenset(_keys(node, place))
            method = name.removeprefix("_log.")
            if name == "_log.log":
                yield LogCall(place, "", node.args[1], keys)
            elif name == "self._log_seldom":
                level = node.args[0]
                assert isinstance(level, ast.Constant), place
                yield LogCall(place, str(level.value), node.args[1], keys)
            elif name == "_log.exception":
                yield LogCall(place, "error", node.args[0], keys | {"exception"})
            else:
                yield LogCall(place, method, node.args[0], keys)


def _keys(call: ast.Call, place: str) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "exc_info":
            yield "exception"
        elif keyword.arg == "extra":
            assert isinstance(keyword.value, ast.Dict), place
            for key in keyword.value.keys:
                assert isinstance(key, ast.Constant), place
                yield str(key.value)
        elif keyword.arg is not None:
            yield keyword.arg
        elif ast.unparse(keyword.value).startswith("logs.fields_of("):
            yield from ("error", "error_type", FACTS)
        else:
            yield from SPREAD[ast.unparse(keyword.value)]


def table_of_keys() -> str:
    """One line for each event: the keys of its fields, of all places that log it together."""
    found: dict[str, set[str]] = {}
    for call in calls():
        if isinstance(call.event, ast.Constant):
            found.setdefault(str(call.event.value), set()).update(call.keys)
    rows = [f"| `{event}` | {_listed(found[event])} |" for event in sorted(found)]
    return "\n".join(("| event | keys |", "|---|---|", *rows))


def _listed(keys: set[str]) -> str:
    names = [f"`{key}`" for key in sorted(keys - {FACTS})]
    return ", ".join([*names, FACTS] if FACTS in keys else names)
