"""Listings and bulk cancels of a shard, against the naive reading of its log.

Between two slices messages come, fall due, are cancelled and given back, and jobs are done; between
two pages the power may fail, too. What stays pending all the time and matches comes once, with its
own bytes; nothing else that never was pending, or that does not match.
"""

from random import Random
from typing import Final
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from chaos.log_parts.entries import Entry
from filters.compile import compile_filter
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import decode
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.types import DUE_MS_MAX, SEQUENCE_MAX, Key
from node.contracts.pending_page import ids_of
from node.shard.dispatcher import DispatchConfig
from node.shard.pending_scan import Matches, PendingRange, PendingScan
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import TOPIC, body_of, tags_of
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

FILTERS: Final = ("*", "even", "third && !even", "rare || third", "!third", "rare && !rare")


class Life:
    """What happens to the shard meanwhile."""

    def __init__(self, rng: Random) -> None:
        config = ShardConfig(
            log=LogConfig(segment_bytes=rng.choice((2_048, 1 << 16)), index_interval_bytes=256),
            wheel=WheelConfig(
                load_units=8,
                memtable_units_max=rng.choice((6, 40)),
                merge_run_count=2,
                hour_level_days=rng.choice((0, 1)),
            ),
            dispatch=DispatchConfig(units_max=16),
        )
        self.world = ShardWorld(
            SimulatedDisk(),
            config,
            seed=rng.randrange(1 << 30),
            wanted=FilterExpression.everything(),
        )
        assert self.world.is_tagged

    def delay(self, rng: Random) -> int:
        far = rng.choice((0, 0, 0, HOUR_MS, DAY_MS, 3 * DAY_MS))
        return far + rng.choice((0, 1, 1_000, rng.randrange(4_000), rng.randrange(HOUR_MS)))

    def publish(self, rng: Random) -> None:
        world, same_ms = self.world, self.delay(rng)
        hot = rng.random() < 0.3
        delays = [same_ms if hot else self.delay(rng) for _ in range(rng.randint(1, 25))]
        world.publish([world.now_ms + delay for delay in delays])
        world.commit()

    def cancel(self, rng: Random) -> None:
        end = self.world.mastership.next_sequence
        if end:
            self.world.cancel([rng.randrange(end) for _ in range(rng.randint(1, 6))])
            self.world.commit()

    def advance(self, rng: Random) -> None:
        self.world.advance(self.delay(rng))
        self.world.commit()

    def give_back(self, rng: Random) -> None:
        delivery = self.world.receive(rng.randint(1, 9))
        if delivery is not None:
            self.world.nack(delivery, self.delay(rng))
            self.world.commit()

    def begin_job(self, rng: Random) -> None:
        self.world.begin_job(save=rng.random() < 0.5)

    def end_job(self, rng: Random) -> None:
        self.world.end_job()
        if rng.random() < 0.5:
            self.world.remove()

    def save(self, rng: Random) -> None:
        self.world.save()
        self.world.remove()

    def restart(self, rng: Random) -> None:
        rng.choice((self.world.crash, self.world.kill, self.world.restart))()

    def live(self, rng: Random, steps: int) -> None:
        """So many things happen, none of which ends the process."""
        can = (self.publish, self.publish, self.cancel, self.give_back, self.save, self.save)
        for _ in range(steps):
            rng.choice((*can, self.begin_job, self.end_job, self.advance))(rng)


class Listing:
    """A listing or a bulk cancel in pages, of which each goes on where the last one ended."""

    def __init__(self, rng: Random, world: ShardWorld) -> None:
        self.world = world
        self.wanted = FilterExpression.tags(rng.choice(FILTERS))
        low_ms = rng.choice((0, 0, world.now_ms + rng.choice((1_000, HOUR_MS, DAY_MS))))
        high_ms = rng.choice((DUE_MS_MAX, DUE_MS_MAX, low_ms + rng.randrange(DAY_MS)))
        self.after, self.to = Key(low_ms - 1, SEQUENCE_MAX), Key(high_ms, SEQUENCE_MAX)
        self.low = self.after
        self.end_sequence = rng.choice((SEQUENCE_MAX, world.shard.views.next_sequence))
        self.with_metas = rng.random() < 0.6
        self.found: list[int] = []

    def pending(self) -> set[int]:
        """What the model says is pending, and matches, now."""
        return {entry.sequence for entry in self.world.model.pending if self.is_wanted(entry)}

    def is_wanted(self, entry: Entry) -> bool:
        return (
            entry.attempt == 1
            and entry.topic_queue >> 8 == TOPIC
            and entry.sequence < self.end_sequence
            and self.low < (entry.due_ms, entry.sequence) <= self.to
            and matches(parse(self.wanted), tags_of(entry.due_ms), ())
        )

    def begin_page(self) -> PendingScan:
        shard = self.world.shard
        return PendingScan(
            shard.views,
            shard.bodies,
            PendingRange(TOPIC, self.after, self.to, self.end_sequence),
            compile_filter(self.wanted, DEFAULT_SPEC),
            with_metas=self.with_metas,
            with_bodies=self.with_metas,
        )

    def take(self, found: Matches) -> None:
        """Pending at this moment, matching, and with their own bytes."""
        sequences = found.units["sequence"].tolist()
        assert set(sequences) <= self.pending()
        dues = found.units["due_ms"].tolist()
        assert sorted(zip(dues, sequences, strict=True)) == list(zip(dues, sequences, strict=True))
        if self.with_metas:
            blobs = [(decode(blob.meta).tags, blob.body) for blob in found.blobs]
            assert blobs == [(tags_of(due_ms), body_of(due_ms)) for due_ms in dues]
        self.found += sequences


@given(seed=st.integers(0, 1 << 32), is_cancel=st.booleans())
def test_pages_when_the_shard_lives_on(seed: int, is_cancel: bool) -> None:
    rng = Random(seed)
    sizes = {"BLOCK_UNITS": rng.choice((2, 8, 256))}
    reads = rng.choice((1, 3, 512))
    with (
        small_sizes(),
        mock.patch.multiple("timewheel.range_scan", **sizes),
        mock.patch.multiple("node.shard.pending_scan", READS_MOST=reads, _UNITS_FIRST=reads),
    ):
        life = Life(rng)
        life.publish(rng)
        life.live(rng, rng.randint(0, 12))
        world = life.world
        listing = Listing(rng, world)
        always = listing.pending()
        scanned = most = 0
        is_done = False
        while not is_done:
            scan = listing.begin_page()
            for _ in range(rng.randint(2, 12)):
                if scan.is_done:
                    break
                found = scan.step(rng.choice((1, 2, 1_000)))
                listing.take(found)
                if is_cancel and len(found.units):
                    ids = ids_of(0, world.shard.views, found.units)
                    world.mastership.cancel(ids, world.now_ms, None)
                    world.commit()
                elif rng.random() < 0.3:
                    life.live(rng, 1)
                always &= listing.pending() | set(listing.found)
            assert scan.after >= listing.after
            listing.after, is_done = scan.after, scan.is_done
            scanned, most = scanned + scan.scanned_count, world.model.next_sequence
            if rng.random() < 0.3:
                life.restart(rng)
        assert len(set(listing.found)) == len(listing.found), "one comes twice"
        assert always <= set(listing.found), "one is missing"
        assert len(listing.found) <= scanned <= most
        if is_cancel:
            assert set(listing.found) <= world.model.cancelled
        life.live(rng, 3)
        world.check_promises()
