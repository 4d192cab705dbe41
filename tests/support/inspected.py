"""A data directory to be looked into: a shard that lived for two epochs, as bytes to be damaged.

Its image is made once, on a simulated disk; each test gets its own copy of it to work on.
"""

from functools import cache
from typing import Final

from node.shard.node_meta import NODE_META
from node.shard.recovery import ShardConfig
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.inspection import inspect
from node.tools.inspect.report import Report, Row
from node.tools.inspect.single_file import InspectOptions
from storage.files import atomic_file
from storage.files.disk import Disk, parent_of
from storage.files.file_header import FileType, pack_file_header
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import IDENTITY, START_MS, ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

Image = dict[str, bytes]
"""Path -> content of all files."""

SHARD: Final = "shard-0"
HOUR: Final = START_MS // HOUR_MS + 2
"""An hour whose slots are filled by several runs."""
_MESSAGES: Final = 48
"""Published in each round."""
_CONFIG: Final = ShardConfig(
    log=LogConfig(segment_bytes=8_192, index_interval_bytes=1_024),
    wheel=WheelConfig(merge_run_count=3),
)


@cache
def _made() -> tuple[tuple[str, bytes], ...]:
    disk = SimulatedDisk()
    atomic_file.write(disk, NODE_META, pack_file_header(FileType.NODE, IDENTITY), b"node-1")
    disk.open("LOCK", create=True).pwrite([b"4711\n"], 0)
    with small_sizes():
        world = ShardWorld(disk, _CONFIG)
        for round_ in range(6):
            _live(world, round_)
            world.save()
            if round_ == 2:
                while world.work():
                    pass
                world.restart()
        world.close()
    return tuple(sorted(_read(disk, "").items()))


def _live(world: ShardWorld, round_: int) -> None:
    """Messages for now, for the same seconds of later hours, and for later days; and their use."""
    first = round_ * _MESSAGES
    now_ms = world.now_ms
    world.publish([now_ms + 5 * number for number in range(20)])
    world.publish([HOUR * HOUR_MS + 1_000 * number + round_ for number in range(12)])
    world.publish([START_MS + hour * HOUR_MS + round_ for hour in range(3, 9)])
    world.publish([START_MS + day * DAY_MS + round_ for day in range(3, 43, 4)])
    world.commit()
    world.cancel([first + 21, first + 33, first + 40])
    world.commit()
    world.advance(200)
    delivery = world.receive(8)
    assert delivery is not None
    world.ack(delivery, 0, 5)
    world.nack(delivery, HOUR_MS, 5)
    world.commit()


def _read(disk: Disk, folder: str) -> Image:
    found: Image = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}".removeprefix("/")
        try:
            file = disk.open(path)
        except FileNotFoundError:
            found |= _read(disk, path)
        else:
            found[path] = file.pread(file.size(), 0)
    return found


def made_image() -> Image:
    """A copy of the directory, to be changed."""
    return dict(_made())


def disk_of(image: Image) -> SimulatedDisk:
    """A disk with this content."""
    disk = SimulatedDisk()
    for path, content in image.items():
        disk.make_dir(parent_of(path))
        disk.open(path, create=True).pwrite([content], 0)
    return disk


def image_of(disk: Disk) -> Image:
    """All files of a disk."""
    return _read(disk, "")


def files_of(image: Image) -> ShardFiles:
    """The shard of an image."""
    return ShardFiles(disk_of(image), SHARD, IDENTITY.cluster_id)


def look(image: Image, path: str = "", **asked: object) -> Report:
    """Inspect an image."""
    is_folder = path not in image
    return inspect(disk_of(image), InspectOptions(path=path, is_folder=is_folder, **asked))  # type: ignore[arg-type]


def paths(image: Image, part: str, end: str = "") -> list[str]:
    """Paths of the files in a part of the shard."""
    folder = f"{SHARD}/{part}"
    return sorted(path for path in image if path.startswith(folder) and path.endswith(end))


def flipped(image: Image, path: str, position: int, bit: int = 0) -> Image:
    """The image with one bit of a file flipped; positions below 0 count from the end."""
    raw = bytearray(image[path])
    raw[position] ^= 1 << bit
    return {**image, path: bytes(raw)}


def rows(report: Report, title: str) -> list[Row]:
    """The rows of the one table of this title."""
    (found,) = [table.rows for table in report.tables if table.title == title]
    return found


def numbers(found: list[Row], column: str) -> list[int]:
    """A column of numbers."""
    values = [row[column] for row in found]
    assert all(isinstance(value, int) for value in values)
    return [int(value) for value in values if value is not None]
