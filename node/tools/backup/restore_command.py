"""`hourwheel restore`: make the data directory of a new cluster out of a backup."""

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.instants import instant_to_ms
from node.tools.backup.place import open_place
from node.tools.backup.repository import Repository
from node.tools.backup.restore import Overdue, Restored, RestorePlan, choose_backup, restore
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.file_header import CLUSTER_ID_BYTES

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""Nothing was restored."""
SHA256_BYTES: Final = 32
_MS: Final = 1_000
_CLOCK_MS_MAX: Final = 60_000
"""The clock of another machine may be ahead by so much."""


def main(arguments: Sequence[str]) -> int:
    """Restore; the process's exit code."""
    parsed = _parser().parse_args(arguments)
    clock = SystemClock()
    begun_ms = clock.monotonic_ms()
    try:
        repository = Repository(open_place(parsed.place))
        if parsed.now is not None and parsed.now > clock.wall_ms() + _CLOCK_MS_MAX:
            raise errors.InvalidArgument("--now lies in the future: a node would wait until then")
        backup_id = choose_backup(repository, parsed.backup, parsed.until)
        plan = RestorePlan(
            cluster_id=parsed.cluster_id or secrets.token_bytes(CLUSTER_ID_BYTES),
            node_id=parsed.node or repository.read(backup_id).node_id,
            now_ms=int(clock.wall_ms()) if parsed.now is None else parsed.now,
            overdue=Overdue(parsed.overdue),
            until_ms=parsed.until,
            has_access=not parsed.without_access,
            manifest_digest=parsed.expect_manifest,
        )
        parsed.to.mkdir(parents=True, exist_ok=True)
        with DirectoryLock.acquire(parsed.to):
            restored = restore(
                repository,
                backup_id,
                RealDisk(parsed.to),
                plan,
                RealDisk(parsed.to, is_private=True),
            )
    except errors.HourwheelError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_FAILED
    except OSError as error:
        sys.stderr.write(f"{parsed.to}: {error.strerror}\n")
        return EXIT_FAILED
    _print(parsed, backup_id, plan, restored, (clock.monotonic_ms() - begun_ms) / _MS)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hourwheel restore",
        description="Make the data directory of a new cluster out of a backup. Every byte is"
        " verified; receipts of the old cluster are void. What was released and not acknowledged"
        " is delivered again.",
        epilog="Exit codes: 0 restored, 1 nothing was restored, 2 wrong command line.",
    )
    parser.add_argument(
        "--from",
        dest="place",
        required=True,
        metavar="PLACE",
        help="of the backups: a folder, or s3://BUCKET/PREFIX",
    )
    parser.add_argument("--backup", metavar="ID", help="which; default: the latest that will do")
    parser.add_argument(
        "--expect-manifest",
        type=_digest,
        metavar="SHA256",
        help="restore nothing but the backup of which `hourwheel backup create` has shown this:"
        " then it was not changed where it lies",
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DATA_DIRECTORY", help="empty, or not there yet"
    )
    parser.add_argument(
        "--overdue",
        default=Overdue.HOLD.value,
        choices=[one.value for one in Overdue],
        help="messages that fell due before now. hold, the default: if there are any, all that is"
        " pending waits for `hourwheel dispatch resume`; release them when the node starts; discard"
        " (cancel) them",
    )
    parser.add_argument(
        "--until",
        type=_instant,
        metavar="TIME",
        help="leave out what was stored later: an ISO time with a zone, or milliseconds since 1970",
    )
    parser.add_argument(
        "--without-access",
        action="store_true",
        help="leave out users with their secrets, grants and quotas; by default they come back as"
        " they were when the backup was taken, also those that were removed since",
    )
    parser.add_argument(
        "--node", metavar="ID", help="whose directory it is to be; default: as it was"
    )
    parser.add_argument(
        "--cluster-id",
        type=_cluster_id,
        metavar="ID",
        help="of the new cluster, 32 hexadecimal digits; default: a random one",
    )
    parser.add_argument(
        "--now",
        type=_instant,
        metavar="TIME",
        help="what is overdue, is so at this time; for the other nodes of a cluster the same as for"
        " the first",
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser


def _instant(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return instant_to_ms(datetime.fromisoformat(text))
    except errors.InvalidDueTime as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _digest(text: str) -> str:
    if len(bytes.fromhex(text)) != SHA256_BYTES:
        raise ValueError(text)
    return text.lower()


def _cluster_id(text: str) -> bytes:
    found = bytes.fromhex(text.replace("-", ""))
    if len(found) != CLUSTER_ID_BYTES:
        raise ValueError(text)
    return found


def _print(
    parsed: argparse.Namespace,
    backup_id: str,
    plan: RestorePlan,
    restored: Restored,
    seconds: float,
) -> None:
    facts = {
        "backup": backup_id,
        "directory": str(parsed.to),
        "cluster_id": plan.cluster_id.hex(),
        "node_id": plan.node_id,
        "now_ms": plan.now_ms,
        "epoch": restored.epoch,
        "pending_count": restored.pending_count,
        "overdue_count": restored.overdue_count,
        "discarded_count": restored.discarded_count,
        "recurrence_count": restored.recurrence_count,
        "log_end_offset": restored.log_end_offset,
        "users": restored.user_count,
        "grants": restored.grant_count,
        "quotas": restored.quota_count,
        "seconds": round(seconds, 3),
    }
    if parsed.json:
        sys.stdout.write(f"{json.dumps(facts)}\n")
        return
    sys.stdout.write(
        f"restored {backup_id} into {parsed.to} in {facts['seconds']} s: "
        f"{restored.pending_count:,} pending, {restored.overdue_count:,} of them overdue,"
        f" {restored.discarded_count:,} discarded\n"
        f"{_held(plan, restored)}{_recurring(restored)}{_access(restored)}"
        f"node {plan.node_id} of cluster {plan.cluster_id.hex()}, epoch {restored.epoch}\n"
        f"for each other node of that cluster, into a directory of its own: --backup {backup_id}"
        f" --cluster-id {plan.cluster_id.hex()} --now {plan.now_ms} --overdue {plan.overdue}"
        f"{'' if plan.until_ms is None else f' --until {plan.until_ms}'}"
        f"{'' if plan.has_access else ' --without-access'}"
        f"{'' if plan.manifest_digest is None else f' --expect-manifest {plan.manifest_digest}'}"
        " --node ITS_ID; and"
        f" cluster.id = '{plan.cluster_id.hex()}' in the configuration of all\n"
    )


def _held(plan: RestorePlan, restored: Restored) -> str:
    if plan.overdue is not Overdue.HOLD or not restored.overdue_count:
        return ""
    when = datetime.fromtimestamp(plan.now_ms / _MS, UTC).isoformat(timespec="milliseconds")
    return (
        "what is pending waits. When the node serves: hourwheel dispatch resume, to release what"
        f" is overdue, or hourwheel dispatch resume --discard-before {when}\n"
    )


def _recurring(restored: Restored) -> str:
    if not restored.recurrence_count:
        return ""
    return f"{restored.recurrence_count:,} recurrences go on from now, without what they missed\n"


def _access(restored: Restored) -> str:
    if not (restored.user_count or restored.grant_count or restored.quota_count):
        return ""
    return (
        f"as they were in the backup: {restored.user_count} users, {restored.grant_count} grants,"
        f" {restored.quota_count} quotas. What was revoked since is valid again: remove it\n"
    )
