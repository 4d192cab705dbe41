"""A shard through random lives, against the naive reading of its log.

Everything that callers, time, background jobs, a full disk and power cuts may do, in any order.
After each step the views are what the log says and the answers were true; after each start nothing
acknowledged is gone. Now and then, and at the end, views, their rebuild from the whole log and
their restart from a checkpoint have one digest.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.record_batch import Outcome
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.formats.transaction_step import Step
from node.shard.dispatcher import DispatchConfig
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.shard_proposals import TOPIC, Side
from tests.support.shard_world import INVISIBLE_MS, ShardWorld
from tests.support.small_sizes import small_sizes
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.wheel import WheelConfig

_delays = st.one_of(
    st.integers(-5, 30),
    st.integers(0, 3_000),
    st.sampled_from([999, 1_000, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS]),
    st.integers(0, 3 * HOUR_MS),
    st.integers(0, 4 * DAY_MS),
)
_few = st.lists(_delays, min_size=1, max_size=12)
_names = st.sampled_from(["orders\na", "orders\nb"])
_index = st.integers(0, 1 << 16)
_keys = st.sampled_from([*(f"3:{at}" for at in range(3)), "50:0", "50:7"])
_ends = st.sampled_from(["commit", "commit", *Step])
_forged = st.sampled_from([0, 0, 0, 0, 8])
_dedup = st.lists(st.integers(0, 11), max_size=4)
_filters = st.builds(
    FilterExpression.tags,
    st.sampled_from(
        ["*", "rare", "even", "third && !even", "rare || third", "!third", "rare && !rare"]
    ),
    check_at_client=st.just(value=False),
)


SEEN_AT_ONCE = 3
"""So many histories are compared after a step, or two more."""


class ShardMachine(RuleBasedStateMachine):
    """Random lives of a shard."""

    @initialize(
        memtable=st.sampled_from([6, 40]),
        merge=st.integers(2, 3),
        units_max=st.sampled_from([3, 64]),
        segment_bytes=st.sampled_from([2_048, 1 << 16]),
        retention_ms=st.sampled_from([1 << 50, 1 << 50, HOUR_MS]),
        seed=st.integers(0, 1 << 32),
        wanted=st.one_of(st.none(), _filters, _filters),
        may_change=st.sampled_from([False, False, True]),
        window=st.sampled_from([8, 65_536]),
    )
    def begin(
        self,
        memtable: int,
        merge: int,
        units_max: int,
        segment_bytes: int,
        retention_ms: int,
        seed: int,
        wanted: FilterExpression | None,
        may_change: bool,
        window: int,
    ) -> None:
        """The first start."""
        self._sizes = ExitStack()
        self._sizes.enter_context(small_sizes())
        for module in ("leases", "receiver"):
            self._sizes.enter_context(
                mock.patch(f"node.delivery.{module}.WINDOW_POSITIONS", window)
            )
        config = ShardConfig(
            log=LogConfig(segment_bytes=segment_bytes, index_interval_bytes=512),
            wheel=WheelConfig(
                near_bytes_max=64 * 48,
                load_units=16,
                memtable_units_max=memtable,
                memtable_span_bytes_max=1 << 20,
                hour_level_days=1,
                merge_run_count=merge,
                job_units_per_slice=8,
            ),
            dispatch=DispatchConfig(units_max=units_max),
            retention=RetentionConfig(retention_ms=retention_ms),
        )
        self.world = ShardWorld(SimulatedDisk(), config, seed=seed, wanted=wanted)
        self.may_change = may_change and wanted is not None
        self.sent: dict[int, int] = {}
        self.sides: list[Side] = []

    def step(self, action: Callable[[], Any]) -> None:
        """Do something; where the power fails in it, start again. Then look at everything."""
        world = self.world
        try:
            action()
        except SimulatedCrash:
            world.crash()
        if world.shard.views.applied_offset == world.model.offset:
            world.check_promises()
            world.check_histories(SEEN_AT_ONCE)

    # -- callers ----------------------------------------------------------------------------------

    @rule(
        delays=_few,
        commit=st.booleans(),
        spec=st.sampled_from([DEFAULT_SPEC.number, 0, 7]),
        dedup=_dedup,
    )
    def publish(self, delays: list[int], commit: bool, spec: int, dedup: list[int]) -> None:
        """Also by producers whose genes nobody can use."""
        due_ms = [self.world.now_ms + delay for delay in delays]
        self.world.publish(due_ms, gene_spec=spec, dedup=dedup)
        if commit:
            self.step(self.world.commit)

    @rule(
        name=_names,
        what=st.sampled_from(["put", "put", "pause", "resume", "delete"]),
        count_max=st.sampled_from([0, 0, 2]),
        is_stale=st.sampled_from([False, False, False, True]),
        commit=st.booleans(),
    )
    def recur(self, name: str, what: str, count_max: int, is_stale: bool, commit: bool) -> None:
        self.world.recur(name, what, count_max=count_max, is_stale=is_stale)
        if commit:
            self.step(self.world.commit)

    @rule(
        names=st.lists(_names, min_size=1, max_size=4),
        delays=st.lists(_delays, min_size=4, max_size=4),
        skew=st.sampled_from([0, 0, 0, -1, 1]),
        commit=st.booleans(),
    )
    def occur(self, names: list[str], delays: list[int], skew: int, commit: bool) -> None:
        """Also where a change of the recurrence, or the same occurrence, is on its way."""
        self.world.occur(names, delays[: len(names)], skew=skew)
        if commit:
            self.step(self.world.commit)

    @rule(delay=_delays, count=st.integers(1, 150))
    def publish_hot(self, delay: int, count: int) -> None:
        self.world.publish([self.world.now_ms + delay] * count)
        self.step(self.world.commit)

    @rule(
        producer=st.integers(1, 3),
        delays=_few,
        skew=st.sampled_from([0, 0, 0, -1, -3, 2]),
        dedup=_dedup,
    )
    def publish_as_producer(
        self, producer: int, delays: list[int], skew: int, dedup: list[int]
    ) -> None:
        first = max(0, self.sent.get(producer, 0) + skew)
        due_ms = [self.world.now_ms + delay for delay in delays]
        self.world.publish(due_ms, producer_id=producer, producer_sequence=first, dedup=dedup)
        self.sent[producer] = max(self.sent.get(producer, 0), first + len(delays))

    @rule(
        delays=_few,
        producers=st.permutations([0, 1, 2, 0, 3]),
        skew=st.integers(-2, 1),
        dedup=_dedup,
    )
    def publish_merged(
        self, delays: list[int], producers: list[int], skew: int, dedup: list[int]
    ) -> None:
        requests = []
        for producer, delay in zip(producers, delays, strict=False):
            first = max(0, self.sent.get(producer, 0) + skew) if producer else 0
            requests.append((producer, first, [self.world.now_ms + delay] * (1 + delay % 3)))
            self.sent[producer] = first + len(requests[-1][2])
        self.world.publish_merged(requests, dedup)

    @rule(chosen=st.lists(_index, min_size=1, max_size=6), forged=st.sampled_from([0, 0, 0, 1, 2]))
    def cancel(self, chosen: list[int], forged: int) -> None:
        end = self.world.mastership.next_sequence + 1
        sequences = [one % end for one in chosen]
        shifts = {"due_shift_ms": forged == 1, "epoch_shift": forged == 2}
        self.world.cancel(sequences + sequences[:1], **shifts)

    @rule(
        chosen=st.lists(st.tuples(_index, _delays), min_size=1, max_size=6),
        twice=st.booleans(),
        forged=st.sampled_from([0, 0, 0, 0, 1, 2]),
    )
    def reschedule(self, chosen: list[tuple[int, int]], twice: bool, forged: int) -> None:
        """Also what was moved before, back to where it was, and twice in one record."""
        world = self.world
        end = world.mastership.next_sequence + 1
        sequences = [one % end for one, _ in chosen]
        due_ms = [max(0, world.now_ms + delay) for _, delay in chosen]
        if twice:
            sequences += sequences[:2]
            due_ms += [world.model.messages.get(one, 0) for one in sequences[:2]]
        due_ms = due_ms[: len(sequences)]
        shifts = {"due_shift_ms": forged == 1, "epoch_shift": forged == 2}
        world.reschedule(sequences, due_ms, **shifts)

    @rule(delays=_few, token=st.integers(1, 12), side=st.booleans())
    def prepare(self, delays: list[int], token: int, side: bool) -> None:
        """Also what was prepared before."""
        due_ms = [self.world.now_ms + delay for delay in delays]
        topic = self.sides[-1].topic if side and self.sides else TOPIC
        self.world.prepare(due_ms, token, topic)

    @rule(
        which=_index, how=st.sampled_from(["commit", *Step]), commit=st.booleans(), forged=_forged
    )
    def transact(self, which: int, how: str | Step, commit: bool, forged: int) -> None:
        """Also what was decided before, and what never was prepared; and two ends at once."""
        world = self.world
        known = [*world.model.deals.known] or [0]
        offset = known[which % len(known)] + forged
        one = world.shard.views.transactions.find(offset)
        queues = None if one is None or one.topic_ids == (TOPIC,) else [one.topic_ids[0] << 8]
        if isinstance(how, Step):
            world.transact([offset, known[0]], how)
        else:
            world.commit_transaction(offset, queues)
        if commit:
            self.step(world.commit)

    # -- consumers --------------------------------------------------------------------------------

    @rule(count=st.integers(1, 20))
    def receive(self, count: int) -> None:
        self.step(lambda: self.world.receive(count))

    @rule(which=_index, low=st.integers(0, 3), part=st.booleans(), how=st.integers(0, 9))
    def resolve(self, which: int, low: int, part: bool, how: int) -> None:
        """Acknowledge or give back, whole or in part, also twice, late or of an earlier boot."""
        world = self.world
        known = [one for one in world.deliveries[-8:] if world.is_known(one)]
        if known:
            delivery = known[-1 - which % len(known)]
            count = delivery.lease.count
            low, high = (min(low, count - 1), count) if part else (0, count)
            if how < 6:
                world.ack(delivery, low, high)
            elif how < 9:
                world.nack(delivery, None if how == 6 else which % 5_000, low, high)
            else:
                world.bury(delivery, low, high)

    @rule(delays=_few, count=st.integers(1, 20), acked=st.integers(0, 2))
    def lose_consumer(self, delays: list[int], count: int, acked: int) -> None:
        """One that takes messages, acknowledges a few and is never heard of again."""
        world = self.world
        world.publish([world.now_ms - abs(delay) for delay in delays])
        self.step(world.commit)
        self.step(lambda: self.take_and_leave(count, acked))
        self.step(lambda: world.advance(INVISIBLE_MS))

    def take_and_leave(self, count: int, acked: int) -> None:
        delivery = self.world.receive(count)
        if delivery is not None and delivery.lease.count > acked > 0:
            self.world.ack(delivery, 1, acked + 1)

    @rule(delays=_few, times=st.integers(1, 2), late_ms=st.integers(0, 50))
    def die_and_come_again(self, delays: list[int], times: int, late_ms: int) -> None:
        """Messages that are rejected, re-driven, and perhaps both once more."""
        world = self.world
        world.publish([world.now_ms - abs(delay) for delay in delays])
        self.step(world.commit)
        for _ in range(times):
            self.step(self.take_and_bury)
            self.step(world.commit)
            world.redrive(0, 1 << 10)
            self.step(world.commit)
            self.step(lambda: world.advance(late_ms))

    def take_and_bury(self) -> None:
        delivery = self.world.receive(20)
        if delivery is not None:
            self.world.bury(delivery)

    @rule(key=_keys, delay=_delays, is_cancel=st.booleans(), commit=st.booleans())
    def change_by_key(self, key: str, delay: int, is_cancel: bool, commit: bool) -> None:
        """As the node does it: the index of keys says which messages a record is to name."""
        world = self.world
        sequences = world.find_by_key(key)
        if sequences and is_cancel:
            world.cancel(sequences)
        elif sequences:
            world.reschedule(sequences, [max(0, world.now_ms + delay)] * len(sequences))
        if commit:
            self.step(world.commit)

    @rule(wanted=_filters)
    def change_filter(self, wanted: FilterExpression) -> None:
        """Also while leases are out."""
        if self.may_change:
            self.world.change_filter(wanted)
            self.step(self.world.commit)

    # -- topics and groups that come and go -------------------------------------------------------

    @rule()
    def make_side(self) -> None:
        self.sides.append(self.world.make_side(len(self.sides) + 1))
        self.step(self.world.commit)

    @rule(which=_index, delays=_few, producer=st.integers(0, 3))
    def publish_to_side(self, which: int, delays: list[int], producer: int) -> None:
        """Also to one that is gone: its messages are no messages."""
        if self.sides:
            queue, sent = self.sides[which % len(self.sides)].queue, self.sent.get(producer, 0)
            due_ms = [self.world.now_ms + delay for delay in delays]
            first = sent if producer else 0
            self.world.publish(
                due_ms, producer_id=producer, producer_sequence=first, queues=[queue]
            )
            self.sent[producer] = first + len(delays)
            self.step(self.world.commit)

    @rule(
        which=_index,
        first=st.integers(0, 8),
        count=st.integers(1, 6),
        outcome=st.sampled_from([one for one in Outcome if one not in {4, 5}]),
    )
    def resolve_side(self, which: int, first: int, count: int, outcome: int) -> None:
        """Of the topic's queue, or of the retries'."""
        if self.sides:
            side = self.sides[which % len(self.sides)]
            queue = self.world.retries_of(side) << 8 if which % 3 == 0 else side.queue
            self.world.resolve_side(side, queue, first, count, outcome)
            self.step(self.world.commit)

    @rule(which=_index, position=st.integers(0, 8), is_stale=st.sampled_from([False] * 4 + [True]))
    def reset_side(self, which: int, position: int, is_stale: bool) -> None:
        """Further back or further on; void where the group reads the topic no more."""
        if self.sides:
            side = self.sides[which % len(self.sides)]
            self.world.reset_side(side, position, is_stale=is_stale)
            self.step(self.world.commit)

    @rule(which=_index, first=st.integers(0, 8), count=st.integers(1, 6))
    def redrive(self, which: int, first: int, count: int) -> None:
        """Dead letters of the group, or of a side's: also such as are none any more."""
        side = self.sides[which % len(self.sides)] if self.sides and which % 2 else None
        if side is None:
            self.world.redrive(first, count)
        else:
            self.world.resolve_side(side, side.letters << 8, first, count, Outcome.REDRIVE)
        self.step(self.world.commit)

    @rule(which=_index, what=st.sampled_from(["topic", "group", "retries", "letters"]))
    def delete_side(self, which: int, what: str) -> None:
        """Twice is void."""
        if self.sides:
            side = self.sides[which % len(self.sides)]
            if what == "group":
                self.world.delete_group(side.group)
            else:
                self.world.delete_topic(getattr(side, what))
            self.step(self.world.commit)

    @rule(
        which=_index,
        is_main=st.booleans(),
        retention_ms=st.sampled_from([0, 1, 500, 2_000, HOUR_MS, 30 * DAY_MS, 1 << 60]),
        count=st.integers(1, 70),
    )
    def retain(self, which: int, is_main: bool, retention_ms: int, count: int) -> None:
        """A topic is retained for a time of its own; void where that is longer than time goes."""
        world = self.world
        side = self.sides[which % len(self.sides)] if self.sides and not is_main else None
        world.retain(TOPIC if side is None else side.topic, retention_ms)
        world.publish([world.now_ms] * count, queues=None if side is None else [side.queue])
        self.step(world.commit)

    # -- time and jobs ----------------------------------------------------------------------------

    @rule(delay=_delays)
    def advance(self, delay: int) -> None:
        self.step(lambda: self.world.advance(max(0, delay)))

    @rule(delay=st.integers(0, 20))
    def propose_due(self, delay: int) -> None:
        self.world.now_ms += delay
        self.step(self.world.propose_due)

    @rule()
    def take_write(self) -> None:
        self.world.take_write()

    @rule()
    def run_write(self) -> None:
        self.step(self.world.run_write)

    @rule(count=st.integers(1, 4))
    def finish_and_apply(self, count: int) -> None:
        self.world.finish_write()
        self.step(lambda: self.world.apply(count))

    @rule()
    def begin_job(self) -> None:
        self.step(self.world.begin_job)

    @rule()
    def end_job(self) -> None:
        self.step(self.world.end_job)

    @rule()
    def save(self) -> None:
        self.step(self.world.save)

    @rule()
    def work(self) -> None:
        self.step(self.work_all)

    def work_all(self) -> None:
        """Run background jobs until none is due (on a full disk they would be due for ever)."""
        for _ in range(10):
            if not self.world.work():
                break

    @rule(delays=_few, step=_delays)
    def age(self, delays: list[int], step: int) -> None:
        """A stretch of life: messages become runs, time passes, runs are merged and cascaded."""
        world = self.world
        for delay in delays:
            world.publish([world.now_ms + delay, world.now_ms + delay // 2])
        self.step(world.commit)
        self.step(world.save)
        self.step(lambda: world.advance(max(0, step)))
        self.step(self.work_all)

    @rule(age_ms=st.integers(0, HOUR_MS))
    def clean_up(self, age_ms: int) -> None:
        """What was released, and producers that were heard of, so long ago are forgotten."""
        world = self.world
        world.mastership.trim(world.now_ms - age_ms, world.now_ms)
        if age_ms % 4 == 0:
            world.mastership.expire_producers(world.now_ms - age_ms, world.now_ms)
        floor = world.mastership.next_sequence * (age_ms % 7) // 6
        world.mastership.trim_sequences(min(floor, world.mastership.next_sequence), world.now_ms)
        self.step(world.commit)

    @rule()
    def remove(self) -> None:
        self.step(self.world.remove)

    # -- what goes wrong --------------------------------------------------------------------------

    @rule(count=st.integers(1, 12), takes_effect=st.booleans())
    def power_fails_soon(self, count: int, takes_effect: bool) -> None:
        self.world.disk.fail_after(count, takes_effect=takes_effect)

    @rule(again=st.integers(0, 20), takes_effect=st.booleans())
    def crash(self, again: int, takes_effect: bool) -> None:
        """Now; and maybe again while the shard is opened."""
        self.world.disk.crash(self.world.random)
        if again > 12:
            self.world.disk.fail_after(again - 12, takes_effect=takes_effect)
        self.step(self.world.open)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        before = self.world.shard.views.digest() if clean else ""
        self.step(self.world.restart if clean else self.world.kill)
        del before

    @rule(blocks=st.integers(0, 30))
    def fill_disk(self, blocks: int) -> None:
        self.world.disk.capacity_bytes = self.world.disk.used_bytes("") + blocks * 4_096

    @rule()
    def make_room(self) -> None:
        self.world.disk.capacity_bytes = 1 << 40
        self.world.has_reserve = True

    # -- the end ----------------------------------------------------------------------------------

    @rule()
    def compare_with_rebuild(self) -> None:
        self.step(self.world.commit)
        self.world.check_rebuild()

    def teardown(self) -> None:
        """In the end everything that was published was delivered or cancelled."""
        if not hasattr(self, "world"):
            return
        try:
            self.end()
        finally:
            self._sizes.close()

    def end(self) -> None:
        world = self.world
        world.disk.crash(world.random)
        world.disk.capacity_bytes = 1 << 40
        world.open()
        world.check_rebuild()
        world.check_histories(1 << 16)
        world.drain()
        world.check_promises()
        world.check_histories(1 << 16)
        digest = world.shard.views.digest()
        world.close()
        assert world.shard.views.digest() == digest


ShardMachine.TestCase.settings = settings(stateful_step_count=50)
TestShardAgainstLogModel = ShardMachine.TestCase
