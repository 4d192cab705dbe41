from random import Random

import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import Offset
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.segment import Segment, SegmentList, find_start_offset, segment_path
from storage.log.sparse_index import SparseIndex
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import IDENTITY, stamped

START = Offset(8000)
PATH = "log/00000000000000008000.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("log")
    return disk


def make(disk: SimulatedDisk, start: int = START, count: int = 3) -> Segment:
    """A segment with batches of 200 bytes and an index of them."""
    segment = Segment(disk, "log", Offset(start), IDENTITY)
    segment.create()
    index = SparseIndex(start, 100)
    raw = b""
    for number in range(count):
        batch = stamped(start + 200 * number, start, bytes([number]) * 104, number, 10 + number)
        index.add_batch(RecordBatch(batch).header)
        raw += batch
    segment.open_file().pwrite([raw], 64)
    segment.end_offset = Offset(start + len(raw))
    segment.adopt_index(index)
    return segment


def test_names_when_made_and_read() -> None:
    assert segment_path("a/log", START) == "a/log/00000000000000008000.log"
    assert find_start_offset("00000000000000008000.log") == START
    assert find_start_offset("00000000000000008000.index", ".index") == START
    for name in ("8000.log", "00000000000000008000.index", "0000000000000000800x.log", ".log"):
        assert find_start_offset(name) is None


def test_create_when_the_power_is_cut_is_durable(disk: SimulatedDisk) -> None:
    Segment(disk, "log", START, IDENTITY).create()
    disk.crash(Random(3))
    segment = Segment(disk, "log", START, IDENTITY)
    segment.check_header()
    assert segment.info == (PATH, START, START, -1)


def test_create_when_it_exists(disk: SimulatedDisk) -> None:
    Segment(disk, "log", START, IDENTITY).create()
    with pytest.raises(errors.InvariantViolated, match="exists"):
        Segment(disk, "log", START, IDENTITY).create()


def test_create_when_an_old_index_lies_there(disk: SimulatedDisk) -> None:
    segment = Segment(disk, "log", START, IDENTITY)
    disk.open(segment.index_path, create=True)
    segment.create()
    assert disk.list("log") == ["00000000000000008000.log"]


def test_read_when_inside_and_behind(disk: SimulatedDisk) -> None:
    segment = make(disk)
    assert segment.position_of(8200) == 264
    assert segment.read(8200, 200) == stamped(8200, START, b"\x01" * 104, 1, 11)
    with pytest.raises(errors.CorruptLog, match="ends too early") as raised:
        segment.read(8500, 101)
    assert raised.value.params == {"file": PATH, "offset": "8600", "position": "664"}


@pytest.mark.parametrize("first_read_bytes", [96, 200, 4096])
def test_read_batch_when_good(disk: SimulatedDisk, first_read_bytes: int) -> None:
    segment = make(disk)
    for number in range(3):
        batch = segment.read_batch(START + 200 * number, first_read_bytes=first_read_bytes)
        assert bytes(batch.blobs) == bytes([number]) * 104


@pytest.mark.parametrize("position", [0, 8, 9, 11, 16, 40, 60, 88, 92, 150])
def test_read_batch_when_damaged(disk: SimulatedDisk, position: int) -> None:
    segment = make(disk)
    disk.flip_bit(PATH, 264 + position, 6)
    with pytest.raises(errors.CorruptLog) as raised:
        segment.read_batch(8200)
    assert raised.value.params == {"file": PATH, "offset": "8200", "position": "264"}
    assert PATH in raised.value.message
    assert segment.read_batch(8400).header.base_sequence == 2


def test_read_batch_when_none_begins_there(disk: SimulatedDisk) -> None:
    with pytest.raises(errors.CorruptLog, match="magic"):
        make(disk).read_batch(8208)


def test_scan_when_one_is_damaged(disk: SimulatedDisk) -> None:
    segment = make(disk)
    disk.flip_bit(PATH, 264 + 150)
    found: list[RecordBatch] = []
    with pytest.raises(errors.CorruptLog, match="payload"):
        found.extend(segment.scan(START, segment.end_offset))
    assert [batch.header.offset for batch in segment.scan(8400, 8600)] == [8400]


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (bytes(64), errors.CorruptLog),
        (pack_file_header(FileType.LOG_SEGMENT, IDENTITY, 1), errors.CorruptLog),
        (pack_file_header(FileType.RUN, IDENTITY, START), errors.CorruptLog),
        (
            pack_file_header(FileType.LOG_SEGMENT, Identity(bytes(16), 3), START),
            errors.ForeignDirectory,
        ),
    ],
)
def test_check_header_when_wrong(
    disk: SimulatedDisk, header: bytes, error: type[Exception]
) -> None:
    segment = make(disk)
    disk.damage(PATH, 0, header)
    with pytest.raises(error, match=PATH):
        segment.check_header()


def test_check_header_when_of_another_version(disk: SimulatedDisk) -> None:
    segment = make(disk)
    raw = disk.open(PATH).pread(60, 0)
    raw = raw[:8] + b"\x02\0" + raw[10:]
    disk.damage(PATH, 0, raw + crc32c(raw).to_bytes(4, "little"))
    with pytest.raises(errors.IncompatibleFormat, match=PATH):
        segment.check_header()


def test_remove_when_its_files_are_there_or_not(disk: SimulatedDisk) -> None:
    segment = make(disk)
    save(segment)
    segment.remove()
    assert disk.list("log") == []
    disk.crash(Random(0))
    assert disk.list("log") == []
    segment.remove()


def save(segment: Segment) -> None:
    work = segment.begin_save_index()
    assert work is not None
    work()


def test_save_index_when_read_again(disk: SimulatedDisk) -> None:
    segment = make(disk)
    index = segment.index
    save(segment)
    assert segment.begin_save_index() is None
    again = Segment(disk, "log", START, IDENTITY).find_saved_index()
    assert again is not None
    assert index is not None
    assert again.pack() == index.pack()
    segment.drop_saved_index()
    assert segment.index is None
    assert segment.begin_save_index() is None


def test_save_index_when_the_segment_grew_meanwhile(disk: SimulatedDisk) -> None:
    segment = make(disk)
    work = segment.begin_save_index()
    assert work is not None
    assert segment.index is not None
    segment.index.add(8600, 8700, 9, 99)
    work()
    segment.drop_saved_index()
    assert segment.index is not None
    again = segment.find_saved_index()
    assert again is not None
    assert again.end_offset == 8600


def test_save_index_when_power_is_cut_covers_only_durable_bytes(disk: SimulatedDisk) -> None:
    segment = make(disk)
    save(segment)
    disk.crash(Random(1))
    assert disk.open(PATH).size() == 664


@pytest.mark.parametrize("damage", ["missing", "flipped", "other base", "contradiction"])
def test_find_saved_index_when_it_cannot_be_used(disk: SimulatedDisk, damage: str) -> None:
    segment = make(disk)
    save(segment)
    if damage == "missing":
        disk.remove(segment.index_path)
    elif damage == "flipped":
        disk.flip_bit(segment.index_path, 100)
    elif damage == "other base":
        other = make(disk, 16_000)
        save(other)
        disk.rename(other.index_path, segment.index_path)
    else:
        disk.open(segment.index_path).truncate(90)
    assert segment.find_saved_index() is None


def test_truncate_when_power_is_cut(disk: SimulatedDisk) -> None:
    segment = make(disk)
    save(segment)
    segment.truncate(Offset(8200))
    disk.crash(Random(5))
    assert disk.open(PATH).size() == 264
    assert disk.list("log") == ["00000000000000008000.log"]


def listed(disk: SimulatedDisk, count: int, **limits: int) -> SegmentList:
    return SegmentList([make(disk, 600 * number) for number in range(count)], **limits)


def test_list_when_asked_for_an_offset(disk: SimulatedDisk) -> None:
    segments = listed(disk, 4)
    assert [segments.get(at).start_offset for at in (0, 599, 600, 1300, 1800, 9999)] == [
        *(0, 0, 600, 1200, 1800, 1800)
    ]
    assert len(segments) == 4
    assert segments.start_offset == 0
    assert segments.pop_first().start_offset == 0
    assert segments.pop_last() is not segments.last
    assert [segment.start_offset for segment in segments] == [600, 1200]
    assert SegmentList([]).last is None
    assert SegmentList([]).start_offset == 0


def test_list_when_many_are_read_keeps_few_open(disk: SimulatedDisk) -> None:
    segments = listed(disk, 9, open_count_max=3)
    for segment in segments:
        segment.close()
    for _ in range(2):
        for at in range(0, 5400, 600):
            assert segments.get(at).read_batch(at).header.offset == at
            assert sum(segment.file is not None for segment in segments) <= 4
    segments.append(make(disk, 5400))
    assert segments.last is not None
    assert segments.last.file is not None
    assert segments.pop_first().file is None


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("offset", range(0, 1800, 200))
def test_list_truncate(disk: SimulatedDisk, offset: int, *, is_saved: bool) -> None:
    segments = listed(disk, 3)
    for segment in segments:
        if is_saved:
            save(segment)
        segment.drop_saved_index()
    segments.truncate(Offset(offset), 100)
    disk.crash(Random(offset))
    last = segments.last
    assert last is not None
    assert last.end_offset == offset
    assert last.index is not None
    assert last.index.end_offset == last.end_offset
    assert last.index.entries["offset"].tolist() == [
        *range(last.start_offset, last.end_offset, 200)
    ]
    kept = max(1, -(-offset // 600))
    names = [name for name in disk.list("log") if name.endswith(".log")]
    assert names == [segment_path("", 600 * number) for number in range(kept)]
    assert disk.open(last.path).size() == 64 + last.end_offset - last.start_offset
