"""Receiving a snapshot: what a peer may send, and what a power cut leaves of it."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.replication_pb2 import (
    SnapshotBytes,
    SnapshotEnd,
    SnapshotFile,
    SnapshotHead,
)
from node.shard.snapshot_files import (
    FILE_BYTES_MAX,
    FILE_COUNT_MAX,
    Marker,
    find_files,
    find_marker,
    incoming,
)
from node.snapshot.sink import Incoming, check_head
from node.snapshot.source import HeldSnapshot
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.shard_world import IDENTITY
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import EPOCH, age, begin_world, hold, live, place_on, receive

SEGMENT = "log/00000000000000000000.log"


@pytest.fixture(scope="module")
def stage() -> Iterator[HeldSnapshot]:
    """A snapshot to be given."""
    with small_sizes(16):
        world = begin_world(1)
        age(world, Random(1))
        live(world, Random(2), 6)
        yield hold(world)


def head_of(*files: tuple[str, int], **facts: Any) -> SnapshotHead:
    named = [SnapshotFile(name=name, size_bytes=size) for name, size in files]
    return SnapshotHead(**{"epoch": EPOCH, "files": named, **facts})


GOOD = (("epochs", 80), (SEGMENT, 164), ("checkpoint", 90))


def test_head_when_it_is_one(stage: HeldSnapshot) -> None:
    files, end = check_head(head_of(*GOOD, applied_offset=100), EPOCH)
    assert (len(files), end) == (3, 100)
    check_head(stage.head(), EPOCH)


@pytest.mark.parametrize(
    "head",
    [
        head_of(),
        head_of(*GOOD, epoch=EPOCH + 1),
        head_of(*GOOD, applied_offset=101),
        head_of(*GOOD, log_start_offset=50, applied_offset=50),
        head_of(("epochs", 80), ("log/00000000000000000100.log", 90), log_start_offset=0),
        head_of(("log/00000000000000000100.log", 90), ("checkpoint", 1), log_start_offset=100),
        head_of(*GOOD[:2], applied_offset=50),
        head_of(*GOOD[::-1], applied_offset=50),
        head_of(*GOOD[:2], *GOOD),
        head_of(("../epoch_seen", 80), *GOOD),
        head_of(("/etc/passwd", 80), *GOOD),
        head_of(("epoch_seen", 80), *GOOD),
        head_of(("flushed.mark", 80), *GOOD),
        head_of(("complete", 80), *GOOD),
        head_of(("log/../../shard-0/checkpoint", 80), *GOOD),
        head_of(("queues/00000100/../x.cq", 80), *GOOD),
        head_of((SEGMENT, 63)),
        head_of((SEGMENT, FILE_BYTES_MAX + 1)),
        head_of((SEGMENT, (1 << 64) - 1)),
    ],
)
def test_head_is_refused_when_no_shard_is_like_that(head: SnapshotHead) -> None:
    refuses(head)


def test_head_is_refused_when_it_names_too_many_files() -> None:
    refuses(head_of(*[("epochs", 1)] * (FILE_COUNT_MAX + 1)))


def refuses(head: SnapshotHead) -> None:
    disk = SimulatedDisk()
    with pytest.raises(errors.PeerRefused):
        Incoming(place_on(disk), EPOCH).begin(head)
    assert disk.list("") == []


def test_snapshot_is_complete_when_all_has_come(stage: HeldSnapshot) -> None:
    disk = SimulatedDisk()
    marker = receive(stage, disk, replaced_end_offset=17)
    assert marker.replaced_end_offset == 17
    assert find_marker(incoming(place_on(disk))) == marker
    sizes = {one.name: one.size_bytes for one in stage.head().files}
    assert dict(find_files(incoming(place_on(disk)))) == sizes
    disk.crash(Random(1))
    assert find_marker(incoming(place_on(disk))) == marker


def test_what_was_there_before_goes(stage: HeldSnapshot) -> None:
    disk = SimulatedDisk()
    receive(stage, disk)
    disk.open("shard-0.incoming/log/x", create=True)
    assert receive(stage, disk) == find_marker(incoming(place_on(disk)))


def change(**facts: Any) -> Callable[[list[SnapshotBytes]], None]:
    """Changes the second piece, whose CRC is right again unless it is one of the facts."""

    def apply(pieces: list[SnapshotBytes]) -> None:
        for name, value in facts.items():
            setattr(pieces[1], name, value)
        if "crc" not in facts:
            pieces[1].crc = crc32c(pieces[1].data)

    return apply


def flip(pieces: list[SnapshotBytes]) -> None:
    data = bytearray(pieces[1].data)
    data[-1] ^= 1
    pieces[1].data = bytes(data)


def swap(pieces: list[SnapshotBytes]) -> None:
    pieces[0], pieces[1] = pieces[1], pieces[0]


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        swap,
        change(crc=0),
        change(position=1),
        change(position=(1 << 64) - 1),
        change(data=b""),
        change(data=bytes((1 << 20) + 1)),
        change(data=bytes(1 << 20)),
        change(data=b"short"),
        change(file=1 << 31),
        change(file=5),
        lambda pieces: pieces.pop(1),
        lambda pieces: pieces.pop(),
        lambda pieces: pieces.insert(1, pieces[1]),
        lambda pieces: pieces.append(pieces[0]),
    ],
)
def test_piece_is_refused_when_it_is_not_the_next(
    stage: HeldSnapshot, damage: Callable[[list[SnapshotBytes]], Any]
) -> None:
    pieces = list(stage.pieces())
    damage(pieces)
    disk = SimulatedDisk()
    taking = Incoming(place_on(disk), EPOCH)
    taking.begin(stage.head())

    def take_all() -> Marker:
        for piece in pieces:
            taking.add(piece)
        return taking.finish(SnapshotEnd(total_bytes=stage.total_bytes), 0)

    with pytest.raises(errors.PeerRefused):
        take_all()
    assert find_marker(incoming(place_on(disk))) is None
    taking.abandon()
    assert disk.list("") == []


@pytest.mark.parametrize(
    "what", ["total", "applied", "epochs", "two heads", "no head", "no head 2"]
)
def test_snapshot_is_refused_when_its_parts_contradict_each_other(
    stage: HeldSnapshot, what: str
) -> None:
    head, total = stage.head(), stage.total_bytes
    taking = Incoming(place_on(SimulatedDisk()), EPOCH)
    if what == "applied":
        head.applied_offset += 8
    elif what == "epochs":
        head.epochs[0].start_offset += 1

    def take_all() -> None:
        if what == "no head":
            taking.finish(SnapshotEnd(total_bytes=0), 0)
        elif what == "no head 2":
            taking.add(next(stage.pieces()))
        taking.begin(head)
        if what == "two heads":
            taking.begin(head)
        for piece in stage.pieces():
            taking.add(piece)
        taking.finish(SnapshotEnd(total_bytes=total + (what == "total")), 0)

    with pytest.raises(errors.PeerRefused):
        take_all()


def test_files_of_another_cluster_are_refused(stage: HeldSnapshot) -> None:
    disk = SimulatedDisk()
    place = place_on(disk)
    taking = Incoming(type(place)(disk, "shard-0", IDENTITY._replace(cluster_id=bytes(16))), EPOCH)
    taking.begin(stage.head())
    for piece in stage.pieces():
        taking.add(piece)
    with pytest.raises(errors.ForeignDirectory):
        taking.finish(SnapshotEnd(total_bytes=stage.total_bytes), 0)


def test_disk_is_full_before_anything_is_written(stage: HeldSnapshot) -> None:
    disk = SimulatedDisk(capacity_bytes=8_192)
    with pytest.raises(errors.DiskFull, match="are free"):
        Incoming(place_on(disk), EPOCH).begin(stage.head())
    assert disk.list("") == []


def add_all(taking: Incoming, stage: HeldSnapshot) -> None:
    for piece in stage.pieces():
        taking.add(piece)


def test_disk_is_full_on_the_way(stage: HeldSnapshot) -> None:
    disk = SimulatedDisk()
    taking = Incoming(place_on(disk), EPOCH)
    taking.begin(stage.head())
    disk.capacity_bytes = 8_192
    with pytest.raises(errors.DiskFull):
        add_all(taking, stage)
    taking.abandon()
    assert disk.list("") == []


@pytest.mark.parametrize("takes_effect", [False, True])
def test_marker_means_complete_when_power_fails_at_each_operation(
    stage: HeldSnapshot, takes_effect: bool
) -> None:
    disk = SimulatedDisk()
    marker = receive(stage, disk)
    completed = 0
    for at in range(1, disk.durability_op_count + 1):
        disk = SimulatedDisk()
        disk.fail_after(at, takes_effect=takes_effect)
        try:
            receive(stage, disk)
        except SimulatedCrash:
            disk.crash(Random(at))
        found = find_marker(incoming(place_on(disk)))
        assert found in {None, marker}
        if found is not None:
            completed += 1
            files = {one.path: one for one in stage._files}
            for held in files.values():
                raw = disk.open(f"shard-0.incoming/{held.name}").pread(1 << 20, 0)
                expected = stage._disk.open(held.path).pread(held.sent_bytes, 0)
                assert raw[: held.sent_bytes] == held.head + expected[len(held.head) :]
                assert not any(raw[held.sent_bytes :])
    assert completed <= 2
