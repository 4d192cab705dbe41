"""Many small lives of a shard that nothing is wrong with: for an audit that must not cry wolf.

    write_image(live(seed=7, kind="filters"), tmp_path / "node-1")

Each is a deterministic life on a simulated disk (`tests.support.shard_world`): publishes, with
producers that repeat and skip, merged batches, cancels true and forged, receives, retries, dead
letters, TRIM and EXPIRE records, changed filters, background jobs, clean restarts, kills and power
failures.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.record_batch import Outcome
from hourwheel.types import SequenceNumber, TopicId, TopicQueue
from node.shard.job_planner import RetentionConfig
from node.shard.node_meta import NODE_META
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, pack_file_header
from storage.queues.ack_state import IN_PLACE
from tests.sim.disk import SimulatedDisk
from tests.support import snapshot_world
from tests.support.shard_proposals import GROUP, TOPIC, Side
from tests.support.shard_world import IDENTITY, START_MS, ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import HOUR_MS

Image = dict[str, bytes]
"""Path -> content."""
KINDS: Final = (
    *("plain", "filters", "small", "trimmed", "snapshot"),
    *("behind", "deleting", "retained"),
)
_FOR_EVER: Final = RetentionConfig(retention_ms=1 << 50)
_WANTS: Final = (
    FilterExpression.tags("odd"),
    FilterExpression.tags("!odd"),
    FilterExpression.tags("odd || t2"),
)


def live(seed: int, kind: str, steps: int = 40) -> Image:
    """A whole life, stopped in order; what its disk holds then."""
    if kind in {"trimmed", "snapshot"}:
        return _trimmed(seed, is_snapshot=kind == "snapshot")
    config = replace(snapshot_world.CONFIG, retention=_FOR_EVER)
    wanted = _WANTS[0] if kind == "filters" else None
    if kind not in {"small", "retained"}:
        return _Life(ShardWorld(SimulatedDisk(), config, seed=seed, wanted=wanted), kind).run(steps)
    with small_sizes():
        wanted = _WANTS[2] if kind == "small" else None
        return _Life(ShardWorld(SimulatedDisk(), config, seed=seed, wanted=wanted), kind).run(steps)


def write_image(image: Image, directory: Path) -> Path:
    """As a node's data directory."""
    for name, content in image.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def _trimmed(seed: int, *, is_snapshot: bool) -> Image:
    world, rng = snapshot_world.begin_world(seed), Random(seed)
    _age(world, rng)
    disk: Disk = world.disk
    if is_snapshot:
        disk = SimulatedDisk()
        snapshot_world.transfer(world, disk)
        opened = snapshot_world.open_replica(disk)
        snapshot_world.live(world, rng, 4)
        snapshot_world.catch_up(opened.shard, world.shard)
        while opened.shard.apply_some(8):
            pass
        opened.shard.log.close()
    else:
        world.close()
    return image_of(disk)


def _age(world: ShardWorld, rng: Random) -> None:
    """As `snapshot_world.age`, for so long and no longer: what is due late may hold the log."""
    for _ in range(6):
        if world.shard.log.start_offset:
            break
        snapshot_world.live(world, rng, 8)
        while (delivery := world.receive()) is not None:
            world.ack(delivery)
            world.commit()
        world.advance(2 * HOUR_MS)
        world.mastership.trim(world.now_ms - HOUR_MS, world.now_ms)
        world.commit()
        world.save()
        world.save()
    world.save()
    world.remove()


def image_of(disk: Disk) -> Image:
    """What a disk holds, as that of a node which knows its name."""
    node = pack_file_header(FileType.NODE, IDENTITY)
    atomic_file.write(disk, NODE_META, node, b"node-1")
    return _read(disk, "")


def _read(disk: Disk, folder: str) -> Image:
    found: Image = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}".removeprefix("/")
        try:
            found |= _read(disk, path)
        except (NotADirectoryError, FileNotFoundError):
            file = disk.open(path)
            found[path] = file.pread(file.size(), 0)
    return found


class _Life:
    def __init__(self, world: ShardWorld, kind: str) -> None:
        self._world, self._kind, self._rng = world, kind, Random(world.random.random())
        self._sent: dict[int, int] = {}
        self._sides: list[Side] = []
        self._steps: tuple[Callable[[], object], ...] = (
            self._publish,
            self._publish,
            self._publish_as_producer,
            self._publish_merged,
            self._cancel,
            self._consume,
            self._consume,
            self._advance,
            self._advance,
            self._world.work,
            self._trim,
            self._again,
            self._change,
        )
        if kind in {"deleting", "retained"}:
            self._steps += (self._make_side, *3 * (self._use_side,), self._delete, self._reset)
        if kind == "retained":
            self._steps += 2 * (self._retain,)

    def run(self, steps: int) -> Image:
        world = self._world
        if self._kind == "retained":
            self._age(TOPIC, self._rng.choice((60_000, 48 * HOUR_MS)))
        for _ in range(steps):
            self._rng.choice(self._steps)()
            world.commit()
        if self._kind == "behind":
            world.save()
            self._publish()
            self._advance()
            self._consume()
            world.commit()
            world.shard.log.close()
        else:
            world.close()
        return image_of(world.disk)

    def _due(self, count: int) -> list[int]:
        delays = (-5_000, 0, 20, 700, 5_000, HOUR_MS, 30 * HOUR_MS, 60 * 24 * HOUR_MS)
        return [self._world.now_ms + self._rng.choice(delays) for _ in range(count)]

    def _publish(self) -> None:
        self._world.publish(self._due(self._rng.randint(1, 14)))

    def _publish_as_producer(self) -> None:
        producer, count = self._rng.randint(1, 3), self._rng.randint(1, 5)
        skew = self._rng.choice((0, 0, 0, -1, -3, 2))
        first = max(0, self._sent.get(producer, 0) + skew)
        self._world.publish(self._due(count), producer_id=producer, producer_sequence=first)
        if skew <= 0:
            self._sent[producer] = max(self._sent.get(producer, 0), first + count)

    def _publish_merged(self) -> None:
        requests = []
        for producer in self._rng.sample([0, 1, 2, 0, 3, 3], 4):
            skew = self._rng.choice((0, 0, -1))
            first = max(0, self._sent.get(producer, 0) + skew) if producer else 0
            requests.append((producer, first, self._due(self._rng.randint(1, 3))))
            self._sent[producer] = first + len(requests[-1][2])
        self._world.publish_merged(requests)

    def _cancel(self) -> None:
        end = self._world.mastership.next_sequence + 1
        chosen = [self._rng.randrange(end) for _ in range(5)]
        forged = self._rng.choice(({}, {}, {"due_shift_ms": 1}, {"epoch_shift": 1}))
        self._world.cancel([*chosen, chosen[0]], **forged)

    def _consume(self) -> None:
        world, rng = self._world, self._rng
        for _ in range(rng.randint(1, 3)):
            delivery = world.receive(rng.randint(1, 20))
            if delivery is None:
                return
            low = rng.randint(0, delivery.lease.count - 1)
            act = rng.choice((world.ack, world.ack, world.bury, None))
            if act is not None:
                act(delivery, low)
            elif rng.random() < 0.7:
                world.nack(delivery, rng.choice((0, 500, HOUR_MS)), 0, low + 1)
            world.commit()

    def _advance(self) -> None:
        self._world.commit()
        self._world.advance(self._rng.choice((5, 800, 6_000, HOUR_MS // 2, 26 * HOUR_MS)))

    def _trim(self) -> None:
        world = self._world
        what = self._rng.choice((world.mastership.trim, world.mastership.expire_producers))
        what(world.now_ms - self._rng.choice((HOUR_MS, 24 * HOUR_MS)), world.now_ms)
        floor = self._rng.randint(0, world.mastership.next_sequence)
        world.mastership.trim_sequences(SequenceNumber(floor), world.now_ms)

    def _retain(self) -> None:
        """For longer than TRIM records let most topics have, for less, or as they say."""
        topics = [TOPIC, *(side.topic for side in self._sides)]
        times_ms = (0, 60_000, HOUR_MS // 2, 48 * HOUR_MS)
        self._age(self._rng.choice(topics), self._rng.choice(times_ms))

    def _age(self, topic: int, retention_ms: int) -> None:
        """More is released to it than a file of its queue holds, and some time goes by."""
        world = self._world
        world.retain(TopicId(topic), retention_ms)
        world.publish([world.now_ms] * self._rng.choice((40, 80)), queues=[topic << 8])
        world.commit()
        world.advance(self._rng.choice((HOUR_MS, 26 * HOUR_MS)))
        world.mastership.trim(world.now_ms - 25 * HOUR_MS, world.now_ms)

    def _again(self) -> None:
        world = self._world
        self._rng.choice((world.restart, world.kill, world.crash, world.save, world.save))()

    def _make_side(self) -> None:
        self._sides.append(self._world.make_side(len(self._sides) + 1))

    def _use_side(self) -> None:
        """Also one that is gone."""
        if not self._sides:
            return
        world, rng = self._world, self._rng
        side = rng.choice(self._sides)
        self._world.publish(self._due(rng.randint(1, 6)), queues=[side.queue])
        world.commit()
        queue = rng.choice((side.queue, side.queue, world.retries_of(side) << 8))
        if self._world.shard.views.catalog.find_topic_by_id(TopicId(queue >> 8)) is None:
            return
        end = world.shard.views.queues.get(TopicQueue(queue)).end_position
        if end:
            first = rng.randrange(end)
            outcomes = (
                Outcome.ACK,
                Outcome.RETRY,
                Outcome.DEAD,
                Outcome.SKIPPED,
                *sorted(IN_PLACE),
            )
            outcome = rng.choice(outcomes)
            world.resolve_side(side, queue, first, rng.randint(1, end - first), outcome)
            world.commit()
        self._redrive(side)

    def _reset(self) -> None:
        """A side's group begins anew, further back or further on."""
        if not self._sides:
            return
        side = self._rng.choice(self._sides)
        if self._world.shard.views.catalog.find_topic_by_id(TopicId(side.topic)) is not None:
            end = self._world.shard.views.queues.get(TopicQueue(side.queue)).end_position
            self._world.reset_side(side, self._rng.randint(0, end))
            self._world.commit()

    def _redrive(self, side: Side) -> None:
        """Some of the dead letters that there are; what was re-driven before is left."""
        world, rng = self._world, self._rng
        if world.shard.views.catalog.find_topic_by_id(TopicId(side.letters)) is not None:
            end = world.shard.views.queues.get(TopicQueue(side.letters << 8)).end_position
            if end:
                first = rng.randrange(end)
                count = rng.randint(1, end - first)
                world.resolve_side(side, side.letters << 8, first, count, Outcome.REDRIVE)

    def _delete(self) -> None:
        if not self._sides:
            return
        side = self._rng.choice(self._sides)
        number = self._rng.choice((side.topic, side.topic, side.retries, side.letters, 0))
        if number:
            self._world.delete_topic(number)
        else:
            self._world.delete_group(side.group)

    def _change(self) -> None:
        world = self._world
        if self._kind in {"filters", "small"}:
            world.change_filter(self._rng.choice(_WANTS))


__all__ = ["GROUP", "KINDS", "START_MS", "TOPIC", "image_of", "live", "write_image"]
