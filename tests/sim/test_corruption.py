"""Damage on a shard's disk: found, named, never served; mended from the log where that is whole.

I8: corruption is detected and never served; only a torn tail is cut.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hourwheel import errors
from hourwheel.types import Offset, TopicQueue
from node.delivery.deliveries import Corrupt, Delivery, ReceiveLimits
from node.delivery.resolve_rows import dead_rows
from node.shard.group_queue import GroupQueue
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from storage.files.disk import Disk
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import GROUP, LETTERS, TOPIC, body_of, split
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=4_000, index_interval_bytes=512),
    wheel=WheelConfig(memtable_units_max=10_000, hour_level_days=2, merge_run_count=9),
)
FLIPS = 60 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 4
SHARD = "shard-0"
ACKED = {0, 2, 4}
"""What `lived` acknowledges: the first of the first queue."""


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def lived(config: ShardConfig = CONFIG) -> ShardWorld:
    """A world with something of everything: released, pending for hours and days, cancelled."""
    world = ShardWorld(SimulatedDisk(), config)
    now = world.now_ms
    world.publish([now - 1] * 10 + [now + n for n in range(1, 31)], producer_id=5)
    world.commit()
    world.publish([now + HOUR_MS + n * 40_000 for n in range(40)])
    world.publish([now + 3 * DAY_MS + n for n in range(20)])
    world.publish([now + 2 * HOUR_MS] * 70)
    world.commit()
    world.cancel([60, 75])
    world.commit()
    world.advance(60)
    world.save()
    delivery = world.receive(3)
    assert delivery is not None
    world.ack(delivery)
    world.publish([now + 50_000] * 3)
    world.commit()
    return world


def files_of(disk: Disk, path: str) -> list[str]:
    """All files under a folder."""
    found: list[str] = []
    for name in disk.list(path):
        below = f"{path}/{name}"
        try:
            found += files_of(disk, below)
        except FileNotFoundError:
            found.append(below)
    return found


def _view_files() -> list[str]:
    with small_sizes(16):
        found = files_of(lived().disk, SHARD)
    return sorted(path for path in found if not path.endswith((".log", "/epochs")))


VIEW_FILES = _view_files()
NO_VIEWS = (".index", ".mark", ".spare")
"""Files that are made again without a word; nothing of the views is in them."""


def drain(world: ShardWorld) -> tuple[list[Delivery], list[Corrupt]]:
    """Receive everything visible; bury what is damaged, as the engine does."""
    delivered: list[Delivery] = []
    corrupt: list[Corrupt] = []
    drain_into(world, delivered, corrupt)
    return delivered, corrupt


def drain_into(world: ShardWorld, delivered: list[Delivery], corrupt: list[Corrupt]) -> None:
    receiver = world.mastership.receiver
    while True:
        delivery = receiver.receive(
            GROUP, TOPIC, ReceiveLimits(8, 1 << 20, invisible_ms=1_000, now_ms=world.now_ms)
        )
        found, receiver.corrupt = receiver.corrupt, []
        corrupt += found
        for one in found:
            rows = dead_rows(one.group_queue, [(one.position, one.position + 1)])
            world.resolve(rows)
        if delivery is not None:
            delivered.append(delivery)
            world.ack(delivery)
        world.commit()
        if delivery is None and not found:
            return


def check_right(world: ShardWorld, delivered: list[Delivery]) -> set[int]:
    """Each message that came is what was published; their sequences."""
    sequences: list[int] = []
    for delivery in delivered:
        for unit, blob in split(delivery):
            assert blob == body_of(world.model.messages[int(unit["sequence"])])
            sequences.append(int(unit["sequence"]))
    assert len(sequences) == len(set(sequences))
    return set(sequences)


def live_on(world: ShardWorld) -> tuple[list[Delivery], list[Corrupt]]:
    """Open, and deliver all; where a damaged view turns up, start again as a node would."""
    delivered: list[Delivery] = []
    corrupt: list[Corrupt] = []
    for _ in range(2):
        try:
            world.kill()
            world.advance(4 * DAY_MS)
            drain_into(world, delivered, corrupt)
        except errors.CorruptFile:
            world.maintenance.distrust()
        else:
            return delivered, corrupt
    raise AssertionError("rebuilding the views did not help")


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_start_when_a_bit_flipped_in_the_durable_log_names_the_place(share: float) -> None:
    world = ShardWorld(SimulatedDisk(), CONFIG)
    for number in range(40):
        world.publish([world.now_ms + DAY_MS + number] * 3)
        world.commit()
    segments = world.shard.log.segments()
    assert len(segments) > 2
    offset = int(share * world.shard.log.flushed_end_offset)
    segment = next(one for one in segments if one.start_offset <= offset < one.end_offset)
    world.disk.flip_bit(segment.path, offset - segment.start_offset + 64, 3)
    for _ in range(2):  # and again: nothing was cut
        with pytest.raises(errors.CorruptLog) as raised:
            world.kill()
        assert raised.value.params["file"] == segment.path
        assert offset - 500 <= int(raised.value.params["offset"]) <= offset
        assert segment.path in raised.value.message


@pytest.mark.parametrize("kept_bytes", [0, 1, 95, 96, 200])
def test_start_when_the_tail_is_torn_cuts_it_and_says_so(kept_bytes: int) -> None:
    world = lived()
    end = world.shard.log.flushed_end_offset
    world.publish([world.now_ms + 5] * 9)
    world.take_write()
    assert world.write is not None
    world.write.run(False)
    last = world.write.parts[-1]
    file = world.disk.open(last.segment.path)
    file.truncate(last.position + kept_bytes)
    world.kill()
    report = world.shard.log.recovery_report
    assert report is not None
    assert report.end_offset == end
    if kept_bytes:
        assert report.cut is not None
        assert (report.cut.file, report.cut.bytes) == (last.segment.path, kept_bytes)
    else:
        assert report.cut is None
    world.check_promises()


# -- view files -----------------------------------------------------------------------------------


def test_view_files_are_of_every_kind() -> None:
    ends = {path.rpartition(".")[2] for path in VIEW_FILES}
    assert ends == {
        "run",
        "dlog",
        "cq",
        "seq",
        "tomb",
        "index",
        "mark",
        "spare",
        f"{SHARD}/checkpoint",
    } | {f"{SHARD}/sequences/tail"}


@pytest.mark.parametrize("path", VIEW_FILES)
def test_start_when_a_view_file_is_missing_rebuilds_it(path: str) -> None:
    world = lived()
    digest = world.shard.views.digest()
    world.disk.remove(path)
    if "checkpoint" in path:
        world.checkpoints = 0
    world.check_opened = lambda: None  # type: ignore[method-assign]
    world.kill()
    is_view = not path.endswith(NO_VIEWS)
    assert bool(world.opened.rebuilt_because) == is_view
    if is_view and "checkpoint" not in path:
        assert path in world.opened.rebuilt_because
    world.model.follow(world.shard.log, world.shard.views.applied_offset)
    world.check_promises()
    world.check_rebuild()
    assert digest
    delivered, corrupt = live_on(world)
    assert not corrupt
    assert check_right(world, delivered) == delivered_later(world)


def delivered_later(world: ShardWorld) -> set[int]:
    """What is neither cancelled nor acknowledged by `lived`."""
    return set(world.model.messages) - world.model.cancelled - ACKED


@pytest.mark.parametrize("path", VIEW_FILES)
@pytest.mark.parametrize("flip", range(FLIPS))
def test_I8_a_bit_flipped_in_a_view_file_is_never_served(path: str, flip: int) -> None:  # noqa: N802
    world = lived()
    world.check_opened = lambda: None  # type: ignore[method-assign]
    size = world.disk.open(path).size()
    position = world.random.randrange(size * flip // FLIPS, max(size * (flip + 1) // FLIPS, 1))
    world.disk.flip_bit(path, position, world.random.randrange(8))
    delivered, corrupt = live_on(world)
    for one in corrupt:
        assert one.error.params["file"] == path
    world.model.follow(world.shard.log, world.shard.views.applied_offset)
    lost = {
        world.model.queues[one.group_queue.topic_queue][one.position].sequence for one in corrupt
    }
    assert check_right(world, delivered) == delivered_later(world) - lost
    assert lost == set() or path.endswith(".dlog")
    letters = world.model.queues.get(LETTERS << 8, [])
    assert {entry.sequence for entry in letters} == lost


@pytest.mark.parametrize("path", [path for path in VIEW_FILES if not path.endswith(NO_VIEWS)])
def test_start_when_a_view_is_missing_and_the_log_was_trimmed_says_so(path: str) -> None:
    world = lived(replace(CONFIG, retention=RetentionConfig(retention_ms=HOUR_MS)))
    world.advance(20_000)
    while world.shard.log.start_offset == 0:
        world.publish([world.now_ms + 9 * DAY_MS] * 30)
        world.commit()
        world.advance(2 * HOUR_MS)
        world.mastership.trim(world.now_ms - HOUR_MS, world.now_ms)
        world.commit()
        world.save()
        world.remove()
    world.publish([world.now_ms + HOUR_MS])
    world.commit()
    if not world.disk.exists(path):
        path = next(one for one in files_of(world.disk, SHARD) if one[-3:] == path[-3:])
    world.disk.remove(path)
    if path.endswith(".dlog"):  # only its messages are lost, and only when they are due
        world.kill()
        world.check_promises()
        return
    before = {name: world.disk.open(name).size() for name in files_of(world.disk, SHARD)}
    for _ in range(2):
        with pytest.raises(errors.CorruptFile, match="cannot be rebuilt") as raised:
            world.kill()
        assert raised.value.params["file"] == path
        assert path in raised.value.message or path.endswith("checkpoint")
    assert {name: world.disk.open(name).size() for name in before} == before


# -- bodies ---------------------------------------------------------------------------------------


def place_of(world: ShardWorld, sequence: int, queue: int) -> tuple[str, int]:
    """(file, byte) of the body of a released message."""
    entries = world.model.queues[queue]
    position = next(at for at, one in enumerate(entries) if one.sequence == sequence)
    unit = world.shard.views.queues.get(TopicQueue(queue)).read(position, 1)[0]
    if unit["dlog_id"]:
        return f"{SHARD}/wheel/{int(unit['dlog_id']):010}.dlog", int(unit["position"])
    return world.shard.log.locate(Offset(int(unit["position"])))


@pytest.mark.parametrize("sequence", [5, 42, 90])
def test_message_when_its_bytes_are_damaged_becomes_a_dead_letter(sequence: int) -> None:
    """In the log (5: released at once), and in delay logs of the hours and the days."""
    world = lived()
    world.restart()
    world.advance(4 * DAY_MS)
    queue = next(
        number
        for number, entries in world.model.queues.items()
        if sequence in {one.sequence for one in entries}
    )
    file, at = place_of(world, sequence, queue)
    assert file.endswith(".log" if sequence == 5 else ".dlog")
    world.disk.flip_bit(file, at + 3)
    delivered, corrupt = drain(world)
    assert [one.group_queue for one in corrupt] == [GroupQueue.of(GROUP, queue)]
    error = corrupt[0].error
    assert error.params["file"] == file
    assert file in error.message
    assert check_right(world, delivered) == delivered_later(world) - {sequence}
    assert [one.sequence for one in world.model.queues[LETTERS << 8]] == [sequence]
    world.check_promises()
    world.restart()
    assert drain(world) == ([], [])


def test_message_when_it_was_lost_in_a_log_that_is_deleted_is_still_buried() -> None:
    """Damaged when its retry was flushed, so its bytes were not taken along; then trimmed away."""
    world = ShardWorld(
        SimulatedDisk(), replace(CONFIG, retention=RetentionConfig(retention_ms=HOUR_MS))
    )
    world.publish([world.now_ms - 1 - number for number in range(40)])
    world.commit()
    world.save()
    first, other = world.receive(1), world.receive(1)
    assert first is not None
    assert other is not None
    lost, kept = int(first.units["sequence"][0]), int(other.units["sequence"][0])
    file, at = place_of(world, lost, first.lease.group_queue.topic_queue)
    world.disk.flip_bit(file, at)
    world.nack(first, 9 * DAY_MS)
    world.nack(other, 9 * DAY_MS)
    world.commit()
    world.save()
    while world.disk.exists(file):
        world.publish([world.now_ms - 1] * 32)
        world.commit()
        world.advance(2 * HOUR_MS)
        world.mastership.trim(world.now_ms, world.now_ms)
        world.commit()
        world.save()
        world.remove()
    world.advance(10 * DAY_MS)
    delivered, corrupt = drain(world)
    assert kept in {int(unit["sequence"]) for one in delivered for unit in one.units}
    assert [one.error.params["file"] for one in corrupt] == [f"{SHARD}/log"]
    assert [one.sequence for one in world.model.queues[LETTERS << 8]] == [lost]
