"""What may be in a snapshot, and when one is complete."""

import pytest

from hourwheel import errors
from node.shard.recovery import WATERMARK
from node.shard.snapshot_files import (
    LOST_END,
    MARKER,
    OWN_FILES,
    Marker,
    NamedSize,
    check_log_files,
    digest_of,
    end_of_log,
    find_beside,
    find_files,
    find_marker,
    is_known_name,
    read_lost_end,
    remove_tree,
    settle_lost_end,
    unpack_lost_end,
    unpack_marker,
    write_lost_end,
    write_marker,
)
from storage.log.epochs import EPOCH_SEEN
from tests.sim.disk import SimulatedDisk
from tests.support.snapshot_world import begin_world, place_on

SEGMENT = "log/00000000000000000000.log"


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("checkpoint", True),
        ("epochs", True),
        (SEGMENT, True),
        ("log/00000000000000000000.index", True),
        ("queues/00000100/000000000000.cq", True),
        ("sequences/000000000000.seq", True),
        ("sequences/tail", True),
        ("tombstones/0000000001.tomb", True),
        ("wheel/0000000001-0000000002.run", True),
        ("wheel/0000000001.dlog", True),
        ("flushed.mark", False),
        ("high_watermark", False),
        ("epoch_seen", False),
        ("lost_end", False),
        ("complete", False),
        ("LOCK", False),
        ("", False),
        (".", False),
        ("..", False),
        ("../shard-0/checkpoint", False),
        ("/checkpoint", False),
        ("checkpoint\n", False),
        ("checkpoint\0", False),
        ("log/../checkpoint", False),
        ("log//00000000000000000000.log", False),
        ("log/0000000000000000000.log", False),
        ("log/0000000000000000000\u0661.log", False),
        ("queues/0000010G/000000000000.cq", False),
        ("queues/000000000000.cq", False),
        ("wheel/0000000001.run", False),
        ("other/0000000001.run", False),
        ("checkpoint.tmp", False),
    ],
)
def test_name_is_known_when_a_shard_has_such_files(name: str, is_known: bool) -> None:
    assert is_known_name(name) == is_known


def test_every_file_of_a_shard_is_known_or_its_own() -> None:
    world = begin_world()
    world.publish([world.now_ms, *[world.now_ms + 10_000_000] * 200])
    world.commit()
    world.cancel([3])
    world.commit()
    world.save()
    names = {name for name, _ in find_files(world.place)} - {"flushed.mark"}
    assert [name for name in names if not is_known_name(name)] == []
    folders = {name.split("/")[0] for name in names}
    assert folders == {"checkpoint", "epochs", "log", "queues", "sequences", "tombstones", "wheel"}


def test_own_files_are_those_that_others_write() -> None:
    assert OWN_FILES == (EPOCH_SEEN, WATERMARK, LOST_END)
    assert not any(is_known_name(name) for name in OWN_FILES)


def test_digest_when_order_differs() -> None:
    files = [NamedSize("a", 1), NamedSize("b", 2)]
    assert digest_of(files) == digest_of(files[::-1])
    assert digest_of(files) != digest_of([NamedSize("a", 2), NamedSize("b", 1)])
    assert digest_of(files) != digest_of(files[:1])


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("shard-0/log")
    disk.make_dir("shard-0/queues/00000100")
    for name in (SEGMENT, "epochs", "queues/00000100/000000000000.cq"):
        disk.open(f"shard-0/{name}", create=True).pwrite([b"abc"], 0)
    return disk


def write(disk: SimulatedDisk) -> Marker:
    place = place_on(disk)
    files = find_files(place)
    marker = Marker(5, 0, 9, 3, len(files), digest_of(files))
    write_marker(place, marker)
    return marker


def test_marker_when_all_is_there(disk: SimulatedDisk) -> None:
    assert find_marker(place_on(disk)) is None
    marker = write(disk)
    assert marker.file_count == 3
    assert find_marker(place_on(disk)) == marker
    for name in OWN_FILES:
        disk.open(f"shard-0/{name}", create=True)
    assert find_marker(place_on(disk)) == marker


@pytest.mark.parametrize("change", ["longer", "gone", "more", "damaged", "in_its_place"])
def test_marker_when_something_else_is_there(disk: SimulatedDisk, change: str) -> None:
    write(disk)
    if change == "longer":
        disk.open("shard-0/epochs").pwrite([b"d"], 3)
    elif change == "gone":
        disk.remove("shard-0/queues/00000100/000000000000.cq")
    elif change == "more":
        disk.open("shard-0/queues/00000100/000000000001.cq", create=True)
    elif change == "damaged":
        disk.flip_bit(f"shard-0/{MARKER}", 90)
    else:
        write_lost_end(place_on(disk), 7)
        disk.rename(f"shard-0/{LOST_END}", f"shard-0/{MARKER}")
    assert find_marker(place_on(disk)) is None


def test_marker_and_lost_end_when_of_another_length() -> None:
    with pytest.raises(errors.CorruptFile):
        unpack_marker(b"abc", "f")
    with pytest.raises(errors.CorruptFile):
        unpack_lost_end(b"abc", "f")


def test_marker_when_of_another_cluster(disk: SimulatedDisk) -> None:
    write(disk)
    place = place_on(disk)
    foreign = type(place)(disk, "shard-0", place.identity._replace(cluster_id=bytes(16)))
    with pytest.raises(errors.ForeignDirectory):
        find_marker(foreign)


def test_remove_tree_when_there_are_folders_in_folders(disk: SimulatedDisk) -> None:
    remove_tree(disk, "shard-0")
    remove_tree(disk, "shard-0")
    assert disk.list("") == []


def test_find_beside_takes_numbers_only(disk: SimulatedDisk) -> None:
    for name in (
        "shard-0.damaged-2",
        "shard-0.damaged-10",
        "shard-0.damaged-x",
        "shard-0.damaged-",
    ):
        disk.make_dir(name)
    disk.make_dir("shard-00.damaged-3")
    found = find_beside(place_on(disk), ".damaged-")
    assert found == [(2, "shard-0.damaged-2"), (10, "shard-0.damaged-10")]


def test_end_of_log_when_marks_and_files_differ() -> None:
    world = begin_world()
    world.publish([world.now_ms + 10_000] * 20)
    world.commit()
    end = world.shard.log.end_offset
    assert end_of_log(world.place) == end
    last = world.shard.log.segments()[-1]
    file = world.disk.open(last.path)
    file.truncate(file.size() - 8)
    assert end_of_log(world.place) == end, "by the mark"
    file.truncate(file.size() + 100)
    assert end_of_log(world.place) == end + 92
    assert end_of_log(place_on(SimulatedDisk())) == 0


def test_lost_end_is_settled_when_the_log_is_as_long_again(disk: SimulatedDisk) -> None:
    place = place_on(disk)
    assert settle_lost_end(place, 0) == 0
    write_lost_end(place, 100)
    assert read_lost_end(place) == 100
    assert settle_lost_end(place, 99) == 100
    assert settle_lost_end(place, 100) == 0
    assert read_lost_end(place) == 0


LOG_FILES = [
    ([], 0, 0),
    ([(SEGMENT, 164)], 0, 100),
    ([(SEGMENT, 164), ("log/00000000000000000100.log", 64)], 0, 100),
    ([("log/00000000000000000100.log", 74), (SEGMENT, 164)], 0, 110),
    ([("log/00000000000000000100.log", 74)], 100, 110),
    ([(SEGMENT, 164), ("log/00000000000000000000.index", 5)], 0, 100),
    ([], 100, None),
    ([(SEGMENT, 63)], 0, None),
    ([(SEGMENT, 164)], 100, None),
    ([(SEGMENT, 164), ("log/00000000000000000101.log", 64)], 0, None),
    ([(SEGMENT, 164), ("log/00000000000000000099.log", 64)], 0, None),
    ([(SEGMENT, 164), ("log/00000000000000000100.index", 64)], 0, None),
]


@pytest.mark.parametrize(("files", "start", "end"), LOG_FILES)
def test_log_files_when_they_follow_one_another_or_not(
    files: list[tuple[str, int]], start: int, end: int | None
) -> None:
    named = [NamedSize("checkpoint", 5), *(NamedSize(*one) for one in files)]
    if end is None:
        with pytest.raises(errors.PeerRefused):
            check_log_files(named, start)
    else:
        assert check_log_files(named, start) == end
