"""I7, I8: whatever is appended, written, cut and deleted, and wherever the power goes in between.

After each power cut or kill and recovery:
- everything that a durable write finished is there, byte for byte;
- after a kill also everything that any write finished;
- the log is a prefix of what was appended, and no damage is seen where there was none.
"""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from storage.log.commit_log import CommitLog, LogConfig
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.log_world import delete_below, flush, open_log, publish, read_all, recovered

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=600)
ACTIONS = ("append", "flush", "flush", "overlap", "full disk", "checkpoint", "truncate", "delete")


@dataclass
class World:
    """One log, and what must be true of it."""

    rng: Random
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    stream: bytes = b""
    """Everything appended, from offset 0 on."""
    borders: list[int] = field(default_factory=lambda: [0])
    """Where batches begin or end, ascending."""
    durable: int = 0
    """Must be there after a power cut."""
    finished: int = 0
    """Must be there after a kill."""
    required: int = 0
    """Must be there after what happened last."""
    applied: int = 0
    """A checkpoint of the views has applied what is below."""

    def append(self, log: CommitLog, count: int | None = None) -> None:
        for _ in range(count or self.rng.randint(1, 6)):
            self.stream += publish(log, self.rng.randbytes(self.rng.randrange(500)))
            self.borders.append(len(self.stream))

    def finish(self, log: CommitLog, *, durable: bool) -> None:
        self.finished = log.flushed_end_offset
        if durable:
            self.durable = self.finished
        assert log.durable_end_offset == self.durable

    def forget_behind(self, end: int) -> None:
        self.stream = self.stream[:end]
        self.borders = [border for border in self.borders if border <= end]

    def flush(self, log: CommitLog) -> None:
        self.append(log)
        durable = self.rng.random() < 0.8
        flush(log, durable=durable)
        self.finish(log, durable=durable)

    def overlap(self, log: CommitLog) -> None:
        """Append while a write is under way, as the node does under load."""
        self.append(log)
        for _ in range(self.rng.randint(1, 4)):
            write = log.take_write()
            assert write is not None
            self.append(log)
            write.run(durable=True)
            log.finish_write(write)
            self.finish(log, durable=True)

    def full_disk(self, log: CommitLog) -> None:
        self.append(log, 20)
        write = log.take_write()
        assert write is not None
        self.append(log)
        self.disk.capacity_bytes = self.disk.used_bytes("") + 4096 * self.rng.randrange(2)
        try:
            write.run(durable=True)
        except errors.DiskFull:
            log.abandon_write(write)
            self.forget_behind(log.end_offset)
        else:
            log.finish_write(write)
            self.finish(log, durable=True)
        finally:
            self.disk.capacity_bytes = 1 << 40

    def checkpoint(self, log: CommitLog) -> None:
        self.applied = self.durable
        for work in log.begin_checkpoint():
            work()

    def truncate(self, log: CommitLog) -> None:
        legal = [border for border in self.borders if border >= log.start_offset]
        offset = self.rng.choice(legal)
        self.durable, self.finished = min(self.durable, offset), min(self.finished, offset)
        self.applied = min(self.applied, offset)
        log.truncate(offset)
        self.forget_behind(log.end_offset)

    def delete(self, log: CommitLog) -> None:
        delete_below(log, self.rng.randint(0, self.applied))

    def act(self, log: CommitLog, action: str) -> None:
        getattr(self, action.replace(" ", "_"))(log)
        log.check()
        assert log.end_offset == len(self.stream)
        assert read_all(log) == self.stream[log.start_offset : log.flushed_end_offset]

    def live(self, log: CommitLog, actions: list[str]) -> None:
        """Act until the power goes; then, if it did not, stop in one of three ways."""
        self.disk.fail_after(self.rng.randint(1, 60), takes_effect=self.rng.random() < 0.5)
        try:
            for action in actions:
                self.act(log, action)
            if self.rng.random() < 0.3:
                log.close()
        except SimulatedCrash:
            self.disk.crash(self.rng)
        else:
            if self.rng.random() < 0.5:
                self.disk.kill()
                self.required = self.finished
                return
            self.disk.crash(self.rng)
        self.required = self.durable

    def recover(self) -> CommitLog:
        """Start again, also where the power goes several times meanwhile."""
        while True:
            self.disk.fail_after(self.rng.randint(1, 12), takes_effect=self.rng.random() < 0.5)
            try:
                log, found = recovered(self.disk, self.applied, CONFIG)
            except SimulatedCrash:
                self.disk.crash(self.rng)
                self.required = self.durable
                continue
            self.disk.fail_after(1 << 40)
            break
        end = self.applied + len(found)
        assert end >= self.required
        assert found == self.stream[self.applied : end]
        assert read_all(log) == self.stream[log.start_offset : end]
        self.forget_behind(end)
        self.durable = self.finished = end
        return log


@given(
    seed=st.integers(0, 1 << 32),
    lives=st.lists(st.lists(st.sampled_from(ACTIONS), max_size=12), min_size=1, max_size=5),
)
def test_I7_I8_log_when_it_crashes_anywhere(seed: int, lives: list[list[str]]) -> None:  # noqa: N802
    world = World(Random(seed))
    log = open_log(world.disk, config=CONFIG)
    for actions in lives:
        world.live(log, actions)
        log = world.recover()


@given(seed=st.integers(0, 1 << 32), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_I8_log_when_a_bit_flips_below_its_durable_end(seed: int, place: float, bit: int) -> None:  # noqa: N802
    world = World(Random(seed))
    log = open_log(world.disk, config=CONFIG)
    for action in ("overlap", "flush", "overlap"):
        world.act(log, action)
    offset = int(place * world.durable)
    path, position = log.locate(offset)
    world.disk.flip_bit(path, position, bit)
    begin = max(border for border in world.borders if border <= offset)
    for use in (lambda: log.read_batch(begin), lambda: recovered(world.disk, 0, CONFIG)):
        try:
            use()
        except errors.CorruptLog as error:
            assert error.params["file"] == path  # noqa: PT017 - both uses are asked alike
            assert error.params["offset"] == str(begin)  # noqa: PT017
            assert path in error.message  # noqa: PT017
        else:
            raise AssertionError("damage was not found")
