"""Backups and restores of many pending messages: how long each step takes; all is there."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from hourwheel.clock import SystemClock
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import NODE_META
from node.tools.backup.capture import capture
from node.tools.backup.repository import Repository
from node.tools.backup.restore import SHARD_FOLDER, Overdue, RestorePlan, restore
from node.tools.backup.store import FolderStore
from spark_jobs.audit.delivery import audit_with
from spark_jobs.audit.facts.result import Verdict
from spark_jobs.audit.shard import AuditOptions
from spark_jobs.runtime.runner import LocalRunner
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from tests.bench import load, subject
from tests.bench.pending import pending_requests
from tests.bench.results import Report
from tests.bench.sizes import Size

T = TypeVar("T")
_NEW_CLUSTER: Final = bytes(range(16))


async def run(size: Size, folder: Path) -> Report:
    """Fill a node, back it up twice, restore it, and audit what was restored."""
    count = size.pick(5_000, 1_000_000, 10_000_000)
    report = Report(
        [
            f"{count:,} messages of {load.BODY_BYTES} bytes pending, due over 24 hours",
            "the node is stopped; files in the page cache; no pace; backups on the same disk",
            "the audit runs in this process, without Spark",
        ]
    )
    async with subject.running(folder / "data") as node:
        await load.write_prebuilt(node.channel, pending_requests(), count // load.BATCH)
        if size is not Size.TINY:
            await node.settle()
        await node.stop()
        await asyncio.to_thread(_measure, report, folder, count)
    return report


def _measure(report: Report, folder: Path, count: int) -> None:
    disk, backups = RealDisk(folder / "data"), folder / "backups"
    backups.mkdir()
    repository = Repository(FolderStore(RealDisk(backups)))
    meta = atomic_file.read_any(disk, NODE_META)
    place = ShardPlace(disk, SHARD_FOLDER, Identity(meta.header.identity.cluster_id, 0))
    now_ms = int(SystemClock().wall_ms())
    for name in ("first backup", "second backup, nothing is new"):
        taken = _timed(
            report,
            name,
            lambda: capture(place, repository, node_id="n", made_ms=now_ms, pace=lambda _: None),
        )
    report.add("size of a backup", taken.manifest.total_bytes / 2**20, "MiB")
    _timed(report, "verify", lambda: list(repository.verify(taken.backup_id)))
    new = folder / "restored"
    new.mkdir()
    plan = RestorePlan(_NEW_CLUSTER, "n", now_ms, Overdue.RELEASE)
    found = _timed(
        report, "restore", lambda: restore(repository, taken.backup_id, RealDisk(new), plan)
    )
    if found.pending_count != count:
        raise RuntimeError(f"{found}")
    result = _timed(
        report,
        "audit of what was restored",
        lambda: audit_with(LocalRunner(), [str(new)], AuditOptions()),
    )
    if result.verdict is not Verdict.CLEAN:
        raise RuntimeError(f"the audit says {result.verdict}")


def _timed(report: Report, name: str, step: Callable[[], T]) -> T:
    begun = time.perf_counter()
    result = step()
    report.add(name, time.perf_counter() - begun, "s")
    return result
