"""`python -m node inspect` and `hourwheel inspect`: what `inspection` finds, printed."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from node.shard.node_meta import NODE_META
from node.tools.inspect import stalls
from node.tools.inspect.digest import digests_of
from node.tools.inspect.files import SHARD_START
from node.tools.inspect.inspection import inspect
from node.tools.inspect.report import READ_ERRORS, Report
from node.tools.inspect.single_file import InspectOptions
from node.tools.inspect.text import texts_of
from storage.files.disk import RealDisk

EXIT_OK: Final = 0
EXIT_DAMAGE: Final = 1
"""Something is damaged, or a path is no data directory and no file of ours."""
EXIT_USAGE: Final = 2
_STALLS: Final = "stalls"
_LIMIT: Final = 20
_WIDTH_PLAIN: Final = 1_000
"""Where no terminal sets a width, no cell is folded."""


def main(arguments: Sequence[str]) -> int:
    """Print what was asked for; 1 if something is damaged."""
    if arguments[:1] == [_STALLS]:
        return stalls.main(arguments[1:])
    parsed = _parser().parse_args(arguments)
    if parsed.digest:
        return _print_digests(parsed)
    reports: list[tuple[Path, Report]] = []
    for path in parsed.paths:
        if not path.exists():
            sys.stderr.write(f"{path}: there is no such file or directory\n")
            return EXIT_USAGE
        root, inside = find_root(path)
        options = InspectOptions(
            path=inside,
            is_folder=path.is_dir(),
            offset=parsed.offset,
            sequence=parsed.sequence,
            hour=parsed.hour,
            position=parsed.position,
            limit=parsed.limit,
            verify=parsed.verify,
        )
        reports.append((path, inspect(RealDisk(root, read_only=True), options)))
    (_print_json if parsed.json else _print_tables)(reports, verified=parsed.verify)
    sys.stdout.flush()
    return EXIT_OK if all(report.is_good for _, report in reports) else EXIT_DAMAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel inspect",
        description="Look into data directories, parts of them or single files. Changes nothing,"
        " and may be used while a node runs.",
        epilog="Exit codes: 0 fine, 1 something is damaged, 2 wrong command line. Of a node that "
        "runs: `inspect stalls URL` tells what kept it from its work.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a node's data directory, a folder in it, or a file",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check every checksum, and that all parts fit together; reads everything",
    )
    parser.add_argument("--offset", type=_number, help="batches of the log from there on")
    parser.add_argument("--sequence", type=_number, help="all that is known of one message")
    parser.add_argument(
        "--hour",
        type=parse_hour,
        help="slots of an hour of UTC in the wheel, as 2027-01-31T08 or in hours since 1970",
    )
    parser.add_argument(
        "--position", type=_number, help="entries of a consume queue's file from there on"
    )
    parser.add_argument(
        "--limit",
        type=_number,
        default=_LIMIT,
        metavar="ROWS",
        help="of what there may be many of (%(default)s)",
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="the digest of the views of a node that does not run: restored from its checkpoint,"
        " and rebuilt from its log; works on copies",
    )
    parser.add_argument(
        "--until", type=_number, metavar="OFFSET", help="with --digest: the log up to there"
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _print_digests(parsed: argparse.Namespace) -> int:
    """Of data directories; 1 if one cannot be opened, or its two digests differ."""
    found: list[dict[str, object]] = []
    for path in parsed.paths:
        row: dict[str, object] = {"path": str(path)}
        try:
            row |= digests_of(path, parsed.until)._asdict()
            row["good"] = row["rebuilt"] in ("", row["restored"])
        except READ_ERRORS as error:
            row |= {"good": False, "error": str(error) or repr(error)}
        found.append(row)
    if parsed.json:
        sys.stdout.write(f"{json.dumps(found)}\n")
    else:
        for row in found:
            sys.stdout.write("".join(f"{name}: {value}\n" for name, value in row.items()))
    return EXIT_OK if all(row["good"] for row in found) else EXIT_DAMAGE


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def parse_hour(text: str) -> int:
    """Hours since the Unix epoch, from such a number or from an instant in UTC."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(np.datetime64(text.removesuffix("Z"), "h").astype(np.int64))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no hour, such as 2027-01-31T08") from None


def find_root(path: Path) -> tuple[Path, str]:
    """(data directory that a path lies in, the path inside it); else its folder, and its name."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        is_root = (folder / NODE_META).is_file() or any(folder.glob(f"{SHARD_START}[0-9]*/log"))
        if is_root:
            return folder, "" if folder == whole else whole.relative_to(folder).as_posix()
    return (whole, "") if whole.is_dir() else (whole.parent, whole.name)


def _print_json(reports: list[tuple[Path, Report]], *, verified: bool) -> None:
    found = {
        "good": all(report.is_good for _, report in reports),
        "verified": verified,
        "paths": [{"path": str(path), **report.as_json()} for path, report in reports],
    }
    sys.stdout.write(f"{json.dumps(found)}\n")


def _print_tables(reports: list[tuple[Path, Report]], *, verified: bool) -> None:
    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal else _WIDTH_PLAIN)
    for path, report in reports:
        if len(reports) > 1:
            console.rule(str(path))
        for text in texts_of(report):
            console.print(text)
        if verified and report.is_good:
            console.print("\nverified: no damage", style="bold green")
