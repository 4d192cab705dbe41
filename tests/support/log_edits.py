"""An editor of a node's files that makes every checksum right again: for an audit that must see it.

    wanted = EDITS["entry: crc"](directory, random.Random(1))

Each kind changes one thing and says which finding must name it: `Named`. What is left unsaid may
be anything. A node's directory is made by `tests.support.log_maker`, with one chunk a queue.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Kind
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import TopicQueue
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, pack_file_header
from storage.views.sequence_index import BLOCK, BLOCK_ENTRIES
from storage.views.tombstones import RECORD, RECORD_BYTES
from storage.views.unit import UNIT, Units
from tests.support.broken_logs import IDENTITY, edit_manifest, read_queue, rewrite_queue
from tests.support.log_copies import Cluster, chunk_file, with_rows
from timewheel.levels import BUCKET_MS, DAY_LEVEL, HOUR_LEVEL, SLOTS
from timewheel.run_format import (
    BLOCK_UNITS,
    FOOTER,
    SECTION,
    SLOT,
    pack_footer,
    unit_at,
    unpack_footer,
)

CHECKPOINT: Final = "shard-0/checkpoint"


class Named(NamedTuple):
    """What some finding must say."""

    checks: tuple[str, ...]
    file: str = ""
    sequence: int = -1
    offset: int = -1
    words: str = ""


Edit = Callable[[Path, random.Random], Named]


# --- checkpoints --------------------------------------------------------------------------------


def _scalar(name: str, by: int, words: str, directory: Path, rng: random.Random) -> Named:
    """A number of the manifest is another one."""
    del rng

    def change(manifest: Checkpoint) -> None:
        place: Any = manifest
        *path, last = name.split(".")
        for part in path:
            place = getattr(place, part)
        setattr(place, last, getattr(place, last) + by)

    edit_manifest(directory, change)
    return Named(("checkpoint",), CHECKPOINT, words=words)


_SCALARS: Final = (
    ("applied_offset", -8, "applied offset"),
    ("next_sequence", 1, "next sequence"),
    ("feature_level", -3, "feature level"),
    ("store_ms", 1, "store_ms"),
    ("cursor.due_ms", 1, "cursor"),
    ("cursor.sequence", -1, "cursor"),
    ("cursor.released_count", 1, "released messages"),
    ("cursor.released_mix", 1, "sum of released"),
    ("cursor.local_index", 1, "released of this second"),
    ("next_topic_id", 1, "next topic"),
    ("next_group_id", 1, "next group"),
    ("sequence_floor", 1, "sequence floor"),
    ("sequence_index_count", -1, "sequences in the index"),
    ("cancelled_count", 1, "cancelled"),
    ("pending_count", 1, "pending"),
    ("discarded_count", 1, "discarded"),
)


def _item(
    items: str, name: str, value: Any, words: str, directory: Path, rng: random.Random
) -> Named:
    """A field of an item of the manifest is another one; of a number: so much more."""

    def change(manifest: Checkpoint) -> None:
        every = getattr(manifest, items)
        one = every[rng.randrange(len(every))]
        is_number = isinstance(value, int)
        setattr(one, name, getattr(one, name) + value if is_number else value)

    edit_manifest(directory, change)
    return Named(("checkpoint",), CHECKPOINT, words=words)


_ITEMS: Final = (
    ("topics", "name", "another", "topic"),
    ("topics", "queue_count", 1, "topic"),
    ("groups", "name", "another", "group"),
    ("groups", "attempts_max", 1, "group"),
    ("groups", "invisible_ms", 1, "group"),
    ("groups", "retry_delay_ms", 1, "group"),
    ("groups", "retry_delay_ms_max", 1, "group"),
    ("groups", "dead_letter_topic_id", 1, "group"),
    ("subscriptions", "retry_topic_id", 1, "cat"),
    ("acks", "floor_position", 1, "has resolved"),
    ("acks", "topic_queue", 1 << 16, "has resolved"),
    ("acks", "group_id", 1 << 16, "has resolved"),
    ("producers", "last_ms", 1, "producer"),
    ("producers", "producer_id", 1, "producer"),
    ("epochs", "epoch", 100, "epochs"),
    ("epochs", "start_offset", 8, "epochs"),
    ("epochs", "start_sequence", 1, "epochs"),
)


def _nested(name: str, directory: Path, rng: random.Random) -> Named:
    """A field of what a producer is remembered by."""

    def change(manifest: Checkpoint) -> None:
        batches = manifest.producers[0].batches
        one = batches[rng.randrange(len(batches))]
        setattr(one, name, getattr(one, name) + 1)

    edit_manifest(directory, change)
    return Named(("checkpoint",), CHECKPOINT, words="producer")


def _removed(
    items: str, checks: tuple[str, ...], words: str, directory: Path, rng: random.Random
) -> Named:
    """An item of the manifest is not there."""

    def change(manifest: Checkpoint) -> None:
        every = getattr(manifest, items)
        del every[rng.randrange(len(every))]

    edit_manifest(directory, change)
    return Named(checks, words=words)


_REMOVED: Final = (
    ("subscriptions", ("checkpoint",), "subscription"),
    ("acks", ("checkpoint",), "has resolved"),
    ("producers", ("checkpoint",), "producer"),
    ("epochs", ("checkpoint",), "epochs"),
    ("queues", ("queue-missing",), ""),
    ("runs", ("wheel-missing",), ""),
    ("delay_logs", ("body-lost", "body-wrong"), ""),
)


def _ack_range(directory: Path, rng: random.Random) -> Named:
    """A position far behind the floor counts as resolved."""
    del rng

    def change(manifest: Checkpoint) -> None:
        manifest.acks[0].resolved_range_deltas.extend((1_000, 1))

    edit_manifest(directory, change)
    return Named(("checkpoint",), CHECKPOINT, words="has resolved")


def _manifest_number(items: str, name: str, by: int, check: str, path: Path, _: Any) -> Named:
    def change(manifest: Checkpoint) -> None:
        one = getattr(manifest, items)[0]
        setattr(one, name, getattr(one, name) + by)

    edit_manifest(path, change)
    return Named((check,))


def _next_run(directory: Path, rng: random.Random) -> Named:
    """The next run would take the number of one that exists."""
    del rng
    edit_manifest(directory, lambda manifest: setattr(manifest, "next_run_id", 1))
    return Named(("checkpoint",), CHECKPOINT, words="next run")


# --- queues -------------------------------------------------------------------------------------

_FIELDS: Final = tuple(UNIT.names or ())
_PLACES: Final = ("position", "dlog_id")
_ENTRY_CHECKS: Final = (
    *("queue-fields", "queue-missing", "queue-unknown", "queue-doubled", "queue-void"),
    *("queue-early", "queue-cancelled", "queue-misplaced", "body-wrong"),
)


def _entry(name: str, is_dynamic: bool, directory: Path, rng: random.Random) -> Named:
    """A field of a queue's entry is another one."""
    cluster = Cluster([directory])
    queue = rng.choice(cluster.own_queues(retries=is_dynamic))
    units = read_queue(directory, TopicQueue(queue))
    at = rng.randrange(len(units))
    sequence = int(units["sequence"][at])
    units[name][at] ^= 1
    rewrite_queue(directory, TopicQueue(queue), units)
    checks = ("body-wrong",) if name in _PLACES else _ENTRY_CHECKS
    return Named(checks, chunk_file(TopicQueue(queue)), sequence)


# --- runs ---------------------------------------------------------------------------------------


def _unit(name: str, directory: Path, rng: random.Random) -> Named:
    """A field of a pending unit is another one; the block's CRC and the footer's are right."""
    paths = sorted((directory / "shard-0" / "wheel").glob("*.run"))
    rng.shuffle(paths)
    for path in paths:
        raw = bytearray(path.read_bytes())
        footer = unpack_footer(bytes(raw[-FOOTER.size :]))
        assert footer is not None
        units = np.frombuffer(raw, UNIT, footer.unit_count, 64).copy()
        pending = _pending(directory, units)
        if not len(pending):
            continue
        at = int(rng.choice(pending.tolist()))
        sequence = int(units["sequence"][at])
        units[name][at] ^= 1
        raw[64 : 64 + units.nbytes] = units.tobytes()
        tables = len(raw) - FOOTER.size
        blocks = -(-footer.unit_count // BLOCK_UNITS)
        first = tables - 4 * blocks
        size = 64 * BLOCK_UNITS
        crcs = [crc32c(units.tobytes()[at : at + size]) for at in range(0, units.nbytes, size)]
        raw[first:tables] = np.array(crcs, "<u4").tobytes()
        sections = first - 24 * footer.section_count
        whole = footer._replace(tables_crc=crc32c(bytes(raw[sections:tables])))
        raw[tables:] = pack_footer(whole)
        path.write_bytes(raw)
        wanted = ("body-wrong", "body-lost") if name in _PLACES else ("wheel-extra",)
        checks = (*wanted, "wheel-missing", "wheel-fields", "wheel-damaged")
        return Named(checks, sequence=sequence if name in _PLACES else -1)
    raise AssertionError("nothing is pending")


def _pending(directory: Path, units: Units) -> Any:
    """Ordinals of units that are ahead of the cursor and were not cancelled."""
    cluster = Cluster([directory])
    pending = {one.sequence for one in cluster.model.pending}
    return np.flatnonzero(np.isin(units["sequence"], list(pending)))


def rewrite_run(path: Path, change: Callable[[Any, Any], None]) -> None:
    """Let a run have other slot directories; `change` gets its sections and a SLOT[s, slots]."""
    raw = bytearray(path.read_bytes())
    footer = unpack_footer(bytes(raw[-FOOTER.size :]))
    assert footer is not None
    begin, slots = unit_at(footer.unit_count), SLOTS[footer.level]
    tables = begin + footer.section_count * slots * SLOT.itemsize
    directories = np.frombuffer(raw[begin:tables], SLOT).reshape(-1, slots).copy()
    sections = np.frombuffer(raw, SECTION, footer.section_count, tables).copy()
    change(sections, directories)
    sections["crc"] = [crc32c(one.tobytes()) for one in directories]
    raw[begin:tables] = directories.tobytes()
    raw[tables : tables + sections.nbytes] = sections.tobytes()
    crc = crc32c(bytes(raw[tables : -FOOTER.size]))
    raw[-FOOTER.size :] = pack_footer(footer._replace(tables_crc=crc))
    path.write_bytes(raw)


def _slot(name: str, by: int, directory: Path, rng: random.Random) -> Named:
    """A slot that has units says something else of them, or of the chain that it is in.

    `by` of -1: the chain ends there, though an older run has units of the slot.
    """
    cursor_ms = Cluster([directory]).model.cursor[0]
    told: list[str] = []

    def change(sections: Any, directories: Any) -> None:
        bucket_ms = BUCKET_MS[
            HOUR_LEVEL if directories.shape[1] == SLOTS[HOUR_LEVEL] else DAY_LEVEL
        ]
        is_live = (sections["bucket"] * bucket_ms > cursor_ms)[:, None]
        having = directories["previous_run" if by < 0 else "count"] > 0
        places = np.argwhere(is_live & having).tolist()
        if places:
            at, slot = rng.choice(places)
            value = int(directories[name][at, slot])
            directories[name][at, slot] = 0 if by < 0 else value + by
            told.append(f"bucket {int(sections['bucket'][at])}")

    for path in sorted((directory / "shard-0" / "wheel").glob("*.run")):
        rewrite_run(path, change)
        if told:
            file = str(path.relative_to(directory))
            return Named(("wheel-directory",), file, words=told[0])
    raise AssertionError("no run has such a slot")


# --- sequence index and tombstones --------------------------------------------------------------


def _index(what: str, directory: Path, rng: random.Random) -> Named:
    """An entry of the sequence index says something else: of a whole block, or of the tail."""
    folder = directory / "shard-0" / "sequences"
    sequence = rng.randrange(BLOCK_ENTRIES)

    def change(entries: Any, at: int) -> None:
        if what == "state":
            entries[at] ^= np.uint64(1 if int(entries[at]) & 3 else 2)
        else:
            entries[at] += np.uint64(4)

    if what == "tail":
        disk, path = RealDisk(directory), "shard-0/sequences/tail"
        tail = atomic_file.read(disk, path, FileType.SEQUENCE_INDEX, IDENTITY)
        entries = np.frombuffer(tail.payload, "<u8").copy()
        at = rng.randrange(len(entries))
        change(entries, at)
        sequence = tail.header.base * BLOCK_ENTRIES + at
        header = pack_file_header(FileType.SEQUENCE_INDEX, IDENTITY, tail.header.base)
        atomic_file.write(disk, path, header, entries.tobytes())
        return Named(("sequence-wrong",), path, sequence)
    file = folder / f"{0:012}.seq"
    raw = bytearray(file.read_bytes())
    blocks = np.frombuffer(raw, BLOCK, 1, 64).copy()
    change(blocks["entries"][0], sequence)
    blocks["crc"] = crc32c(blocks["entries"].tobytes())
    raw[64 : 64 + blocks.nbytes] = blocks.tobytes()
    file.write_bytes(raw)
    return Named(("sequence-wrong",), f"shard-0/sequences/{file.name}", sequence)


def _index_file(what: str, directory: Path, rng: random.Random) -> Named:
    """A file of the sequence index is not there, is foreign, or ends too early."""
    del rng
    path = directory / "shard-0" / "sequences" / ("tail" if what == "no tail" else f"{0:012}.seq")
    if what == "no tail":
        path.unlink()
    elif what == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        raw = path.read_bytes()
        path.write_bytes(pack_file_header(FileType.SEQUENCE_INDEX, IDENTITY, 1) + raw[64:])
    return Named(("sequence-damaged",), str(path.relative_to(directory)))


def _mark(what: str, directory: Path, rng: random.Random) -> Named:
    """Who is marked as cancelled is somebody else; the page's CRC is right."""
    model = Cluster([directory]).model
    sequence = rng.choice(sorted({
        "not marked": model.cancelled,
        "marked: pending": {one.sequence for one in model.pending if one.attempt == 1},
        "marked: released": model.released,
        "marked: no message": set(range(model.next_sequence)) - model.messages.keys(),
    }[what]))  # fmt: skip
    path = turn_mark(directory, sequence)
    return Named(("tombstone-wrong",), str(path.relative_to(directory)), sequence)


def turn_mark(directory: Path, sequence: int) -> Path:
    """Let a sequence below 65,536 count as cancelled if it did not, or not if it did; the file."""
    (path,) = (directory / "shard-0" / "tombstones").glob("*.tomb")
    raw = bytearray(path.read_bytes())
    pages = np.frombuffer(raw, RECORD, (len(raw) - 64) // RECORD_BYTES, 64).copy()
    pages["bits"][-1, sequence >> 3] ^= 1 << (sequence & 7)
    head = int(pages["page"][-1]).to_bytes(8, "little")
    pages["crc"][-1] = crc32c(pages["bits"][-1].tobytes(), crc32c(head))
    raw[64:] = pages.tobytes()
    path.write_bytes(raw)
    return path


# --- records ------------------------------------------------------------------------------------


def _row(
    kind: Kind, name: str, value: int, checks: tuple[str, ...], path: Path, rng: random.Random
) -> Named:
    """A field of a record's row is another one."""
    cluster = Cluster([path])
    batch = rng.choice(cluster.of(kind)[1:])
    rows = batch.rows.copy()
    rows[name][rng.randrange(len(rows))] = value
    cluster.put(batch, with_rows(batch, rows))
    return Named(checks, offset=batch.header.offset)


_ROWS: Final = (
    (Kind.RESOLVE, "outcome", 0, ("resolve-unknown",)),
    (Kind.RESOLVE, "outcome", 9, ("expired-early",)),
    (Kind.RESOLVE, "outcome", 11, ("resolve-unknown",)),
    (Kind.RESOLVE, "outcome", 4, ("filter-missed",)),
    (Kind.RESOLVE, "group_id", 77, ("resolve-unknown",)),
    (Kind.RESOLVE, "first_position", 1 << 30, ("ack-undelivered",)),
    (Kind.RESOLVE, "count", 1 << 30, ("ack-undelivered",)),
    (Kind.DISPATCH, "prev_due_ms", 5, ("dispatch-chain",)),
    (Kind.DISPATCH, "prev_sequence", 5, ("dispatch-chain",)),
    (Kind.DISPATCH, "check_count", 1 << 40, ("dispatch-check",)),
    (Kind.DISPATCH, "check_mix", 5, ("dispatch-check",)),
)

EDITS: Final[dict[str, Edit]] = {
    **{f"checkpoint: {one[0]}": partial(_scalar, *one) for one in _SCALARS},
    **{f"checkpoint: {one[0]}.{one[1]}": partial(_item, *one) for one in _ITEMS},
    **{
        f"checkpoint: producers.batches.{name}": partial(_nested, name)
        for name in ("first_sequence", "count", "base_sequence", "store_ms", "epoch")
    },
    **{f"checkpoint: no {one[0]}": partial(_removed, *one) for one in _REMOVED},
    "checkpoint: acks.resolved_range_deltas": _ack_range,
    "checkpoint: next_run_id": _next_run,
    "checkpoint: runs.unit_count": partial(
        _manifest_number, "runs", "unit_count", 1, "wheel-damaged"
    ),
    "checkpoint: delay_logs.bytes": partial(
        _manifest_number, "delay_logs", "bytes", 8, "body-lost"
    ),
    "checkpoint: queues.start_position": partial(
        _manifest_number, "queues", "start_position", 1, "queue-trimmed"
    ),
    "checkpoint: queues.end_position": partial(
        _manifest_number, "queues", "end_position", 1, "queue-damaged"
    ),
    **{f"entry: {name}": partial(_entry, name, False) for name in _FIELDS},
    **{f"entry of a retry: {name}": partial(_entry, name, True) for name in _FIELDS},
    **{f"unit: {name}": partial(_unit, name) for name in _FIELDS},
    **{
        f"slot: {name} {by:+}": partial(_slot, name, by)
        for name, by in (
            ("first", 1),
            ("count", 1),
            ("previous_run", -1),
            ("previous_run", 1 << 20),
        )
    },
    **{f"index: {what}": partial(_index, what) for what in ("due_ms", "state", "tail")},
    **{f"index: {what}": partial(_index_file, what) for what in ("no tail", "short", "foreign")},
    **{
        f"tombstone {what}": partial(_mark, what)
        for what in ("not marked", "marked: pending", "marked: released", "marked: no message")
    },
    **{f"{one[0].name} {one[1]}: {one[2]}": partial(_row, *one) for one in _ROWS},
}
"""Name -> edit."""
