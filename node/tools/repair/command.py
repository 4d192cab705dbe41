"""`python -m node repair` and `hourwheel repair`: what is damaged and lost; and act."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.types import FIRST_SHARD
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import CONTROL, NODE_META
from node.tools.repair.carry_out import carry_out, find_unfinished
from node.tools.repair.log_pieces import LogPieces
from node.tools.repair.survey import Survey, survey
from storage.files import atomic_file
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.file_header import Identity

EXIT_OK: Final = 0
EXIT_DAMAGE: Final = 1
"""Something is damaged, and was left as it is."""
EXIT_USAGE: Final = 2
_SHARD: Final = "shard-0"


def main(arguments: Sequence[str]) -> int:
    """Look, print, and act if asked to."""
    parsed = _parser().parse_args(arguments)
    directory: Path = parsed.directory
    if not (directory / NODE_META).is_file():
        sys.stderr.write(f"{directory}: no data directory\n")
        return EXIT_USAGE
    if (directory / CONTROL).exists():
        sys.stderr.write(
            f"{directory}: of a node of a cluster, which copies from its peers what is damaged "
            "here: start it\n"
        )
        return EXIT_USAGE
    try:
        with DirectoryLock.acquire(directory):
            answer, code = _answer(directory, mend=parsed.mend, discard=parsed.discard)
    except errors.HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_DAMAGE
    if parsed.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        _print(answer)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel repair",
        description="For a node without peers that does not start because of a damaged file, while"
        " its log no longer reaches back to its beginning. Says what can be had back and what is"
        " lost, and changes nothing without --mend or --discard. The node must not run.",
        epilog="Exit codes: 0 nothing is damaged or it is repaired, 1 something is damaged and was"
        " left as it is, 2 wrong command line.",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    act = parser.add_mutually_exclusive_group()
    act.add_argument(
        "--mend", action="store_true", help="put right what can be, if nothing is lost by that"
    )
    act.add_argument(
        "--discard",
        action="store_true",
        help="put right what can be, and give up what is listed as lost",
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _answer(directory: Path, *, mend: bool, discard: bool) -> tuple[dict[str, Any], int]:
    meta = atomic_file.read_any(RealDisk(directory, read_only=True), NODE_META)
    identity = Identity(meta.header.identity.cluster_id, FIRST_SHARD)
    place = ShardPlace(RealDisk(directory, read_only=True), _SHARD, identity)
    if not LogPieces(place.disk, place.under("log")).start_offset:
        return {
            "is_needed": False,
            "why": "the log reaches back to its beginning: the node builds its views again when "
            "it is started",
        }, EXIT_OK
    found = survey(place)
    answer: dict[str, Any] = {"is_needed": not found.is_clean, "is_repaired": False}
    answer |= _as_json(found)
    answer["interrupted"] = [str(directory / one) for one in find_unfinished(place.disk)]
    if found.is_clean:
        return answer, EXIT_OK
    if found.refused or not (discard or (mend and found.is_lossless)):
        return answer, EXIT_DAMAGE
    writable = ShardPlace(RealDisk(directory), _SHARD, identity)
    report = f"{json.dumps(_as_json(found), indent=1)}\n".encode()
    answer["kept_aside"] = str(directory / carry_out(writable, found, report))
    answer["is_repaired"] = survey(place).is_clean
    return answer, EXIT_OK if answer["is_repaired"] else EXIT_DAMAGE


def _as_json(found: Survey) -> dict[str, Any]:
    return {
        "is_lossless": found.is_lossless,
        "mended": {one.path: one.mended for one in found.images},
        "rewritten": [
            {
                "run": f"{state.covers_first}-{state.run_id}",
                "messages": state.unit_count,
                "readable": len(units),
            }
            for state, units in found.kept_units
        ],
        "found_in_log": len(found.from_log),
        "lost": [one._asdict() for one in found.lost],
        "lost_without_a_name": found.unnamed_count,
        "refused": found.refused,
    }


def _print(answer: dict[str, Any]) -> None:
    lines = [answer["why"]] if "why" in answer else list(_lines(answer))
    sys.stdout.write("".join(f"{one}\n" for one in lines))


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [
        f"an earlier repair was interrupted: {one} names what it was about to give up"
        for one in answer["interrupted"]
    ]
    if not answer["is_needed"]:
        return [*lines, "nothing that the node needs to start is damaged"]
    lines += [
        f"{path}: can be put right: {', '.join(how)}" for path, how in answer["mended"].items()
    ]
    lines += [
        f"run {one['run']}: {one['readable']} of {one['messages']} entries are readable"
        for one in answer["rewritten"]
    ]
    if answer["found_in_log"]:
        lines.append(f"{answer['found_in_log']} pending messages are made again of the log")
    for one in answer["lost"]:
        where = one["topic"] or "(topic unknown)"
        where += f" queue {one['queue']}" if one["queue"] >= 0 else ""
        where += f" position {one['position']}" if one["position"] >= 0 else ""
        sure = "" if one["is_certain"] else ", by the damaged place's own words"
        done = ", acknowledged by all" if one["is_acknowledged"] else ""
        due = np.datetime64(one["due_ms"], "ms")
        lines.append(f"lost: {one['kind']} {one['message_id']} due {due} {where}{sure}{done}")
    if answer["lost_without_a_name"]:
        lines.append(f"lost: {answer['lost_without_a_name']} more pending messages, names unknown")
    lines += [f"cannot be repaired: {one}" for one in answer["refused"]]
    return [*lines, _outcome(answer)]


def _outcome(answer: dict[str, Any]) -> str:
    if answer["is_repaired"]:
        return f"repaired; the damaged files are in {answer['kept_aside']}"
    if answer["refused"]:
        return "nothing was changed: put back sound files from a backup, and try again"
    if not answer["is_lossless"]:
        return "nothing was changed: --discard gives up what is lost and makes the rest startable"
    return "nothing was changed: --mend makes the directory startable, and nothing is lost"
