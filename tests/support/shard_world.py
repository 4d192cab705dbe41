"""A shard driven by hand on a simulated disk: every step is a call, so a test can crash in between.

What the engine does with threads happens here in any order that a test likes: a write is taken, run
and finished; a background job is begun, run and ended. `chaos.log_model` reads the same log
beside the shard; `check_promises` holds the views against it, and it against what was answered.
"""

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np

from chaos.log_parts.expiry import Expiries, expiry_ms
from hourwheel import errors
from hourwheel.filter_language.evaluate import evaluate
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import decode
from hourwheel.types import FIRST_SHARD, SEQUENCE_MAX
from node.delivery.deliveries import Delivery, ReceiveLimits
from node.delivery.filtered_ranges import FilteredRange
from node.delivery.resolve_rows import expired_rows, filtered_rows, unresolved_of
from node.replica.mastership import Mastership
from node.replica.replica import Replica
from node.shard.checkpoint import ShardPlace
from node.shard.group_queue import GroupQueue
from node.shard.job_planner import Job, RetentionConfig, Work
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.shard import Shard
from storage.files.file_header import Identity
from storage.log.commit_log import LogWrite
from storage.views.key_rows import hash_keys
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.lone_replica import lone_replica
from tests.support.naive_history import Chronicle, check_history
from tests.support.shard_proposals import (
    ATTEMPTS_MAX,
    GROUP,
    TOPIC,
    ShardProposals,
    Token,
    body_of,
    plain,
    split,
    tags_of,
    told_of_dedup_keys,
)
from tests.support.shard_views import check_views, rebuilt_digest
from tests.support.small_sizes import chunk_entries

IDENTITY = Identity(bytes(range(16)), FIRST_SHARD)
START_MS = 1_800_000_000_000
"""At the full hour."""
RESERVE_BYTES = 256 * 1024
INVISIBLE_MS = 5_000
DRAIN_STEP_MS = 86_400_000


def _model() -> Chronicle:
    """Of logs in which anything may be said to have expired: whether it had, simulations check."""
    return Chronicle(chunk_entries(), expiries=Expiries(goes_on=True))


class ShardWorld(ShardProposals):
    """One shard, its clock, and what the outside knows of it."""

    model: Chronicle

    def __init__(
        self,
        disk: SimulatedDisk,
        config: ShardConfig,
        *,
        seed: int = 0,
        wanted: FilterExpression | None = None,
    ) -> None:
        """Open a new shard with one topic of two queues, and one group, which wants `wanted`."""
        self.disk, self.config = disk, config
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.model = _model()
        self.boots = 0
        self.power_failures = 0
        self.checkpoints = 0
        self.jobs: set[str] = set()
        """Kinds of jobs that were done."""
        self.has_reserve = True
        self.refused = 0
        """Writes that found no room, and"""
        self.failed_jobs = 0
        self.saves_beside = 0
        """Checkpoints that a merge waited for."""
        """jobs that did, and"""
        self.stalls = 0
        """how often there was not even room to apply, so that the process died."""
        self.deliveries: list[Delivery] = []
        """All, also those of earlier boots."""
        self.seen: set[int] = set()
        """Sequences that were delivered."""
        self.is_tagged = wanted is not None
        self.acked = set()
        self.shard: Shard
        self.replica: Replica
        self.open()
        self.configure(wanted)
        self.commit()

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> Opened:
        """Start the process, however often the power fails meanwhile."""
        while True:
            try:
                return self._open()
            except SimulatedCrash:
                self.power_failures += 1
                self.disk.crash(self.random)
            except errors.DiskFull:
                self.disk.kill()
                self.disk.capacity_bytes += RESERVE_BYTES

    def _open(self) -> Opened:
        self.write: LogWrite | None = None
        self.job: Job | None = None
        self.removals: list[Work] = []
        self.tokens: list[Token] = []
        self._open_tokens: list[Token] = []
        """Those of them that were not answered when it was looked last."""
        self.held: dict[tuple[int, int], int] = {}
        """(topic_queue, position) -> until when it is leased."""
        self.filtered: list[tuple[Token, list[FilteredRange]]] = []
        """Proposals to pass over."""
        self.place = ShardPlace(self.disk, "shard-0", IDENTITY)
        appended = self.shard.log.end_offset if hasattr(self, "shard") else 0
        # Nothing may be deleted that the model has not read.
        for_ever = RetentionConfig(retention_ms=1 << 50)
        self.opened = open_shard(self.place, replace(self.config, retention=for_ever))
        self.shard = self.opened.shard
        assert self.shard.log.flushed_end_offset <= appended, "what was refused has come back"
        self.maintenance = self.opened.maintenance
        self.maintenance._retention = self.config.retention
        self.shard.applier.make_room = self._make_room
        self.check_opened()
        self.boots += 1
        self.replica = lone_replica(self.opened, lambda: self.now_ms, self.boots)
        self.opened.epochs.keep_room()  # as a node does a second later
        for _ in range(2):  # where there is no room at first, the reserve is given up
            self.take_write()
            self.run_write()
            self.finish_write()
        while self.apply():
            pass
        if not self.mastership.is_serving:
            raise errors.DiskFull("no room to begin an epoch")
        return self.opened

    @property
    def mastership(self) -> Mastership:  # type: ignore[override]
        """Of this boot."""
        assert self.replica.mastership is not None
        return self.replica.mastership

    def _token(self, kind: str) -> Token:
        token = super()._token(kind)
        self._open_tokens.append(token)
        return token

    def check_opened(self) -> None:
        """What was acknowledged is there, and no crash makes a checkpoint look damaged."""
        log, because = self.shard.log, self.opened.rebuilt_because
        assert log.flushed_end_offset >= self.model.offset, "acknowledged records are gone"
        assert because in {"", "no checkpoint"}, because
        assert not (because and self.checkpoints), "the checkpoint is gone"
        self.model.follow(log, self.shard.views.applied_offset)
        if log.start_offset == 0:
            again = _model()
            again.follow(log, self.shard.views.applied_offset)
            assert again == self.model, "the log says something else than before"
        self.check_promises()

    def crash(self) -> None:
        """Power is lost and comes back."""
        self.power_failures += 1
        self.disk.crash(self.random)
        self.open()

    def kill(self) -> None:
        """The process dies and starts again."""
        self.disk.kill()
        self.open()

    def close(self) -> None:
        """A clean stop."""
        self.commit()
        self.save()
        self.remove()
        self.shard.log.close()

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.close()
        self.open()

    def _make_room(self) -> bool:
        """Give up the reserve, as the engine's guard does."""
        had, self.has_reserve = self.has_reserve, False
        self.disk.capacity_bytes += RESERVE_BYTES if had else 0
        return had

    # -- the way into the log ---------------------------------------------------------------------

    def take_write(self) -> None:
        """Hand out what was appended, unless a write is under way."""
        if self.write is None:
            self.write = self.shard.take_write()

    def run_write(self) -> None:
        """Write and sync; where there is no room, everything appended fails."""
        if self.write is None or self.write.is_run:
            return
        try:
            self.write.run(True)
        except errors.DiskFull as error:
            write, self.write = self.write, None
            self.refused += 1
            self.replica.on_abandoned(self.shard.abandon_write(write), error)
            self.note()
            self._make_room()

    def finish_write(self) -> None:
        """What was written may be applied now."""
        if self.write is not None and self.write.is_run:
            self.shard.finish_write(self.write)
            self.write = None
            self.replica.on_flushed(0.0)

    def apply(self, batches_max: int = 8) -> bool:
        """Apply some batches. Without room for that it stalls, and every other time is killed."""
        applied = self.shard.apply_some(batches_max)
        self.replica.on_applied(applied, 0.0)
        self.note()
        if self.shard.is_stalled:
            self.stalls += 1
            assert self.maintenance.plan(self.now_ms, force_checkpoint=True) is None
            self.shard.try_again()
            assert self.shard.apply_some(batches_max) == []
            assert self.shard.is_stalled, "there is no more room than before"
            self.disk.capacity_bytes += RESERVE_BYTES
            if self.stalls % 2 == 0:
                self.kill()
                return False
            self.shard.try_again()
            self.mastership.dispatch_due(
                self.now_ms
            )  # as a timer does that comes before the writer
            return True
        return bool(applied)

    def commit(self) -> None:
        """Write and apply everything that is appended."""
        while True:
            self.run_write()
            self.finish_write()
            while self.apply():
                pass
            self.take_write()
            if self.write is None:
                return

    def note(self) -> None:
        """The outside learns the answers; they must be what the log says."""
        self.model.follow(self.shard.log, self.shard.views.applied_offset)
        answered = [token for token in self._open_tokens if token.is_answered]
        self._open_tokens = [token for token in self._open_tokens if not token.is_answered]
        for token in answered:
            if token.error is None:
                assert token.offset < self.model.offset, "answered before it was applied"
                assert plain(token.result) == self.model.results[token.offset]
                told = self.model.unique.answers.get(token.offset, {})
                assert told_of_dedup_keys(token.result) == told
        for token, filtered in [one for one in self.filtered if one[0].is_answered]:
            self.filtered.remove((token, filtered))
            for stretch in filtered:
                again_ms = None if token.error is None else self.now_ms
                self.mastership.receiver.filtered_ranges.settle(stretch, again_ms)

    # -- time -------------------------------------------------------------------------------------

    def advance(self, by_ms: int) -> None:
        """Time passes; what falls due is dispatched, leases end."""
        self.now_ms += by_ms
        self.tick()

    def tick(self) -> None:
        """What the engine's timer does, until nothing is left to do (or no room to do it)."""
        refused = self.refused
        while self.propose_due() and self.refused == refused:
            self.commit()
        self.shard.views.wheel.load_ahead(self.shard.views.cursor.key, self.now_ms)

    def propose_due(self) -> bool:
        """Append a dispatch and what leases that ended gave back, if there is any."""
        proposed = bool(self.mastership.dispatch_due(self.now_ms))
        for held, part in self.mastership.receiver.leases.take_ended(self.now_ms, 100):
            if unresolved_of(self.shard.views, held, part):
                self.give_back(held, part)
                proposed = True
        return self.resolve_filtered() or proposed

    def resolve_filtered(self, held: GroupQueue | None = None) -> bool:
        """Append what the filter has passed over, where it is due."""
        due = self.mastership.receiver.filtered_ranges.take_due(self.now_ms, held)
        if due:
            rows = [
                expired_rows(one.group_queue, [(one.first, one.end)], kept=False)
                if one.are_expired
                else filtered_rows(one.group_queue, [(one.first, one.end)])
                for one in due
            ]
            self.filtered.append((self.resolve(np.concatenate(rows)), due))
        return bool(due)

    def change_filter(self, wanted: FilterExpression) -> None:
        """The group wants something else from now on."""
        for queue in self.mastership.receiver.queues_of(GROUP, TOPIC):
            self.resolve_filtered(GroupQueue(GROUP, queue))
        self.subscribe(wanted)

    # -- consuming --------------------------------------------------------------------------------

    def receive(self, count_max: int = 32) -> Delivery | None:
        """Lease messages for the group; they must be due, right and nobody else's."""
        delivery = self.mastership.receiver.receive(
            GROUP, TOPIC, ReceiveLimits(count_max, 1 << 20, INVISIBLE_MS, self.now_ms)
        )
        assert not self.mastership.receiver.corrupt
        if delivery is not None:
            self.deliveries.append(delivery)
            self._check_delivery(delivery)
        return delivery

    def _check_delivery(self, delivery: Delivery) -> None:
        lease = delivery.lease
        queue, positions = lease.group_queue.topic_queue, lease.positions
        if positions is None:
            positions = np.arange(lease.first, lease.end)
        resolved = self.model.resolved.get((GROUP, queue), set())
        for position, (unit, blob) in zip(positions.tolist(), split(delivery), strict=True):
            entry = self.model.queues[queue][position]
            assert int(unit["sequence"]) == entry.sequence
            assert max(1, int(unit["attempt"])) == entry.attempt <= ATTEMPTS_MAX
            due_ms = self.model.messages[entry.sequence]
            moved_ms, _ = self.model.moved.get(entry.sequence, (due_ms, due_ms))
            assert max(moved_ms, entry.release_ms) <= self.now_ms, "early"
            assert blob == self.meta_of(due_ms) + body_of(due_ms), "not what was published"
            assert queue >> 8 != TOPIC or self._matches(due_ms), "not what the group wants"
            self.seen.add(entry.sequence)
            assert position not in resolved, "delivered although resolved"
            at_ms = expiry_ms(entry, self.model.metas.get(entry.sequence, b""))
            assert not at_ms or at_ms > self.now_ms, "delivered although expired"
            assert entry.sequence not in self.model.cancelled, "delivered although cancelled"
            assert self.held.get((queue, position), 0) <= self.now_ms, "leased twice at once"
            self.held[queue, position] = self.now_ms + INVISIBLE_MS

    def _matches(self, due_ms: int) -> bool:
        subscription = self.shard.views.catalog.find_subscription(GROUP, TOPIC)
        if subscription is None or subscription.filter is None:
            return True
        return evaluate(parse(subscription.filter), tags_of(due_ms), {}) is True

    def drain(self) -> None:
        """Consume until nothing is left; all that matched must have been delivered."""
        while True:
            delivery = self.receive()
            if delivery is not None:
                self.ack(delivery)
            elif not self.mastership.receiver.is_unfinished:
                if not self.model.pending and not self.mastership.receiver.leases.count:
                    break
                self.advance(DRAIN_STEP_MS)
            self.commit()
        for queue in [one for one in self.model.queues if one >> 8 == TOPIC]:
            kept = self.model.queues[queue][self.model.starts.get(queue, 0) :]
            for entry in kept:
                is_wanted = self.model.is_wanted(GROUP, TOPIC, entry.sequence)
                at_ms = expiry_ms(entry, self.model.metas.get(entry.sequence, b""))
                is_over = 0 < at_ms <= self.now_ms
                assert entry.sequence in self.seen or not is_wanted or is_over, "lost"

    # -- background jobs --------------------------------------------------------------------------

    def begin_job(self, *, save: bool = False) -> bool:
        """Begin the next job, if one is due, or a checkpoint."""
        if self.job is None:
            self.remove()
            while not self.maintenance.settle(self.now_ms):
                pass
            with suppress(errors.DiskFull):
                self.job = self.maintenance.plan(self.now_ms, force_checkpoint=save)
        return self.job is not None

    def end_job(self) -> None:
        """Run the job that was begun to its end, and take up its result."""
        job, self.job = self.job, None
        if job is None:
            return
        try:
            job.run(self._save_beside)
        except errors.DiskFull:
            self.failed_jobs += 1
            self.maintenance.fail(job)
            return
        self.checkpoints += job.name == "checkpoint"
        self.jobs.add(job.name)
        self.removals += self.maintenance.finish(job, self.now_ms)

    def _save_beside(self) -> None:
        """While a merge rests: the checkpoint that is due by now, if one is."""
        while self.maintenance.can_save_beside and not self.maintenance.settle(self.now_ms):
            pass
        try:
            job = self.maintenance.plan_beside(self.now_ms)
        except errors.DiskFull:
            return
        if job is None:
            return
        try:
            job.run(lambda: None)
        except errors.DiskFull:
            self.failed_jobs += 1
            self.maintenance.fail(job)
            return
        self.checkpoints += 1
        self.saves_beside += 1
        for remove in self.maintenance.finish(job, self.now_ms):
            remove()

    def remove(self) -> None:
        """Remove the files that jobs left behind; done before the next job at the latest."""
        while self.removals:
            self.removals.pop(0)()

    def work(self) -> bool:
        """Run one background job, if one is due."""
        is_due = self.begin_job()
        self.end_job()
        return is_due

    def save(self) -> None:
        """A checkpoint now."""
        self.end_job()
        self.begin_job(save=True)
        self.end_job()

    # -- what must hold ---------------------------------------------------------------------------

    def check_promises(self) -> None:
        """I1, I2, I3, I6: answers, log and views say the same, and it is what was promised."""
        self.shard.check()
        self.model.check()
        self.check_acknowledged()
        check_views(self.shard.views, self.model)

    def find_by_key(self, key: str) -> list[int]:
        """Sequences of messages that may have a key, by the index: all that wait are among them."""
        views, model = self.shard.views, self.model
        hashes = hash_keys([TOPIC], [key.encode()])
        if not views.keys.is_complete:
            return []
        rows = views.keys.newest(hashes, 0, SEQUENCE_MAX, len(model.messages) + 1)
        found = list(dict.fromkeys(rows.sequence.tolist()))
        if views.applied_offset == model.offset:
            waiting = {
                sequence
                for sequence, queue in model.waiting
                if not queue and model.origins[sequence] == TOPIC
            }
            named = {one for one in waiting if key in decode(model.metas.get(one, b"")).keys}
            assert named <= set(found), "a message is not found by its key"
        return found

    def check_histories(self, count_max: int) -> None:
        """Of some messages, the last ones among them, a node tells what its log says."""
        model, log = self.model, self.shard.log
        if log.start_offset:
            return
        known = [one for one, topic in sorted(model.origins.items()) if topic == TOPIC]
        step = max(1, len(known) // count_max)
        for sequence in {*known[-2:], *known[self.boots % step :: step]}:
            if model.is_all_there(sequence):
                check_history(self.shard, model, sequence)

    def check_rebuild(self) -> None:
        """I5: the views are those that the whole log makes, on another disk, in another layout."""
        if self.write is None and self.shard.log.start_offset == 0:
            assert self.shard.views.digest() == rebuilt_digest(self.shard, self.place)
