"""`hourwheel inspect`: what lies in a data directory, a part of it, or a single file, read-only.

    a directory, a shard     everything in short: owner, segments, epochs, manifest, runs, queues
    log/ wheel/ queues/ ...  that part
    a file                   by the type in its header: batches, buckets, entries

The lock is not taken and nothing is changed, so that it works on the directory of a running node,
and of one that will not start. What is damaged is shown by file and byte, and the rest is shown.
"""

from collections.abc import Callable

import numpy as np

from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, SequenceNumber
from node.shard.checkpoint import MANIFEST
from node.shard.node_meta import NODE_META
from node.tools.inspect.batches import batches, find_message, find_segment
from node.tools.inspect.files import SHARD_START, ShardFiles, cluster_id_of, steadily
from node.tools.inspect.indexes import (
    SEQUENCES,
    TOMBSTONES,
    Cancelled,
    find_entry,
    show_sequences,
    show_tombstones,
)
from node.tools.inspect.key_index import KEYS, show_keys, verify_keys
from node.tools.inspect.log import EPOCHS, LOG, segment_starts, show_epochs, show_segments
from node.tools.inspect.report import READ_ERRORS, Report, Row
from node.tools.inspect.single_file import InspectOptions, inspect_file
from node.tools.inspect.verify_log import LogFacts, verify_log
from node.tools.inspect.verify_views import (
    verify_manifest,
    verify_queues,
    verify_sequences,
    verify_tombstones,
)
from node.tools.inspect.verify_wheel import verify_wheel
from node.tools.inspect.views import QUEUES, shards_of, show_manifest, show_node, show_queues
from node.tools.inspect.wheel import WHEEL, show_delay_logs, show_hour, show_runs
from storage.files.disk import Disk


def inspect(disk: Disk, options: InspectOptions) -> Report:
    """Look. Whatever is wrong is in the report; nothing is raised for it."""
    report = Report()
    folder, *rest = options.path.split("/")
    is_in_shard = folder.startswith(SHARD_START)
    try:
        if not options.path:
            if options.is_overview:
                show_node(disk, NODE_META, report)
            for name in shards_of(disk):
                _inspect_shard(_shard(disk, name), "", options, report)
        elif not options.is_folder:
            files = _shard(disk, folder) if is_in_shard and rest else ShardFiles(disk, "")
            inspect_file(files, options, report)
        elif is_in_shard:
            _inspect_shard(_shard(disk, folder), "/".join(rest[:1]), options, report)
        else:
            report.damaged(options.path, None, "is no data directory and no part of one")
    except READ_ERRORS as error:
        report.caught(error, options.path or ".")
    return report


def _shard(disk: Disk, folder: str) -> ShardFiles:
    return ShardFiles(disk, folder, cluster_id_of(disk))


def _inspect_shard(files: ShardFiles, part: str, options: InspectOptions, report: Report) -> None:
    """A shard, or one part of it."""
    manifest = files.find_manifest()
    try:
        if options.sequence is not None:
            _show_message(files, manifest, options.sequence, report)
        elif options.offset is not None:
            _show_batches(files, options, report)
        elif options.hour is not None:
            show_hour(files, manifest, report, hour=options.hour, limit=options.limit)
        else:
            _show_parts(files, manifest, part, report)
    except READ_ERRORS as error:
        report.caught(error, files.path(part))
    if options.verify:
        _verify_parts(files, part, report)


def _show_parts(files: ShardFiles, manifest: Checkpoint | None, part: str, report: Report) -> None:
    if part in ("", LOG):
        show_segments(files, report)
    if not part:
        show_epochs(files, files.path(EPOCHS), report)
        show_manifest(files, files.path(MANIFEST), report)
    if part in ("", WHEEL):
        show_runs(files, manifest, report)
        show_delay_logs(files, manifest, report)
    if part in ("", QUEUES):
        show_queues(files, manifest, report)
    if part in ("", SEQUENCES):
        show_sequences(files, manifest, report)
    if part in ("", TOMBSTONES):
        show_tombstones(files, manifest, report)
    if part in ("", KEYS):
        show_keys(files, manifest, report)


def _show_batches(files: ShardFiles, options: InspectOptions, report: Report) -> None:
    path = find_segment(files, options.offset, None)
    if path is None:
        report.remark(f"{files.path(LOG)}: the log is empty")
        return
    rows = batches(files, path, report, offset=options.offset)
    report.add("batches", path, rows, options.limit)


def _show_message(
    files: ShardFiles, manifest: Checkpoint | None, sequence: SequenceNumber, report: Report
) -> None:
    """All that the files know of one message."""
    path = find_segment(files, None, sequence)
    if path is not None:
        report.add("batch", path, batches(files, path, report, sequence=sequence), 1)
        message = find_message(files, path, sequence)
        report.add("message", path, [] if message is None else [message])
    entry = find_entry(files, sequence)
    row: Row = {"sequence": sequence} if entry is None else entry.row(sequence)
    if manifest is not None:
        is_indexed = sequence < manifest.sequence_index_count
        is_cancelled = Cancelled(files, manifest).contains(np.array([sequence], np.uint64))[0]
        row["indexed_at_checkpoint"] = "yes" if is_indexed else "no"
        row["cancelled_at_checkpoint"] = "yes" if is_cancelled else "no"
    report.add("sequence index", files.path(SEQUENCES), [row])


# --- verification -------------------------------------------------------------------------------


def _verify_parts(files: ShardFiles, part: str, report: Report) -> None:
    """Verify a shard or a part. Each part is compared with the manifest of its moment."""
    facts = LogFacts()
    manifest = files.find_manifest()
    if part in ("", LOG):
        found = Report()
        facts = verify_log(files, found, manifest)
        report.take(found)
    starts = segment_starts(files)
    log_start = starts[0] if starts else FIRST_OFFSET
    checks: dict[str, Callable[[Checkpoint, Report], None]] = {
        WHEEL: lambda manifest, found: verify_wheel(files, manifest, found, log_start=log_start),
        QUEUES: lambda manifest, found: verify_queues(files, manifest, found, log_start=log_start),
        SEQUENCES: lambda manifest, found: verify_sequences(files, manifest, found),
        TOMBSTONES: lambda manifest, found: verify_tombstones(files, manifest, found),
        KEYS: lambda manifest, found: verify_keys(files, manifest, found),
    }
    for name, check in checks.items():
        if part in ("", name):
            report.take(steadily(files, check))
    if manifest is not None:
        verify_manifest(files, manifest, report, facts)
