"""Every byte of a range is in a good batch or in a damage, whatever happened to the file."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.crc32c import crc32c
from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import HEADER_BYTES, Kind, RecordBatch, Stamp, unpack_header
from spark_jobs.logs import block_table
from spark_jobs.logs.block_table import BlockTable, Damage
from spark_jobs.logs.segment_reader import FULL, HEADERS, read_blocks
from storage.files.file_header import FileType, Identity, pack_file_header
from tests.support.audited import copied, damages_of, in_memory, only_copy, range_of, tables_of
from tests.support.log_maker import Made, log_end, segments

HEADER = pack_file_header(FileType.LOG_SEGMENT, Identity(bytes(16), 0))


def segment(*, batches: int = 12, messages: int = 5, body_bytes: int = 30) -> bytes:
    """A segment's file: PUBLISH batches, and a row batch between them."""
    raw, sequence = bytearray(HEADER), 0
    for number in range(batches):
        if number % 3 == 2:
            rows = np.zeros(2, record_batch.CANCEL_ROW)
            built, due = record_batch.build_rows(Kind.CANCEL, rows), None
        else:
            due = np.arange(messages) + number
            bodies = [bytes([number]) * (body_bytes + one % 3) for one in range(messages)]
            built = record_batch.build_publish(due, bodies)
        stamp = Stamp(len(raw) - 64, sequence, 1_000 + number, 0, 1)
        queues = None if due is None else np.full(messages, 256, "<u4")
        for piece in record_batch.stamp(RecordBatch(built), stamp, due_ms=due, topic_queue=queues):
            raw += piece
        sequence += messages if due is not None else 0
    return bytes(raw)


def read(
    raw: bytes, *, verify: str = FULL, piece_bytes: int = 400, durable: int = 0
) -> list[BlockTable]:
    where = range_of(raw, durable_offset=durable)
    return list(read_blocks(where, verify=verify, piece_bytes=piece_bytes, disk=in_memory(raw)))


def spans(tables: list[BlockTable]) -> list[tuple[int, int]]:
    """[begin, end) of each whole batch."""
    return [
        (int(header["offset"]), int(header["offset"] + header["total_bytes"]))
        for table in tables
        for header in table.headers[table.is_whole]
    ]


def damages(tables: list[BlockTable]) -> list[Damage]:
    return [one for table in tables for one in table.damages]


def reseal(raw: bytearray, at: int) -> None:
    """Make the header's CRC at a byte right again."""
    header = unpack_header(bytes(raw), at)
    head = bytes(raw[at : at + HEADER_BYTES + header.stamped_bytes])
    crc = crc32c(head[HEADER_BYTES:], crc32c(head[: HEADER_BYTES - 4]))
    raw[at + HEADER_BYTES - 4 : at + HEADER_BYTES] = crc.to_bytes(4, "little")


GOOD = segment()
BATCHES = spans(read(GOOD))
END = len(GOOD) - 64


def test_range_when_all_is_good_is_read_whole_whatever_the_pieces_are() -> None:
    assert BATCHES[0][0] == 0
    assert BATCHES[-1][1] == END
    for piece_bytes in (1, 100, 401, 1 << 20):
        tables = read(GOOD, piece_bytes=piece_bytes)
        assert spans(tables) == BATCHES
        assert damages(tables) == []


def test_batches_when_read_say_what_the_record_batch_says() -> None:
    for table in read(GOOD):
        for ordinal in range(len(table)):
            batch = table.batch(ordinal)
            batch.verify()
            assert tuple(table.headers[ordinal].tolist()) == tuple(batch.header)


@given(
    edits=st.lists(
        st.tuples(st.integers(0, END - 1), st.integers(1, 300), st.sampled_from("xz")),
        min_size=1,
        max_size=4,
    ),
    piece_bytes=st.sampled_from((200, 777, 1 << 20)),
)
def test_bytes_when_damaged_cost_only_the_batches_that_they_are_in(
    edits: list[tuple[int, int, str]], piece_bytes: int
) -> None:
    raw = bytearray(GOOD)
    for at, length, how in edits:
        for place in range(64 + at, min(len(raw), 64 + at + length)):
            raw[place] = 0 if how == "z" else raw[place] ^ 0x5A
    tables = read(bytes(raw), piece_bytes=piece_bytes)
    untouched = [
        (low, high)
        for low, high in BATCHES
        if raw[64 + low : 64 + high] == GOOD[64 + low : 64 + high]
    ]
    assert spans(tables) == untouched
    told = [(one.offset, one.offset + one.length) for one in damages(tables)]
    together = sorted([*untouched, *told])
    assert [low for low, _ in together] == [0, *(high for _, high in together)][: len(together)]
    assert together[-1][1] == END


@given(cut=st.integers(64, len(GOOD) - 1))
def test_file_when_cut_is_read_to_its_last_whole_batch(cut: int) -> None:
    tables = read(GOOD[:cut])
    end = cut - 64
    assert spans(tables) == [one for one in BATCHES if one[1] <= end]
    told = damages(tables)
    if end in {0, *(high for _, high in BATCHES)}:
        assert told == []
    else:
        (one,) = told
        assert (one.reason, one.offset + one.length) == (block_table.TORN_TAIL, end)
        assert one.is_expected


def test_tail_when_it_was_durable_is_damage() -> None:
    (one,) = damages(read(GOOD[:-8], durable=END))
    assert one.reason == block_table.CUT_OFF
    assert not one.is_expected


def test_file_when_shorter_than_it_was_is_cut_off() -> None:
    where = range_of(GOOD, durable_offset=END)
    tables = list(read_blocks(where, disk=in_memory(GOOD[:700])))
    (one,) = damages(tables)
    assert (one.reason, one.offset + one.length) == (block_table.CUT_OFF, END)


def test_payload_when_damaged_names_the_sequences_that_are_lost() -> None:
    raw = bytearray(GOOD)
    low, high = BATCHES[4]
    raw[64 + high - 9] ^= 1
    (one,) = damages(read(bytes(raw)))
    assert (one.reason, one.offset, one.length) == (
        block_table.CORRUPT_PAYLOAD,
        low,
        high - low,
    )
    assert (one.base_sequence, one.row_count) == (15, 5)
    assert damages(read(bytes(raw), verify=HEADERS)) == []


def test_batch_when_of_a_later_version_is_told_apart() -> None:
    raw = bytearray(GOOD)
    low, high = BATCHES[3]
    raw[64 + low + 4] = 2
    (one,) = damages(read(bytes(raw)))
    assert (one.reason, one.offset, one.length) == (
        block_table.UNKNOWN_VERSION,
        low,
        high - low,
    )
    assert "version 2" in one.detail


def test_batch_when_of_an_unknown_kind_is_kept_and_told() -> None:
    raw = bytearray(GOOD)
    low, _ = BATCHES[2]
    raw[64 + low + 5] = 77
    reseal(raw, 64 + low)
    tables = read(bytes(raw))
    assert spans(tables) == BATCHES
    (one,) = damages(tables)
    assert (one.reason, one.offset) == (block_table.UNKNOWN_KIND, low)
    assert "kind 77" in one.detail


@pytest.mark.parametrize(
    ("batch", "field", "value", "said"),
    [
        (0, 12, 6, "columns do not fit"),
        (0, 12, 0, "columns do not fit"),
        (2, 12, 9, "rows do not fit"),
    ],
)
def test_batch_when_it_contradicts_itself_is_no_batch(
    batch: int, field: int, value: int, said: str
) -> None:
    raw = bytearray(GOOD)
    at = 64 + BATCHES[batch][0]
    raw[at + field : at + field + 4] = value.to_bytes(4, "little")
    reseal(raw, at)
    tables = read(bytes(raw))
    (one,) = damages(tables)
    assert one.reason == block_table.CONTRADICTION
    assert said in one.detail
    assert spans(tables) == [each for each in BATCHES if each != BATCHES[batch]]


def test_padding_and_blob_lengths_when_wrong_are_contradictions() -> None:
    low, high = BATCHES[0]
    raw = bytearray(GOOD)
    raw[64 + high - 1] = 1  # five bodies of 30 to 32 bytes: there is padding
    (one,) = damages(read(bytes(raw)))
    assert one.detail == "the padding is not zero"
    raw = bytearray(GOOD)
    batch = RecordBatch(bytes(raw[64 + low : 64 + high]))
    at = 64 + low + HEADER_BYTES + batch.header.stamped_bytes
    raw[at + 20 * 5] ^= 1  # a body_len
    end = at + batch.header.column_bytes + batch.header.blob_bytes
    raw[64 + low + 88 : 64 + low + 92] = crc32c(bytes(raw[at:end])).to_bytes(4, "little")
    reseal(raw, 64 + low)
    (one,) = damages(read(bytes(raw)))
    assert one.detail == "blob lengths do not add up"


@pytest.mark.parametrize("piece_bytes", [400, 1 << 20])
def test_batch_when_it_belongs_elsewhere_is_not_taken(piece_bytes: int) -> None:
    """As an old file's blocks that the disk gave out again."""
    low, high = BATCHES[1]
    moved = GOOD[: 64 + BATCHES[4][0]] + GOOD[64 + low : 64 + high] + GOOD[64 + BATCHES[5][0] :]
    tables = read(moved, piece_bytes=piece_bytes)
    (one,) = damages(tables)
    assert one.offset == BATCHES[4][0]
    assert "of offset" in one.detail


def test_batch_when_larger_than_a_piece_is_read_at_once() -> None:
    raw = segment(batches=2, messages=200, body_bytes=100)
    assert damages(read(raw, piece_bytes=64)) == []
    assert len(spans(read(raw, piece_bytes=64))) == 2


def test_file_when_it_cannot_be_opened_is_a_damage(tmp_path: Path) -> None:
    where = range_of(GOOD)._replace(uri=str(tmp_path), path="gone")
    (table,) = read_blocks(where)
    (one,) = table.damages
    assert (one.reason, one.offset, one.length) == (block_table.UNREADABLE, 0, END)


def test_log_when_an_engine_wrote_it_has_every_message_that_was_asked_for(made: Made) -> None:
    assert len(segments(made.directory)) > 1
    seen = 0
    for table in tables_of(*only_copy(made.directory), partition_bytes=8_192, piece_bytes=4_096):
        assert table.damages == ()
        messages = table.messages
        sequences = messages.column("sequence").tolist()
        due_ms = messages.column("due_ms").tolist()
        for ordinal, sequence in enumerate(sequences):
            assert sequence == seen
            seen += 1
            if sequence in made.accepted:
                assert due_ms[ordinal] == made.accepted[sequence][1]
                assert messages.blobs(ordinal)[1] == made.bodies[sequence]
    assert seen == len(made.accepted) + made.void


def test_segment_when_it_ends_early_in_the_middle_of_a_log_is_cut_off(
    made: Made, tmp_path: Path
) -> None:
    directory = copied(made.directory, tmp_path)
    first = segments(directory)[0]
    first.write_bytes(first.read_bytes()[:-100])
    (one,) = damages_of(directory)
    assert one.reason == block_table.CUT_OFF
    assert one.file == f"shard-0/log/{first.name}"
    assert log_end(directory) == log_end(made.directory)
