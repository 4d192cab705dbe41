"""`hourwheel backup`: take a backup, list those of a folder, verify one."""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from hourwheel.clock import Clock, SystemClock
from hourwheel.types import FIRST_SHARD, NodeId
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import NODE_META
from node.tools.backup.capture import PAUSE_S, capture
from node.tools.backup.manifest import Manifest, digest_of, pack_manifest
from node.tools.backup.place import open_place, open_to_write
from node.tools.backup.repository import Repository
from node.tools.backup.restore import SHARD_FOLDER, find_control
from replication.control_state.state import ControlState
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import Identity

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""No backup was taken, or one is damaged."""
_MIB: Final = 1 << 20
_MS: Final = 1_000
_RATE_MIB: Final = 64
_MENDED: Final = (
    "Now take a backup (hourwheel backup create): it writes again what the node still has of them."
    " Then verify again, and remove the backups that are damaged still: no restore takes them."
)
_NOT_MENDED: Final = (
    "Later backups share these pieces, and are damaged with them, until"
    " hourwheel backup verify --mend has removed them and hourwheel backup create wrote them again."
)


def main(arguments: Sequence[str]) -> int:
    """Do what was asked for; the process's exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run_command(parsed))
    except errors.HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel backup",
        description="Copies of a node's data in a folder or an object store. They share what"
        " is the same in them.",
        epilog="Exit codes: 0 fine, 1 no backup was taken or one is damaged, 2 wrong command line.",
    )
    commands = parser.add_subparsers(metavar="command", required=True)

    create = commands.add_parser(
        "create",
        help="take a backup",
        description="Take a backup of a node, beside it: run this on its machine, as its user. The"
        " node may run, as master or follower, or not. Only what is not there yet is"
        " written; everything is read.",
    )
    create.add_argument("directory", type=Path, metavar="DATA_DIRECTORY")
    create.add_argument(
        "--to",
        required=True,
        metavar="PLACE",
        help="with the backups: a folder, or s3://BUCKET/PREFIX",
    )
    create.add_argument(
        "--rate",
        type=_rate,
        default=_RATE_MIB,
        metavar="MIB",
        help=f"read so many MiB a second at most; 0: as fast as it goes. Default: {_RATE_MIB}",
    )
    create.set_defaults(run_command=_create)

    listed = commands.add_parser("list", help="list the backups of a place")
    listed.set_defaults(run_command=_list)
    verify = commands.add_parser(
        "verify", help="read a backup and check every byte of it; by default all of a place"
    )
    verify.set_defaults(run_command=_verify)
    remove = commands.add_parser(
        "remove", help="remove a backup, and what no other needs, for good"
    )
    remove.set_defaults(run_command=_remove)
    for one in (listed, verify, remove):
        one.add_argument("place", metavar="PLACE")
    verify.add_argument("backup", nargs="?", metavar="ID")
    verify.add_argument(
        "--mend",
        action="store_true",
        help="remove damaged pieces, so that the next backup writes them again",
    )
    remove.add_argument("backup", metavar="ID")
    for one in (create, listed, verify, remove):
        one.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _rate(text: str) -> int:
    rate = int(text)
    if rate < 0:
        raise ValueError(text)
    return rate


def _create(parsed: argparse.Namespace) -> int:
    if not (parsed.directory / NODE_META).is_file():
        sys.stderr.write(f"{parsed.directory}: no data directory\n")
        return EXIT_FAILED
    try:
        store = open_to_write(parsed.to, make=True)
    except OSError as error:
        sys.stderr.write(f"{parsed.to}: {error.strerror}\n")
        return EXIT_FAILED
    disk, clock = RealDisk(parsed.directory), SystemClock()
    meta = atomic_file.read_any(disk, NODE_META)
    place = ShardPlace(disk, SHARD_FOLDER, Identity(meta.header.identity.cluster_id, FIRST_SHARD))
    begun_ms = clock.monotonic_ms()
    with store.adding():
        captured = capture(
            place,
            Repository(store),
            node_id=NodeId(meta.payload.decode()),
            made_ms=int(clock.wall_ms()),
            pace=pace_of(clock, parsed.rate * _MIB),
            pause=_pause,
        )
    facts = _facts(captured.backup_id, captured.manifest)
    facts |= {
        "new_bytes": captured.new_bytes,
        "manifest_sha256": digest_of(pack_manifest(captured.manifest)),
        "seconds": round((clock.monotonic_ms() - begun_ms) / _MS, 3),
    }
    if parsed.json:
        _print_json(facts)
    else:
        sys.stdout.write(
            f"{captured.backup_id}: {captured.manifest.total_bytes:,} bytes,"
            f" {captured.new_bytes:,} of them new, in {facts['seconds']} s\n"
            f"for hourwheel restore --expect-manifest, to be kept elsewhere:"
            f" {facts['manifest_sha256']}\n"
        )
    return EXIT_OK


def pace_of(clock: Clock, bytes_per_s: int) -> Callable[[int], None]:
    """What waits so that no more is read than that; 0: never."""
    never = threading.Event()
    free_ms = clock.monotonic_ms()

    def wait(count: int) -> None:
        nonlocal free_ms
        if not bytes_per_s:
            return
        free_ms = max(free_ms + count * _MS / bytes_per_s, clock.monotonic_ms() - _MS)
        never.wait(max(0.0, free_ms - clock.monotonic_ms()) / _MS)

    return wait


def _pause() -> None:
    threading.Event().wait(PAUSE_S)


def _list(parsed: argparse.Namespace) -> int:
    repository, code = Repository(open_place(parsed.place)), EXIT_OK
    for backup_id in repository.ids():
        try:
            manifest = repository.read(backup_id)
            access = _access_facts(find_control(repository, manifest))
        except errors.HourwheelError as error:
            sys.stderr.write(f"{error.message}\n")
            code = EXIT_FAILED
            continue
        if parsed.json:
            _print_json({**_facts(backup_id, manifest), **access})
        else:
            checkpoint = datetime.fromtimestamp(manifest.views_ms / _MS, UTC)
            sys.stdout.write(
                f"{backup_id}  node {manifest.node_id}  {manifest.total_bytes:,} bytes  "
                f"to any moment from {checkpoint:%Y-%m-%dT%H:%M:%SZ} on"
                f"{_access_text(access)}\n"
            )
    return code


def _facts(backup_id: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "backup": backup_id,
        "cluster_id": manifest.cluster_id,
        "node_id": manifest.node_id,
        "made_ms": manifest.made_ms,
        "views_ms": manifest.views_ms,
        "log_start_offset": manifest.log_start_offset,
        "log_end_offset": manifest.log_end_offset,
        "file_count": len(manifest.files),
        "total_bytes": manifest.total_bytes,
    }


def _access_facts(state: ControlState | None) -> dict[str, Any]:
    """What a backup has of the control state; its members are for information alone."""
    if state is None:
        return {"users": 0, "grants": 0, "quotas": 0, "members": [], "generation": 0}
    access, membership = state.access, state.membership
    return {
        "users": len(access.users),
        "grants": len(access.grants),
        "quotas": len(access.quotas),
        "members": sorted(membership.members),
        "generation": membership.generation,
    }


def _access_text(facts: dict[str, Any]) -> str:
    counts = [f"{facts[one]} {one}" for one in ("users", "grants", "quotas") if facts[one]]
    members = f"members {', '.join(facts['members'])}" if facts["members"] else ""
    return "".join(f"  {one}" for one in (", ".join(counts), members) if one)


def _verify(parsed: argparse.Namespace) -> int:
    store = open_to_write(parsed.place) if parsed.mend else open_place(parsed.place)
    with store.removing() if parsed.mend else nullcontext():
        return _verify_each(Repository(store), parsed)


def _verify_each(repository: Repository, parsed: argparse.Namespace) -> int:
    code, all_removed, damaged_count = EXIT_OK, 0, 0
    for backup_id in repository.ids() if parsed.backup is None else [parsed.backup]:
        removed: list[str] | None = [] if parsed.mend else None
        try:
            found = list(repository.verify(backup_id, removed))
        except errors.DataLoss as error:
            found = [error]
        damages = [one for one in found if one is not None]
        code = EXIT_FAILED if damages else code
        damaged_count += len(damages)
        all_removed += len(removed or ())
        if parsed.json:
            facts = {
                "backup": backup_id,
                "pieces": len(found),
                "damaged": [one.message for one in damages],
            }
            _print_json(facts | ({} if removed is None else {"removed": removed}))
            continue
        for one in damages:
            sys.stdout.write(f"{backup_id}: {one.message}\n")
        if not damages:
            sys.stdout.write(f"{backup_id}: good, {len(found):,} pieces\n")
    if all_removed:
        sys.stderr.write(f"{all_removed:,} damaged pieces are removed. {_MENDED}\n")
    elif damaged_count and not parsed.mend:
        sys.stderr.write(f"{_NOT_MENDED}\n")
    return code


def _remove(parsed: argparse.Namespace) -> int:
    store = open_to_write(parsed.place)
    with store.removing():
        removed_bytes = Repository(store).remove(parsed.backup)
    if parsed.json:
        _print_json({"backup": parsed.backup, "removed_bytes": removed_bytes})
    else:
        sys.stdout.write(f"{parsed.backup}: removed, {removed_bytes:,} bytes\n")
    return EXIT_OK


def _print_json(facts: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(facts)}\n")
