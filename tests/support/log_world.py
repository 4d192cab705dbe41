"""A commit log on a simulated disk, and short ways to use it."""

from collections.abc import Callable
from random import Random

from hourwheel import errors
from hourwheel.formats.record_batch import Kind, RecordBatch, Stamp, build_blob, stamp
from hourwheel.types import Epoch, Offset, SequenceNumber, ShardId
from storage.files.disk import Disk
from storage.log.commit_log import CommitLog, Identity, LogConfig, LogWrite
from tests.sim.disk import SimulatedCrash, SimulatedDisk

IDENTITY = Identity(bytes(range(16)), ShardId(3))
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=512)
SHARD = "shard-3"
LOG = f"{SHARD}/log"
MARK = f"{SHARD}/flushed.mark"
BATCH_BYTES = 200
"""Of the batches that `publish` makes of its default body."""
FIRST = f"{LOG}/00000000000000000000.log"


def stamped(
    offset: int, durable_end: int, blob: bytes, sequence: int = 0, store_ms: int = 0
) -> bytes:
    """The bytes of a batch, stamped."""
    batch = RecordBatch(build_blob(Kind.CONFIG, blob))
    at = Stamp(Offset(offset), SequenceNumber(sequence), store_ms, Offset(durable_end), Epoch(1))
    return b"".join(stamp(batch, at))


def publish(
    log: CommitLog, blob: bytes = bytes(104), sequence: int = 0, store_ms: int = 0
) -> bytes:
    """Append one batch and return its bytes."""
    raw = stamped(log.end_offset, log.durable_end_offset, blob, sequence, store_ms)
    assert log.append([raw[:96], memoryview(raw)[96:]]) == log.end_offset - len(raw)
    return raw


def flush(log: CommitLog, *, durable: bool = True) -> LogWrite:
    """Write and finish everything that was appended."""
    write = log.take_write()
    assert write is not None
    write.run(durable)
    log.finish_write(write)
    log.check()
    return write


def fill(log: CommitLog, count: int, *, writes_of: int = 1) -> bytes:
    """Append `count` batches, durably in writes of so many, and return all their bytes."""
    raw = b""
    for index in range(count):
        raw += publish(log, index.to_bytes(4, "little") * 26, index, 1000 + index)
        if (index + 1) % writes_of == 0:
            flush(log)
    if log.end_offset > log.flushed_end_offset:
        flush(log)
    return raw


def delete_below(log: CommitLog, offset: int) -> int:
    """Remove the segments that lie below `offset`, files and all; how many they were."""
    removals = log.begin_delete_below(Offset(offset))
    for remove in removals:
        remove()
    return len(removals)


def open_log(disk: Disk, from_offset: int = 0, config: LogConfig = CONFIG) -> CommitLog:
    """Open and recover."""
    return recovered(disk, from_offset, config)[0]


def recovered(
    disk: Disk, from_offset: int = 0, config: LogConfig = CONFIG
) -> tuple[CommitLog, bytes]:
    """Open and recover: (the log, the bytes of all batches that recovery handed out)."""
    log = CommitLog.open(disk, SHARD, config, IDENTITY)
    raw = b""
    for batch in log.recover(Offset(from_offset)):
        assert batch.header.offset == from_offset + len(raw)
        raw += contents(batch)
    log.check()
    return log, raw


def contents(batch: RecordBatch) -> bytes:
    """All bytes of a batch."""
    return b"".join(stamp(batch, Stamp(*batch.header[6:11])))


def read_all(log: CommitLog) -> bytes:
    """All bytes of the log."""
    return log.read(log.start_offset, log.flushed_end_offset - log.start_offset)


def corrupt(disk: Disk, from_offset: int = 0) -> errors.CorruptLog:
    """Open and recover a log that must turn out to be corrupt."""
    try:
        recovered(disk, from_offset)
    except errors.CorruptLog as error:
        return error
    raise AssertionError("the damage was not found")


def crash_everywhere(
    use: Callable[[SimulatedDisk], None],
    check: Callable[[SimulatedDisk, Random], None],
    prepare: Callable[[SimulatedDisk], None] = lambda disk: None,
    seeds: range = range(6),
) -> None:
    """Cut the power at each durability operation of `use`, before it and after, and `check`."""
    disk = SimulatedDisk()
    prepare(disk)
    before = disk.durability_op_count
    use(disk)
    count = disk.durability_op_count - before
    assert count > 0
    for at in range(1, count + 1):
        for takes_effect in (False, True):
            for seed in seeds:
                disk = SimulatedDisk()
                prepare(disk)
                disk.fail_after(at, takes_effect=takes_effect)
                try:
                    use(disk)
                except SimulatedCrash:
                    rng = Random(f"{at} {takes_effect} {seed}")
                    disk.crash(rng)
                    check(disk, rng)
                else:
                    raise AssertionError("the power was never cut")
