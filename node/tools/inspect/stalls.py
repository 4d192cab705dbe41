"""`hourwheel inspect stalls`: what kept a running node from its work, as tables.

The node tells it at /stalls of its metrics port: docs/guides/stalls.md.
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from rich.console import Console
from rich.table import Table

from hourwheel.stalls import Stall

EXIT_OK: Final = 0
EXIT_UNREAD: Final = 1
EXIT_USAGE: Final = 2
_PATH: Final = "/stalls"
_STDIN: Final = "-"
_TIMEOUT_S: Final = 10.0
_LIMIT: Final = 20
_WIDTH_PLAIN: Final = 1_000
_FIELDS: Final = {one.name for one in fields(Stall)}
"""What a later version reports besides is left out."""


class _Shown(NamedTuple):
    """A stall, as a node reports it."""

    cause: str
    stall: Stall


def main(arguments: Sequence[str]) -> int:
    """Print the stalls of a node; 1 where it does not tell them."""
    parsed = _parser().parse_args(arguments)
    try:
        raw = sys.stdin.read() if parsed.source == _STDIN else _fetch(parsed.source)
        found = json.loads(raw)
        rows = [
            _Shown(one["cause"], Stall(**{name: one[name] for name in _FIELDS & one.keys()}))
            for one in found["last"]
        ]
        by_cause = dict(found["by_cause"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error) or repr(error)
        sys.stderr.write(f"{parsed.source}: these are no stalls of a node: {why}\n")
        return EXIT_UNREAD
    if parsed.json:
        sys.stdout.write(f"{json.dumps(found)}\n")
        return EXIT_OK
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_PLAIN)
    console.print(_causes(by_cause, rows))
    if parsed.longest:
        rows.sort(key=lambda one: -one.stall.wall_ms)
    title = "the longest of the last" if parsed.longest else "the last"
    console.print(_each(title, rows[: parsed.limit]))
    sys.stdout.flush()
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel inspect stalls",
        description="What kept the event loop of a running node from its work for longer than "
        "telemetry.stall_ms: by cause, and the last ones. A directory of the name `stalls` is "
        "inspected as ./stalls.",
        epilog="Exit codes: 0 fine, 1 the node does not tell them, 2 wrong command line. Where "
        "the port has TLS or asks who it is: curl ... | hourwheel inspect stalls -",
    )
    parser.add_argument(
        "source",
        type=_source,
        metavar="URL",
        help="of the node's metrics port, such as http://127.0.0.1:7401; or - for the JSON that "
        "it answers",
    )
    parser.add_argument(
        "--limit", type=int, default=_LIMIT, metavar="ROWS", help="of the last (%(default)s)"
    )
    parser.add_argument("--longest", action="store_true", help="the longest first")
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _source(text: str) -> str:
    parts = urlsplit(text)
    if text != _STDIN and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL, such as http://127.0.0.1:7401")
    return text if text == _STDIN or parts.path.strip("/") else f"{text.rstrip('/')}{_PATH}"


def _fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())


def _causes(by_cause: Mapping[str, int], rows: Sequence[_Shown]) -> Table:
    table = Table(title="stalls since the node started", title_justify="left")
    for name in ("cause", "count", "of the last", "their ms", "longest ms"):
        table.add_column(name, justify="left" if name == "cause" else "right")
    for cause, count in sorted(by_cause.items(), key=lambda one: -one[1]):
        if count:
            own = [row.stall.wall_ms for row in rows if row.cause == cause]
            longest = f"{max(own):.1f}" if own else ""
            table.add_row(cause, f"{count:,}", str(len(own)), f"{sum(own):.1f}", longest)
    return table


def _each(title: str, rows: Sequence[_Shown]) -> Table:
    table = Table(title=title, title_justify="left")
    names = ("ended", "cause", "ms", "worked", "no core", "collector", "what ran, ms", "beside")
    for name in names:
        left = name in {"ended", "cause", "what ran, ms", "beside"}
        table.add_column(name, justify="left" if left else "right")
    for cause, stall in rows:
        spent = stall.wall_ms, stall.cpu_ms, stall.unscheduled_ms, stall.gc_ms
        table.add_row(
            f"{np.datetime64(stall.at_ms, 'ms')}Z",
            cause,
            *(f"{ms:.1f}" for ms in spent),
            ", ".join(f"{name} {ms:.1f}" for name, ms in stall.ran_ms.items()),
            ", ".join(stall.beside),
        )
    return table
