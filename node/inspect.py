"""What lies in a data directory, read-only: also that of a node that runs, or of one that will not.

    nodes        whose directory it is               segments    files of the log
    batches      records of the log, verified        epochs      where each reign begins
    checkpoint   the manifest, decoded               runs        files of the wheel
    buckets      hours and days of the runs          slots       seconds (or hours) of one bucket
    units        scheduled messages of one run

Every row is a flat dict, so that `--json` and a table say the same. Damage is a row with `fault`,
and the rest is shown. A running node goes on writing: its newest file may seem to end too early.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from google.protobuf.json_format import MessageToDict

from hourwheel import errors
from hourwheel.record_batch import Kind, RecordBatch
from hourwheel.types import Offset
from hourwheel.wire.state_pb2 import Checkpoint, ConfigChange, EpochStart
from node.checkpoint import MANIFEST
from node.node_meta import NODE_META
from storage import atomic_file
from storage.disk import Disk, RealDisk, join
from storage.epoch_file import EpochFile
from storage.file_header import FILE_HEADER_BYTES, FileType, Identity
from storage.segment import Segment, find_start_offset
from timewheel.levels import BUCKET_MS, DAY_LEVEL, SLOT_MS
from timewheel.run import Run

Row: TypeAlias = dict[str, Any]

_INSTANT_MS_MAX: Final = 253_402_300_799_999
_LEVELS: Final = ("hours", "days")


def instant(due_ms: int) -> str:
    """An instant as people write it, UTC; as a number where no calendar reaches."""
    if not 0 <= due_ms <= _INSTANT_MS_MAX:
        return str(due_ms)
    return f"{np.datetime64(due_ms, 'ms')}Z"


class Inspection:
    """One data directory."""

    def __init__(self, directory: str, shard: int = 0) -> None:
        """Open it for reading.

        Raises:
            CorruptFile: there is no readable node.meta, so it is no data directory.
        """
        self._disk: Disk = RealDisk(directory, read_only=True)
        self._shard = f"shard-{shard}"
        try:
            meta = atomic_file.read_any(self._disk, NODE_META)
        except FileNotFoundError:
            raise errors.CorruptFile(
                f"{directory} is no data directory: it has no {NODE_META}", file=NODE_META
            ) from None
        self._node_id = meta.payload.decode("utf-8", "replace")
        self._identity = Identity(meta.header.identity.cluster_id, shard)

    def nodes(self) -> Iterator[Row]:
        """Whose directory it is."""
        yield {
            "node_id": self._node_id,
            "cluster_id": str(uuid.UUID(bytes=self._identity.cluster_id)),
            "shards": ",".join(name for name in self._disk.list("") if name.startswith("shard-")),
            "disk_bytes": self._disk.used_bytes(""),
        }

    # -- log --------------------------------------------------------------------------------------

    def _segments(self) -> Iterator[Segment]:
        directory = join(self._shard, "log")
        for name in self._disk.list(directory):
            start = find_start_offset(name)
            if start is not None:
                yield Segment(self._disk, directory, start, self._identity)

    def segments(self) -> Iterator[Row]:
        """Files of the log."""
        for segment in self._segments():
            size = segment.open_file().size()
            row: Row = {
                "file": segment.path,
                "start_offset": int(segment.start_offset),
                "end_offset": segment.start_offset + max(size - FILE_HEADER_BYTES, 0),
                "bytes": size,
            }
            try:
                segment.check_header()
            except errors.HourwheelError as error:
                row["fault"] = error.message
            segment.close()
            yield row

    def batches(self, from_: int, limit: int) -> Iterator[Row]:
        """Up to `limit` records, from the one that begins at `from_` (or the log's start) on."""
        for segment in self._segments():
            end = Offset(segment.start_offset + segment.open_file().size() - FILE_HEADER_BYTES)
            begin = max(from_, int(segment.start_offset))
            if begin >= end:
                segment.close()
                continue
            walk = segment.walk(begin, end)
            for batch in walk:
                yield _batch_row(batch)
                limit -= 1
                if limit <= 0:
                    break
            segment.close()
            if limit <= 0:
                return
            if walk.fault is not None:
                at = int(walk.next_offset)
                yield {"offset": at, "file": segment.path, "fault": walk.fault}
                return

    def epochs(self) -> Iterator[Row]:
        """Where each reign begins."""
        found = EpochFile.open(self._disk, join(self._shard, "epochs"), self._identity)
        for entry in found.entries:
            yield {"epoch": int(entry.epoch), "start_offset": int(entry.start_offset)}

    def checkpoint(self) -> Iterator[Row]:
        """The manifest, part by part."""
        path = join(self._shard, MANIFEST)
        if not self._disk.exists(path):
            return
        found = atomic_file.read(self._disk, path, FileType.CHECKPOINT, self._identity)
        manifest = Checkpoint.FromString(found.payload)
        parts = MessageToDict(manifest, preserving_proto_field_name=True)
        yield {
            "part": "checkpoint",
            **{name: value for name, value in parts.items() if isinstance(value, str | int)},
        }
        for name, value in parts.items():
            if isinstance(value, dict):
                yield {"part": name, **value}
            elif isinstance(value, list):
                yield from ({"part": name, **each} for each in value)

    # -- wheel ------------------------------------------------------------------------------------

    def _runs(self, run_id: int | None = None) -> Iterator[Run | Row]:
        directory = join(self._shard, "wheel")
        for name in self._disk.list(directory) if self._disk.exists(directory) else []:
            path = join(directory, name)
            if not name.endswith(".run"):
                continue
            try:
                run = Run(self._disk, path, self._identity)
            except FileNotFoundError:
                continue  # merged away between the listing and now
            except errors.HourwheelError as error:
                yield {"file": path, "fault": error.message}
                continue
            try:
                if run_id is None or run.footer.run_id == run_id:
                    yield run
            finally:
                run.close()

    def runs(self) -> Iterator[Row]:
        """Files of the wheel, those that the next checkpoint will drop included."""
        for run in self._runs():
            if not isinstance(run, Run):
                yield run
                continue
            footer = run.footer
            yield {
                "run": footer.run_id,
                "covers_first": footer.covers_first,
                "level": _LEVELS[footer.level],
                "units": footer.unit_count,
                "buckets": footer.section_count,
                "first_due": instant(footer.due_ms_min),
                "last_due": instant(footer.due_ms_max),
                "file": run.path,
            }

    def buckets(self, run_id: int | None = None) -> Iterator[Row]:
        """Hours and days of all runs, or of one."""
        for run in self._runs(run_id):
            if not isinstance(run, Run):
                yield run
                continue
            level = run.footer.level
            for bucket in run.buckets():
                first, end = run.section(bucket)
                yield {
                    "run": run.footer.run_id,
                    "level": _LEVELS[level],
                    "bucket": bucket,
                    "begins": instant(bucket * BUCKET_MS[level]),
                    "first": first,
                    "units": end - first,
                }

    def slots(self, run_id: int, bucket: int | None = None) -> Iterator[Row]:
        """Occupied slots of one run, or of one bucket of it."""
        for run in self._runs(run_id):
            if not isinstance(run, Run):
                yield run
                continue
            level = run.footer.level
            for number in run.buckets() if bucket is None else [bucket]:
                directory = run.directory(number)
                if directory is None:
                    continue
                for slot in np.flatnonzero(directory["count"]).tolist():
                    row = directory[slot]
                    yield {
                        "run": run_id,
                        "bucket": number,
                        "slot": slot,
                        "begins": instant(number * BUCKET_MS[level] + slot * SLOT_MS[level]),
                        "global_index": int(row["first"]),
                        "units": int(row["count"]),
                        "previous_run": int(row["previous_run"]),
                    }

    def units(self, run_id: int, first: int, limit: int) -> Iterator[Row]:
        """Up to `limit` scheduled messages of one run, from global index `first` on."""
        for run in self._runs(run_id):
            if not isinstance(run, Run):
                yield run
                continue
            end = min(first + limit, run.footer.unit_count)
            for index, unit in enumerate(run.read(min(first, end), end), first):
                yield {
                    "global_index": index,
                    "due": instant(int(unit["due_ms"])),
                    **{
                        name: int(unit[name])
                        for name in ("sequence", "topic_queue", "attempt", "body_len", "meta_len")
                    },
                    "delay_log": int(unit["dlog_id"]),
                    "position": int(unit["position"]),
                }


def _batch_row(batch: RecordBatch) -> Row:
    header = batch.header
    try:
        kind = Kind(header.kind).name
    except ValueError:
        kind = str(header.kind)
    return {
        "offset": header.offset,
        "kind": kind,
        "count": header.count,
        "epoch": header.epoch,
        "base_sequence": header.base_sequence,
        "stored": instant(header.store_ms),
        "bytes": header.total_bytes,
        "what": _WHAT[header.kind](batch) if header.kind in _WHAT else "",
    }


def _publish(batch: RecordBatch) -> str:
    due = batch.due_ms
    return f"due {instant(int(due.min()))} .. {instant(int(due.max()))}"


def _dispatch(batch: RecordBatch) -> str:
    row = batch.rows[-1]
    return f"to {instant(int(row['to_due_ms']))} #{int(row['to_sequence'])}"


def _config(batch: RecordBatch) -> str:
    change = ConfigChange.FromString(bytes(batch.blobs))
    kind = change.WhichOneof("change") or ""
    value = getattr(change, kind) if kind else ""
    return f"{kind} {getattr(value, 'name', value)}".strip().replace("\n", " ")


def _epoch_start(batch: RecordBatch) -> str:
    return f"node {EpochStart.FromString(bytes(batch.blobs)).node_id}"


_WHAT: Final[dict[int, Callable[[RecordBatch], str]]] = {
    Kind.PUBLISH: _publish,
    Kind.DISPATCH: _dispatch,
    Kind.CONFIG: _config,
    Kind.EPOCH_START: _epoch_start,
}
assert _LEVELS[DAY_LEVEL] == "days"
