"""`python -m node inspect`: the rows of node/inspect.py as tables, or as JSON one object a line."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

from hourwheel.errors import HourwheelError
from node.inspect import Inspection, Row

EXIT_OK: Final = 0
EXIT_FAULT: Final = 65
"""Something is damaged, or it is no data directory."""
_LIMIT: Final = 100


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = commands.add_parser("inspect", help="look into a data directory, read-only")
    parser.add_argument("directory")
    parser.add_argument("what", nargs="?", choices=_WHAT, default="all", help="default: all")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--limit", type=int, default=_LIMIT, help="rows of batches and units")
    parser.add_argument("--from", type=int, default=0, dest="first", help="offset or global index")
    parser.add_argument("--run", type=int, help="number of a run")
    parser.add_argument("--bucket", type=int, help="number of an hour or day")
    parser.set_defaults(run_command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write what was asked for to standard output; 65 if something is damaged."""
    try:
        inspection = Inspection(parsed.directory)
        is_good = True
        for title in _ALL if parsed.what == "all" else (parsed.what,):
            rows = list(_WHAT[title](inspection, parsed))
            is_good &= not any("fault" in row for row in rows)
            write = _write_json if parsed.json else _write_table
            write(title, rows)
        sys.stdout.flush()
    except HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_FAULT
    return EXIT_OK if is_good else EXIT_FAULT


Read = Callable[[Inspection, Any], Iterator[Row]]


def _required(parsed: Any, name: str) -> int:
    value = getattr(parsed, name)
    if value is None:
        sys.stderr.write(f"--{name} is needed\n")
        raise SystemExit(2)
    return int(value)


_WHAT: Final[dict[str, Read]] = {
    "all": lambda _inspection, _asked: iter(()),
    "nodes": lambda it, _: it.nodes(),
    "segments": lambda it, _: it.segments(),
    "batches": lambda it, asked: it.batches(asked.first, asked.limit),
    "epochs": lambda it, _: it.epochs(),
    "checkpoint": lambda it, _: it.checkpoint(),
    "runs": lambda it, _: it.runs(),
    "buckets": lambda it, asked: it.buckets(asked.run),
    "slots": lambda it, asked: it.slots(_required(asked, "run"), asked.bucket),
    "units": lambda it, asked: it.units(_required(asked, "run"), asked.first, asked.limit),
}
_ALL: Final = ("nodes", "segments", "epochs", "checkpoint", "runs", "buckets")


def _write_json(title: str, rows: list[Row]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps({"in": title, **row}) + "\n")


def _write_table(title: str, rows: list[Row]) -> None:
    if title == "checkpoint":  # parts of many kinds: as columns they would be very wide
        rows = [{"part": row["part"], "content": _content(row)} for row in rows]
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    lines = [columns, *([str(row.get(name, "")) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sys.stdout.write(f"\n{title}: {len(rows)}\n")
    for line in lines if rows else []:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        sys.stdout.write(f"  {'  '.join(cells).rstrip()}\n")


def _content(row: Row) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items() if name != "part")
