"""Runs for tests: units from their keys, and files from units."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import FIRST_SHARD
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.views.unit import UNIT, Units
from timewheel.levels import HOUR_LEVEL, SLOTS
from timewheel.run import Run, open_run
from timewheel.run_format import run_path
from timewheel.run_writer import Heads, RunWriter

IDENTITY = Identity(bytes(range(16)), FIRST_SHARD)
DIRECTORY = "wheel"

KeyPair = tuple[int, int]
"""(due_ms, sequence): what a `Key` is, too."""


def keyed(keys: Iterable[KeyPair], **columns: int) -> Units:
    """Units with these keys, in this order; other columns alike, and nonzero to be seen."""
    pairs = list(keys)
    units = np.zeros(len(pairs), UNIT)
    units["due_ms"] = [due_ms for due_ms, _ in pairs]
    units["sequence"] = [sequence for _, sequence in pairs]
    units["dlog_id"] = 1
    units["topic_queue"] = 0x0101
    for name, value in columns.items():
        units[name] = value
    return units


def pairs_of(units: Units) -> list[KeyPair]:
    """The keys of `units`, in their order."""
    return list(zip(units["due_ms"].tolist(), units["sequence"].tolist(), strict=True))


def no_heads(level: int) -> Heads:
    """The slot heads of a level that has no older run."""

    def heads(bucket: int) -> NDArray[np.uint32]:
        return np.zeros(SLOTS[level], np.uint32)

    return heads


def write_run(
    disk: Disk,
    units: Units,
    *,
    level: int = HOUR_LEVEL,
    run_id: int = 1,
    covers_first: int | None = None,
    heads: Heads | None = None,
) -> Run:
    """Write `units`, which are in key order, as a run, and open it."""
    disk.make_dir(DIRECTORY)
    covers_first = run_id if covers_first is None else covers_first
    writer = RunWriter(
        disk,
        DIRECTORY,
        IDENTITY,
        level=level,
        covers_first=covers_first,
        run_id=run_id,
        heads=heads or no_heads(level),
    )
    writer.append(units)
    writer.finish()
    disk.sync_dir(DIRECTORY)
    return open_run(disk, DIRECTORY, IDENTITY, covers_first, run_id)


def run_bytes(disk: Disk, run_id: int = 1, covers_first: int | None = None) -> bytes:
    """The bytes of a run's file."""
    file = disk.open(run_path(DIRECTORY, run_id if covers_first is None else covers_first, run_id))
    return file.pread(file.size(), 0)
