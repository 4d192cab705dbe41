"""Verifying the log: every byte, and that its parts fit together."""

from collections.abc import Callable

import numpy as np
import pytest

from hourwheel.formats.record_batch import RecordBatch, Stamp, build_publish, stamp, unpack_header
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.tools.inspect.report import Report
from node.tools.inspect.verify_log import LogFacts, verify_log, verify_segment
from storage.files import atomic_file
from storage.log.epochs import EpochFile
from storage.log.sparse_index import SparseIndex
from tests.support.inspected import (
    SHARD,
    Image,
    disk_of,
    files_of,
    flipped,
    image_of,
    made_image,
    paths,
)
from tests.support.shard_world import IDENTITY

END = 31_536
MARK = f"{SHARD}/flushed.mark"


def verify(image: Image, applied: int | None = None) -> tuple[Report, LogFacts]:
    files, report = files_of(image), Report()
    manifest = files.find_manifest() if applied is None else Checkpoint(applied_offset=applied)
    return report, verify_log(files, report, manifest)


def offsets(image: Image, path: str) -> list[int]:
    """Where in a segment's file its batches begin."""
    found, at = [], 64
    while at < len(image[path]):
        found.append(at)
        at += unpack_header(image[path], at).total_bytes
    return found


def restamped(image: Image, path: str, at: int, **changes: int) -> Image:
    """The image with another stamp on the batch at a byte of a segment, all CRCs being right."""
    raw = image[path]
    batch = RecordBatch(raw[at:])
    header = batch.header
    fields = {name: getattr(header, name) for name in Stamp._fields} | changes
    columns = {}
    if header.stamped_bytes:
        columns = {"due_ms": batch.due_ms, "topic_queue": batch.topic_queue}
    pieces = stamp(batch, Stamp(**fields), **columns)  # type: ignore[arg-type]
    return {**image, path: raw[:at] + b"".join(pieces) + raw[at + header.total_bytes :]}


def test_facts_are_told_when_all_is_good() -> None:
    report, facts = verify(made_image())
    assert report.is_good
    assert (facts.start_offset, facts.end_offset, facts.messages) == (0, END, 288)
    assert facts.next_sequence == facts.sequence_at_applied == 288


def test_sequence_is_known_where_a_checkpoint_was_taken() -> None:
    report, facts = verify(made_image(), applied=7_856)
    assert (report.is_good, facts.sequence_at_applied) == (True, 68)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"base_sequence": 5}, "sequence 5 follows on 0"),
        ({"epoch": 7}, "epoch 7 where epochs has 1"),
        ({"flushed_end_offset": 1 << 40}, "was durable up to"),
        ({"offset": 8}, "a record batch of offset 8"),
    ],
)
def test_batch_is_damage_when_its_stamp_contradicts_its_neighbours(
    changes: dict[str, int], why: str
) -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    at = offsets(image, path)[2]
    report, _ = verify(restamped(image, path, at, **changes))
    assert any(
        damage.file == path and damage.offset == at and why in damage.why
        for damage in report.damage
    )


def test_all_damage_is_named_when_there_is_some_in_several_places() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[0]
    bad = [offsets(image, path)[index] for index in (1, 4, 9)]
    for at in bad:
        image = flipped(image, path, at + 97)
    report, facts = verify(image)
    assert [damage.offset for damage in report.damage] == bad
    assert facts.batches == verify(made_image())[1].batches - len(bad)


def test_message_is_damage_when_its_own_checksum_is_wrong() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[-1]
    raw = bytearray(build_publish([1, 2], [b"a", b"b"]))
    batch = RecordBatch(bytes(raw))
    batch.verify()
    crcs_at = 96 + batch.header.stamped_bytes + 32
    raw[crcs_at] ^= 1
    forged = RecordBatch(bytes(raw))
    payload_crc = 88
    from hourwheel.crc32c import crc32c  # noqa: PLC0415

    end = forged.header.column_bytes + forged.header.blob_bytes
    raw[payload_crc : payload_crc + 4] = crc32c(forged.payload[:end]).to_bytes(4, "little")
    pieces = stamp(
        RecordBatch(bytes(raw)),
        Stamp(END, 288, 1, END, 2),
        due_ms=np.array([1, 2], np.int64),
        topic_queue=np.array([256, 256], np.uint32),
    )
    report, _ = verify({**image, path: image[path] + b"".join(pieces)})
    assert [damage.why for damage in report.damage] == [
        f"message 288 fails its CRC32C, at offset {END}"
    ]


def test_tail_is_no_damage_unless_a_later_batch_says_that_it_was_durable() -> None:
    image = made_image()
    path = paths(image, "log/", ".log")[-1]
    batch = RecordBatch(build_publish([1], [b"a"]))
    size = batch.header.total_bytes

    def stamped(offset: int, flushed: int) -> bytes:
        columns = {"due_ms": np.array([1]), "topic_queue": np.array([256], np.uint32)}
        return b"".join(stamp(batch, Stamp(offset, 288, 1, flushed, 2), **columns))

    torn = bytes(size)
    later = stamped(END + size, END)
    report, _ = verify({**image, path: image[path] + torn + later})
    assert report.is_good
    assert len(report.remarks) == 1
    proof = stamped(END + size, END + size)
    report, _ = verify({**image, path: image[path] + torn + proof})
    assert [damage.offset for damage in report.damage] == [len(image[path])]


def without(image: Image, path: str) -> Image:
    return {other: raw for other, raw in image.items() if other != path}


def with_epochs(image: Image, *entries: tuple[int, int]) -> Image:
    disk = disk_of(without(image, f"{SHARD}/epochs"))
    epochs = EpochFile.open(disk, f"{SHARD}/epochs", IDENTITY)
    for entry in entries:
        epochs.append(*entry)
    return image_of(disk)


def with_index(image: Image, change: Callable[[SparseIndex], None]) -> Image:
    path = paths(image, "log/", ".index")[0]
    disk = disk_of(image)
    found = atomic_file.read_any(disk, path)
    index = SparseIndex.unpack(found.payload, found.header.base, path)
    change(index)
    atomic_file.write(disk, path, image[path][:64], index.pack())
    return image_of(disk)


def test_log_is_damaged_when_a_segment_is_missing_or_short() -> None:
    image = made_image()
    segments = paths(image, "log/", ".log")
    for path in segments:
        is_first = path == segments[0]  # as retention leaves it: the queues' entries will tell
        assert is_first or not verify(without(image, path))[0].is_good
        assert not verify({**image, path: image[path][:-8]})[0].is_good
        assert not verify({**image, path: image[path] + bytes(8)})[0].is_good or (
            path == segments[-1]
        )


@pytest.mark.parametrize("applied", [END + 8, 7_860])
def test_log_is_damaged_when_what_was_applied_is_not_in_it(applied: int) -> None:
    assert not verify(made_image(), applied)[0].is_good


def test_log_that_begins_later_needs_a_checkpoint() -> None:
    image = made_image()
    first, *_ = paths(image, "log/", ".log")
    later = without(without(image, first), first.replace(".log", ".index"))
    assert verify(later)[0].is_good
    assert not verify(without(later, f"{SHARD}/checkpoint"))[0].is_good


def test_epochs_are_damaged_when_they_are_others_than_in_the_log() -> None:
    image = made_image()
    assert verify(with_epochs(image, (1, 0), (2, 16_136)))[0].is_good
    assert not verify(with_epochs(image, (1, 0), (2, 16_008)))[0].is_good
    assert not verify(with_epochs(image, (1, 0)))[0].is_good
    assert not verify(without(image, f"{SHARD}/epochs"))[0].is_good


def test_index_is_damaged_when_it_says_something_else_than_the_segment() -> None:
    def shift(index: SparseIndex) -> None:
        index.packed[24:32] = (int.from_bytes(index.packed[24:32], "little") + 8).to_bytes(
            8, "little"
        )

    def rename(index: SparseIndex) -> None:
        index.packed[32] ^= 1

    def stretch(index: SparseIndex) -> None:
        index.end_offset += 8

    image = made_image()
    assert verify(with_index(image, lambda _: None))[0].is_good
    for change in (shift, rename, stretch):
        assert not verify(with_index(image, change))[0].is_good, change


def test_mark_is_lost_but_the_log_good_when_its_file_is_missing() -> None:
    assert verify(without(made_image(), MARK))[0].is_good


def test_segment_is_verified_alone() -> None:
    image = made_image()
    for path in paths(image, "log/", ".log"):
        report = Report()
        verify_segment(files_of(image), path, report)
        assert report.is_good
        verify_segment(files_of(flipped(image, path, 200)), path, report)
        assert [damage.file for damage in report.damage] == [path]
