"""Messages, batches and files of the wheel that version 1 wrote: written the same today, byte for
byte, and read."""

import pytest
from xxhash import xxh3_128_digest

from hourwheel.formats import message_id
from hourwheel.formats.batch_columns import expires_of, priorities_of
from hourwheel.formats.record_batch import ROWS, Flag, Kind, RecordBatch
from storage.files.file_header import FileType, check_file_header
from tests.sim.disk import SimulatedDisk
from tests.support.format_golden import (
    BATCHES,
    BODIES,
    BUILDERS,
    DAY,
    DUE_MS,
    HOUR,
    METAS,
    STAMP,
    units_of_run,
)
from tests.support.golden import golden
from tests.support.runs import DIRECTORY, IDENTITY
from timewheel.levels import DAY_LEVEL, HOUR_LEVEL
from timewheel.run import Run, open_run
from timewheel.run_format import run_path


@pytest.mark.parametrize("name", BUILDERS)
def test_format_when_written_is_the_golden_one(name: str) -> None:
    assert BUILDERS[name]().hex(" ", 8) == golden(name).hex(" ", 8)


def test_batches_when_golden_are_of_every_kind() -> None:
    kinds = {RecordBatch(golden(name)).header.kind for name in BATCHES}
    assert kinds == set(Kind)


@pytest.mark.parametrize("name", BATCHES)
def test_batch_when_golden_is_verified(name: str) -> None:
    batch = RecordBatch(golden(name))
    batch.verify()
    assert batch.header.total_bytes == len(golden(name))
    if name != "batch_publish_unstamped":
        assert batch.header[6:11] == STAMP
    if batch.header.kind in ROWS:
        assert len(batch.rows) == batch.header.count > 0


def test_publish_when_golden_and_not_stamped_is_read() -> None:
    batch = RecordBatch(golden("batch_publish_unstamped"))
    header = batch.header
    assert (header.flags, header.count, header.gene_kind) == (Flag.RELATIVE_DUE, 3, 1)
    assert (header.producer_id, header.producer_sequence) == (0x1122_3344_5566_7788, 42)
    assert batch.due_ms.tolist() == [0, 1_500, 86_400_000]
    assert batch.topic_queue.tolist() == [0, 0, 0]
    assert batch.tag_gene.tolist() == [0, 0x8000_0000_0000_0041, 2]
    assert batch.key_hash.tolist() == [7, 0, (1 << 64) - 1]
    assert batch.body_len.tolist() == [len(body) for body in BODIES]
    assert batch.meta_len.tolist() == [len(meta) for meta in METAS]
    assert bytes(batch.blobs) == b"first body\x0a\x03tag\x0a\x01tthird"


def test_publish_when_golden_and_of_a_specification_is_read() -> None:
    header = RecordBatch(golden("batch_publish_with_spec")).header
    assert (header.gene_kind, header.gene_spec) == (1, 0x0102_0304)
    assert RecordBatch(golden("batch_publish")).header.gene_spec == 0


def test_publish_when_golden_and_merged_is_read() -> None:
    batch = RecordBatch(golden("batch_publish_merged"))
    assert batch.header.flags == Flag.PER_MESSAGE_PRODUCER
    assert [column.tolist() for column in batch.message_producers] == [[9, 0, 8], [5, 0, 6]]
    assert batch.topic_queue.tolist() == [0x0101, 0x0102, 0x0200]
    assert bytes(batch.blobs) == b"".join(BODIES)


def test_publish_when_golden_and_with_dedup_keys_is_read() -> None:
    batch = RecordBatch(golden("batch_publish_dedup"))
    batch.verify()
    assert batch.header.flags == Flag.PER_MESSAGE_PRODUCER | Flag.DEDUP_KEYS
    assert batch.dedup.if_pending.tolist() == [2, 0, 3]
    assert batch.dedup.high.tolist()[1:2] == batch.dedup.low.tolist()[1:2] == [0]
    digest = xxh3_128_digest(b"order-17")
    assert batch.dedup.high[0].item().to_bytes(8, "big") == digest[:8]
    assert batch.dedup.low[0].item().to_bytes(8, "big") == digest[8:]
    assert batch.meta_len.tolist() == [0, 0, 0]
    assert bytes(batch.blobs) == b"".join(BODIES)


def test_publish_when_golden_and_with_expiry_is_read() -> None:
    batch = RecordBatch(golden("batch_publish_expiring"))
    batch.verify()
    assert batch.header.flags == Flag.EXPIRY
    expires = expires_of(batch.blobs, batch.meta_len, batch.body_len)
    assert expires.tolist() == [DUE_MS + 1, -500, 0]
    assert bytes(batch.blobs)[0] == 0x39, "before all other fields"


def test_publish_when_golden_and_with_priorities_is_read() -> None:
    batch = RecordBatch(golden("batch_publish_prioritised"))
    batch.verify()
    assert batch.header.flags == Flag.EXPIRY | Flag.PRIORITY
    assert priorities_of(batch.blobs, batch.meta_len, batch.body_len).tolist() == [9, 1, 0]
    assert expires_of(batch.blobs, batch.meta_len, batch.body_len).tolist() == [DUE_MS + 1, 0, 0]
    assert batch.topic_queue.tolist() == [0x01FF, 0x0100, 0x0100]


def test_message_id_when_golden_is_read() -> None:
    assert message_id.parse(golden("message_id").decode()) == (
        *(1, 7, 0x0123_4567_89AB_CDEF, DUE_MS),
    )


def opened(name: str, covers_first: int, run_id: int) -> Run:
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    file = disk.open(run_path(DIRECTORY, covers_first, run_id), create=True)
    file.pwrite([golden(name)], 0)
    return open_run(disk, DIRECTORY, IDENTITY, covers_first, run_id)


def test_run_of_hours_when_golden_is_read() -> None:
    run = opened("run_hours", 9, 9)
    assert (run.footer.level, run.buckets()) == (HOUR_LEVEL, [HOUR])
    assert run.read(0, 5).tobytes() == units_of_run()[:5].tobytes()
    directory = run.directory(HOUR)
    assert directory is not None
    slots = {slot: directory[slot].tolist() for slot in (0, 1, 2, 1_000, 1_200, 3_599)}
    assert slots == {
        0: (0, 2, 3),
        1: (2, 1, 0),
        2: (3, 0, 0),
        1_000: (3, 1, 0),
        1_200: (4, 0, 8),
        3_599: (4, 1, 0),
    }


def test_run_with_pages_when_golden_is_read() -> None:
    run, old = opened("run_hours_pages", 9, 9), opened("run_hours", 9, 9)
    assert (run.footer.first_page, run.footer.end_page) == (2, 4)
    assert (old.footer.first_page, old.footer.end_page) == (0, 0), "nobody knows"
    for one in (run, old):
        units = one.read(0, 5)
        columns = (units[name].copy() for name in ("due_ms", "sequence", "attempt"))
        assert one.find(*columns)[0].tolist() == [0, 1, 2, 3, 4]


def test_run_of_days_when_golden_is_read() -> None:
    run = opened("run_days", 5, 8)
    assert (run.footer.level, run.buckets()) == (DAY_LEVEL, [DAY, DAY + 1])
    assert (run.section(DAY), run.section(DAY + 1)) == ((0, 5), (5, 6))
    assert run.read(0, 6).tobytes() == units_of_run().tobytes()
    directory = run.directory(DAY + 1)
    assert directory is not None
    assert directory[0].tolist() == (5, 1, 0)
    assert directory[1].tolist() == (6, 0, 1)


def test_delay_log_when_golden_is_read() -> None:
    raw = golden("delay_log")
    check_file_header(raw[:64], "delay log", FileType.DELAY_LOG, IDENTITY, 9)
    assert raw[64:] == b"second" + b"metabody" + b"third"
