import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import Offset
from storage.log import scan
from storage.log.scan import BatchWalk, corrupt_log, verify_batch
from tests.sim.disk import SimulatedDisk, SimulatedFile
from tests.support.log_world import stamped

START = 8000
SIZES = [200, 96, 1000, 104, 200, 3000, 200]


def batches() -> list[bytes]:
    found: list[bytes] = []
    at = START
    for size in SIZES:
        found.append(stamped(at, START, b"\x07" * (size - 96)))
        at += len(found[-1])
    return found


def file_of(raw: bytes) -> SimulatedFile:
    file = SimulatedDisk().open("f", create=True)
    file.pwrite([bytes(64), raw], 0)
    return file


def walk(raw: bytes, to: int | None = None) -> BatchWalk:
    return BatchWalk(file_of(raw), START, START, START + len(raw) if to is None else to)


@pytest.fixture(params=[8, 96, 200, 208, 1000, 4096, 1 << 22])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", request.param)


@pytest.mark.usefixtures("_chunks")
def test_walk_when_all_are_good() -> None:
    found = batches()
    walked = walk(b"".join(found))
    assert [bytes(batch.payload) for batch in walked] == [
        bytes(RecordBatch(raw).payload) for raw in found
    ]
    assert walked.fault is None
    assert walked.next_offset == START + sum(map(len, found))


@pytest.mark.usefixtures("_chunks")
def test_walk_when_only_a_part_is_asked_for() -> None:
    found = batches()
    file = file_of(b"".join(found))
    from_ = START + len(found[0])
    to = START + sum(map(len, found[:4]))
    assert len(list(BatchWalk(file, START, from_, to))) == 3
    assert list(BatchWalk(file, START, from_, from_)) == []


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("index", range(len(SIZES)))
def test_walk_when_one_is_damaged_ends_before_it(index: int) -> None:
    found = batches()
    raw = bytearray(b"".join(found))
    good = sum(map(len, found[:index]))
    raw[good + len(found[index]) // 2] ^= 0x40
    walked = walk(bytes(raw))
    assert len(list(walked)) == index
    assert walked.next_offset == START + good
    assert walked.fault is not None


@pytest.mark.usefixtures("_chunks")
def test_walk_when_cut_anywhere() -> None:
    found = batches()
    raw = b"".join(found)
    ends = [sum(map(len, found[:count])) for count in range(len(found) + 1)]
    for length in range(0, len(raw), 56):
        walked = walk(raw[:length])
        whole = max(end for end in ends if end <= length)
        assert len(list(walked)) == ends.index(whole)
        assert walked.next_offset == START + whole
        assert (walked.fault is None) == (length in ends)


@pytest.mark.parametrize("missing", [1, 200, 250])
def test_walk_when_the_file_is_shorter_than_it_should_be(missing: int) -> None:
    raw = b"".join(batches())
    walked = walk(raw[:-missing], to=START + len(raw))
    assert len(list(walked)) == len(SIZES) - (1 if missing <= 200 else 2)
    assert walked.fault is not None


def faulty(raw: bytes) -> str:
    walked = walk(raw)
    assert list(walked) == []
    assert walked.fault is not None
    return walked.fault


def test_walk_when_malformed() -> None:
    good = stamped(START, START, bytes(101))
    assert good[-3:] == bytes(3)
    huge = (1 << 30).to_bytes(4, "little")
    blob_bytes = ((1 << 30) - 96).to_bytes(4, "little")
    assert "magic" in faulty(bytes(4096))
    assert "version 2" in faulty(good[:4] + b"\x02" + good[5:])
    assert "offset 8008" in faulty(stamped(START + 8, START, bytes(100)))
    assert "padding" in faulty(good[:-1] + b"\x01")
    assert "payload" in faulty(good[:-4] + b"\x01" + good[-3:])
    assert "header fails" in faulty(good[:24] + b"\x01" + good[25:])
    assert "contradict" in faulty(good[:8] + huge + good[12:])
    assert "1073741824 bytes" in faulty(good[:8] + huge + good[12:60] + blob_bytes + good[64:])


def test_verify_batch_when_good_and_elsewhere() -> None:
    batch = RecordBatch(stamped(START, START, b"x"))
    verify_batch(batch, START)
    with pytest.raises(errors.InvalidBatch):
        verify_batch(batch, START + 8)


def test_corrupt_log_names_the_place() -> None:
    error = corrupt_log("it is bad", "a/b.log", Offset(9000), 1064)
    assert error.message == "a/b.log: it is bad, at offset 9000, byte 1064 of the file"
    assert error.params == {"file": "a/b.log", "offset": "9000", "position": "1064"}
