"""Owner, manifest and consume queues as an inspection shows them."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
from google.protobuf.message import Message

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint, QueueState
from hourwheel.types import FIRST_OFFSET, Position, TopicQueue, queue_of, topic_of
from node.tools.inspect.files import SHARD_START, ShardFiles
from node.tools.inspect.report import READ_ERRORS, Report, Row, instant
from node.tools.inspect.wheel import unit_row
from storage.files import atomic_file
from storage.files.disk import Disk, File, join
from storage.files.file_header import FileHeader, FileType
from storage.queues.consume_queues import folder_name
from storage.queues.mapped_chunks import NAME_END as CHUNK_SUFFIX
from storage.queues.queue_chunk import ENTRIES_AT, Seal, find_seal, seal_position
from storage.views.dedup_keys import unpack_rows as dedup_rows
from storage.views.moved import AT_ONCE_MS, unpack_rows
from storage.views.recurrences import Recurrences
from storage.views.transactions import Transaction, Transactions
from storage.views.unit import UNIT, UNIT_BYTES, Units

QUEUES: Final = "queues"
_LOCK: Final = "LOCK"
_LOCK_BYTES: Final = 32
_SEALS: Final = (0, 1)
_TIMES: Final = ("store_ms", "due_ms", "due_ms_min", "due_ms_max", "last_ms")
_READ_ENTRIES: Final = 1_024
_NO_UNIT: Final = bytes(UNIT_BYTES)


# --- the directory ------------------------------------------------------------------------------


def show_node(disk: Disk, path: str, report: Report) -> None:
    """Whose data directory it is."""

    def rows() -> Iterator[Row]:
        found = atomic_file.read_any(disk, path)
        if found.header.file_type is not FileType.NODE:
            raise errors.CorruptFile(f"is a {found.header.file_type.name}", file=path)
        yield {
            "node_id": found.payload.decode(),
            "cluster_id": str(uuid.UUID(bytes=found.header.identity.cluster_id)),
            "format_version": found.header.version,
            "shards": ", ".join(shards_of(disk)),
            "last_opened_by_process": _lock_text(disk),
            "disk_bytes": disk.used_bytes(""),
        }

    report.add("node", path, rows())


def shards_of(disk: Disk) -> list[str]:
    """Folders of the shards in a data directory."""
    names = [name for name in disk.list("") if name.startswith(SHARD_START)]
    return [name for name in names if name.removeprefix(SHARD_START).isdecimal()]


def _lock_text(disk: Disk) -> str | None:
    if not disk.exists(_LOCK):
        return None
    with closing(disk.open(_LOCK)) as file:
        return file.pread(_LOCK_BYTES, 0).decode("ascii", "replace").strip()


# --- the manifest -------------------------------------------------------------------------------


def show_manifest(files: ShardFiles, path: str, report: Report) -> None:
    """What a checkpoint says."""
    try:
        manifest = files.manifest(path)
    except READ_ERRORS as error:
        report.caught(error, path)
        return
    if manifest is None:
        report.remark(f"{path}: there was no checkpoint yet")
        return
    cursor = {f"cursor_{name}": value for name, value in _row(manifest.cursor).items()}
    moved = unpack_rows(manifest.moved)
    transactions = Transactions(manifest.transactions)
    recurring = Recurrences(manifest.recurrences)
    dedup_keys = dedup_rows(manifest.dedup_keys)
    counts = {
        "moved": len(moved),
        "transactions": transactions.open_count,
        "recurrences": len(recurring),
        "dedup_keys": len(dedup_keys),
    }
    whole = {**_row(manifest), **counts, **cursor}
    report.add("checkpoint", path, [{"field": name, "value": whole[name]} for name in whole])
    for name in ("topics", "groups", "subscriptions", "epochs", "acks", "producers"):
        rows = [_row(one) for one in getattr(manifest, name)]
        if rows:
            report.add(f"checkpoint: {name}", path, rows)
    if len(moved):
        report.add("checkpoint: moved", path, map(_moved_row, moved.tolist()))
    if transactions.open_count:
        found = map(transactions.find, transactions.offsets_after(FIRST_OFFSET, is_open=True))
        report.add("checkpoint: open transactions", path, [_open_row(one) for one in found if one])
    if len(recurring):
        report.add("checkpoint: recurrences", path, _recurrence_rows(recurring))
    if len(dedup_keys):
        report.add("checkpoint: dedup keys", path, map(_dedup_row, dedup_keys.tolist()))


def _open_row(one: Transaction) -> Row:
    return {
        "prepared_at": one.offset,
        "prepared": instant(one.prepared_ms),
        "producer_group": one.producer_group,
        "topics": str(list(one.topic_ids)),
        "messages": one.message_count,
        "checks": f"{one.checks}/{one.checks_max}",
    }


def _recurrence_rows(recurring: Recurrences) -> Iterator[Row]:
    for name in recurring.names_after(""):
        state = recurring.find(name)
        if state is not None:
            yield {"name": name.replace("\n", " / "), **state._asdict()}


def _dedup_row(row: tuple[int, int, int, int, int]) -> Row:
    high, low, sequence, topic_id, _ = row
    return {"topic_id": topic_id, "hash": f"{high:016x}{low:016x}", "sequence": sequence}


def _moved_row(row: tuple[int, int, int]) -> Row:
    sequence, due_ms, last_due_ms = row
    due = "released" if due_ms == AT_ONCE_MS else instant(due_ms)
    return {"sequence": sequence, "due": due, "last_due": instant(last_due_ms)}


def _row(message: Message) -> Row:
    """The fields of a message of state.proto; of lists of messages only how many."""
    row: Row = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            row[field.name] = len(value) if field.message_type else str(list(value))
        elif field.message_type is None:
            is_time = field.name in _TIMES
            row[field.name] = f"{value} ({instant(value)})" if is_time else value
    return row


# --- consume queues -----------------------------------------------------------------------------


def queue_states(files: ShardFiles, manifest: Checkpoint | None) -> dict[str, QueueState | None]:
    """Folder of each queue -> what the manifest says of it; None where it does not name it."""
    found: dict[str, QueueState | None] = dict.fromkeys(files.list(QUEUES))
    for state in manifest.queues if manifest else ():
        found[folder_name(TopicQueue(state.topic_queue))] = state
    return found


def show_queues(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a queue."""
    names = {topic.topic_id: topic.name for topic in manifest.topics} if manifest else {}

    def rows() -> Iterator[Row]:
        for folder, state in sorted(queue_states(files, manifest).items()):
            row: Row = {"topic_queue": folder, "topic": None, "queue": None}
            if state is not None:
                topic_id = topic_of(state.topic_queue)
                row["topic"] = names.get(topic_id, f"number {topic_id}")
                row["queue"] = queue_of(state.topic_queue)
            row["start_position"] = state.start_position if state else None
            row["end_position"] = state.end_position if state else None
            row["chunks"] = len(files.list(join(QUEUES, folder), CHUNK_SUFFIX))
            yield row

    report.add("queues", files.path(QUEUES), rows())


def show_chunk(
    files: ShardFiles, path: str, report: Report, *, position: Position | None, limit: int
) -> None:
    """One file of a queue: its seals and entries."""
    file, header = files.open_checked(path, FileType.CONSUME_QUEUE)
    with closing(file):
        chunk_entries = max(file.size() - ENTRIES_AT, 0) // UNIT_BYTES
        first = header.base * chunk_entries
        seals = chunk_seals(files.disk, path, header, file)
        report.add("seals", path, [_seal_row(slot, *one) for slot, one in seals.items()])
        if not seals:
            report.remark(f"{path}: no seal: no checkpoint relies on it")
        sealed = max((seal.entry_count for seal, _ in seals.values()), default=0)
        at = 0 if position is None else min(max(position - first, 0), chunk_entries)
        rows = (
            {
                "position": first + index,
                "sealed": "yes" if index < sealed else "no",
                **unit_row(unit),
            }
            for index, unit in _entries(file, at, chunk_entries)
        )
        report.add("entries", path, rows, limit)


def chunk_seals(
    disk: Disk, path: str, header: FileHeader, file: File
) -> dict[int, tuple[Seal, TopicQueue]]:
    """Slot -> (seal, topic_queue) of the intact seals of a chunk."""
    found: dict[int, tuple[Seal, TopicQueue]] = {}
    for slot in _SEALS:
        raw = np.frombuffer(file.pread(24, seal_position(slot)).ljust(24, b"\0"), "<u4")
        count, topic_queue = int(raw[0]), TopicQueue(int(raw[5]))
        try:
            seal, where = find_seal(disk, path, header.identity, header.base, topic_queue, count)
        except errors.CorruptFile:
            continue  # never written, or torn: the other one is what a manifest relies on
        found[where] = (seal, topic_queue)
    return found


def _seal_row(slot: int, seal: Seal, topic_queue: TopicQueue) -> Row:
    return {
        "seal": slot,
        "entries": seal.entry_count,
        "topic_queue": f"{topic_queue:08x}",
        "last_visible": instant(seal.release_ms_max),
        "entries_crc": f"{seal.entries_crc:08x}",
    }


def _entries(file: File, at: int, end: int) -> Iterator[tuple[int, Units]]:
    """The entries from `at` on, up to the first that nothing was ever stored in."""
    while at < end:
        count = min(_READ_ENTRIES, end - at)
        raw = file.pread(count * UNIT_BYTES, ENTRIES_AT + at * UNIT_BYTES)
        for inside in range(0, len(raw) // UNIT_BYTES * UNIT_BYTES, UNIT_BYTES):
            one = raw[inside : inside + UNIT_BYTES]
            if one == _NO_UNIT:
                return
            yield at + inside // UNIT_BYTES, np.frombuffer(one, UNIT)
        at += count
