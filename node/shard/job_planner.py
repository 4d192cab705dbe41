"""Background work of one shard: checkpoints, merges, cascades, and what may be deleted after them.

At most one job is under way; but while a merge rests between two slices, a checkpoint may go first
(`plan_beside`). A job is built on the thread that applies, `run` elsewhere, and ended here by
`finish` (or `fail`, where the disk is full: nothing has changed then).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint, DelayLogState
from hourwheel.types import FIRST_OFFSET, Key, Offset, SequenceNumber
from node.shard.checkpoint import (
    MANIFEST,
    CheckpointJob,
    ShardPlace,
    hour_level_end,
    name_keys,
    read_manifest,
    run_state,
    write_manifest,
)
from node.shard.key_jobs import KeyJobs, KeyMerge, KeyRebuild
from node.shard.sweeps import DedupSweep, MovedSweep, TombstoneSweep
from node.shard.views import TRIM_SEQUENCES_LEVEL, Views
from storage.files.rewrite import REPAIR_SUFFIX, remove_leftovers
from storage.log.commit_log import CommitLog
from storage.views.key_index import KeyState
from storage.views.unit import delay_log_min, log_offset_min
from timewheel.bodies import Bodies
from timewheel.compaction import CascadeJob, MergeJob, Pause, plan_cascade, plan_merge
from timewheel.flush import WrittenRun
from timewheel.levels import DAY_LEVEL, HOUR_LEVEL
from timewheel.run import Run, open_run
from timewheel.run_format import delay_log_path

_CLEAN_UP_MS: Final = 60_000
_QUEUES_AT_ONCE: Final = 24
_SETTLINGS_MAX: Final = 5_000
_KEYS_PER_UNIT: Final = 2
"""So many keys in memory, for each unit that may be there, are worth a checkpoint as well."""

Work: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class RetentionConfig:
    """How long released messages and the log stay."""

    retention_ms: int = 72 * 3_600_000
    """Released messages leave their queues, and the log its segments, after this."""
    log_bytes_max: int = 0
    """Above this the oldest segments go earlier, if nothing needs them; 0: no limit."""
    producer_idle_ms: int = 24 * 3_600_000
    """Producers idle for this long are forgotten."""
    sequence_step: int = 65_536
    """The sequence floor rises by so many messages at least: what that gives back are pages of so
    many."""


class Job(Protocol):
    """Something to run on another thread."""

    name: str

    def run(self, pause: Pause) -> None:
        """Do it. May raise DiskFull."""
        ...


class _Checkpoint:
    name = "checkpoint"

    def __init__(self, inner: CheckpointJob, past: list[Run]) -> None:
        self.inner, self.past = inner, past

    def run(self, pause: Pause) -> None:
        del pause
        self.inner.run()


class _Rewrite:
    """A merge or a cascade, and the manifest that puts its result in place."""

    def __init__(
        self, place: ShardPlace, inner: MergeJob | CascadeJob, manifest: Checkpoint
    ) -> None:
        self.place, self.inner, self.former = place, inner, manifest
        self.manifest = Checkpoint()
        self.name = "merge" if isinstance(inner, MergeJob) else "cascade"
        self.opened: Run | None = None

    def run(self, pause: Pause) -> None:
        written = self.inner.run(pause)
        self.manifest.CopyFrom(self.former)  # it names ten thousands of queues, maybe
        wheel = self.place.wheel
        if written.footer.unit_count:
            footer = written.footer
            self.opened = open_run(
                wheel.disk, wheel.directory, wheel.identity, footer.covers_first, footer.run_id
            )
        self._rename(written)
        write_manifest(self.place, self.manifest)

    def _rename(self, written: WrittenRun) -> None:
        runs = {(one.covers_first, one.run_id): one for one in self.manifest.runs}
        if isinstance(self.inner, MergeJob):
            for run in self.inner.runs:
                runs.pop((run.footer.covers_first, run.footer.run_id), None)
        else:
            for run in self.inner.sources:
                state = runs[run.footer.covers_first, run.footer.run_id]
                state.cascaded_days.append(self.inner.day)
            self.manifest.next_run_id = max(self.manifest.next_run_id, written.footer.run_id + 1)
            self.manifest.delay_logs.append(
                DelayLogState(
                    delay_log_id=written.delay_log_id,
                    bytes=written.delay_log_bytes,
                    due_ms_max=written.footer.due_ms_max,
                )
            )
        kept = list(runs.values())
        if self.opened is not None:
            kept.append(run_state(self.opened))
        del self.manifest.runs[:]
        self.manifest.runs.extend(sorted(kept, key=lambda one: (one.level, one.run_id)))


class Maintenance:
    """Plans and ends background jobs.

    Invariant: `manifest` is what lies on disk; no file that it names is removed.
    """

    def __init__(
        self,
        place: ShardPlace,
        views: Views,
        log: CommitLog,
        bodies: Bodies,
        manifest: Checkpoint,
        retention: RetentionConfig,
    ) -> None:
        """Begin where `manifest` stands; files that it does not name are removed."""
        self._place, self._views, self._log, self._bodies = place, views, log, bodies
        self._retention = retention
        self.manifest = manifest
        self._current: Job | None = None
        self._beside: Job | None = None
        """A checkpoint, while a merge waits for it."""
        self._garbage: set[Run] = set()
        self._known_delay_logs = {one.delay_log_id for one in manifest.delay_logs}
        self.next_run_id = max(1, manifest.next_run_id)
        self._clean_up_ms = 0
        self.checkpoint_ms = 0
        """Cluster clock at the last checkpoint of this process, 0 before the first."""
        self._settlings = 0
        self._tombstone_sweep = TombstoneSweep(views)
        self._moved_sweep = MovedSweep(views)
        self._dedup_sweep = DedupSweep(views)
        self._key_jobs = KeyJobs(place, views, log)
        self._idle_rewrite: tuple[int, int] | None = None
        self._idle_keys: Checkpoint | None = None
        """As of what there was nothing to rewrite, or to do about keys: each commit asks."""
        self._log_floor = FIRST_OFFSET
        """Nothing points below it into the log, but what a restart needs; as of the last plan."""
        self._measured = 0, 0
        """(Bytes of the shard's files on disk, the log's end then.)"""
        remove_leftovers(place.disk, place.under("wheel"))
        for remove in self._removals_of_unnamed():
            remove()
        self.measure_disk()

    def _removals_of_unnamed(self) -> list[Work]:
        """Of files that a job left which crashed or failed, or put others in their place."""
        directory = self._place.under("wheel")
        named = {run.path for run in [*self._views.wheel.runs.all(), *self._garbage]}
        named |= {delay_log_path(directory, one.delay_log_id) for one in self.manifest.delay_logs}
        if self._merging is not None:
            named.add(self._merging.path)
        paths = [f"{directory}/{name}" for name in self._place.disk.list(directory)]
        return [
            partial(self._place.disk.remove, path)
            for path in paths
            if path not in named and not path.endswith(REPAIR_SUFFIX)  # it may get its name yet
        ]

    @property
    def place(self) -> ShardPlace:
        """Of the shard's files."""
        return self._place

    # -- what to do next --------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """No job is under way."""
        return self._current is None

    @property
    def unsaved_bytes(self) -> int:
        """Log that a restart would have to replay."""
        return self._views.applied_offset - self.manifest.applied_offset

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        config = self._views.wheel.config
        return (
            self._views.wheel.memtable.count >= config.memtable_units_max
            or self._views.keys.unsaved_count >= _KEYS_PER_UNIT * config.memtable_units_max
            or self.unsaved_bytes >= config.memtable_span_bytes_max
        )

    @property
    def is_far_behind(self) -> bool:
        """Publishing outruns flushing: producers must wait."""
        config = self._views.wheel.config
        return (
            self._views.wheel.memtable.count >= 3 * config.memtable_units_max
            or self._views.keys.unsaved_count >= 3 * _KEYS_PER_UNIT * config.memtable_units_max
            or self.unsaved_bytes >= 6 * config.memtable_span_bytes_max
        )

    def settle(self, now_ms: int) -> bool:
        """Prepare the next plan a little; whether to go on now, or to call again in another turn.

        Of ten thousand queues that have changed each costs tens of microseconds, and of cancelled
        messages each page some milliseconds.
        """
        sweeps = (self._tombstone_sweep, self._moved_sweep)
        if any(sweep.step() for sweep in sweeps) or self._dedup_sweep.step(now_ms):
            return False
        self._settlings += 1
        is_enough = self._settlings >= _SETTLINGS_MAX  # where they change as fast as that
        if not self.is_due or is_enough or self._views.queues.settle(_QUEUES_AT_ONCE):
            self._settlings = 0
            return True
        return False

    def plan(self, now_ms: int, *, force_checkpoint: bool = False) -> Job | None:
        """The next job, which is then under way, or None.

        Raises:
            DiskFull: there is no room to begin one; nothing has changed.
        """
        if self._current is not None or not self._views.is_whole:
            return None
        if force_checkpoint or self.is_due:
            self._current = self._plan_checkpoint(now_ms)
        else:
            self._current = self._plan_rewrite() or self._plan_keys(now_ms)
        return self._current

    @property
    def can_save_beside(self) -> bool:
        """A checkpoint is due, and what is under way is a merge, which can wait for it."""
        is_free = self._beside is None and self._merging is not None
        return is_free and self._views.is_whole and self.is_due

    def plan_beside(self, now_ms: int) -> Job | None:
        """A checkpoint to be run now while the merge that is under way waits, or None.

        So what a restart replays stays short, and producers wait for no merge. It touches neither
        the runs that are merged nor what is written of the new one, and goes in front of it: the
        merge then changes the manifest of this checkpoint. Not beside a cascade, whose run has a
        lower number than those of the checkpoint would have and comes behind them: slot chains
        would miss it. Nor beside a merge of keys, which names all key runs when it ends.

        Raises:
            DiskFull: there is no room to begin one; nothing has changed.
        """
        if self.can_save_beside:
            self._beside = self._plan_checkpoint(now_ms)
            return self._beside
        return None

    @property
    def _merging(self) -> MergeJob | None:
        """The merge of the wheel's runs that is under way, or None."""
        job = self._current
        return job.inner if isinstance(job, _Rewrite) and isinstance(job.inner, MergeJob) else None

    def _plan_keys(self, now_ms: int) -> Job | None:
        """Key runs change with a manifest; for what time makes of them they are looked at again."""
        if self._idle_keys is self.manifest and now_ms < self._key_jobs.next_look_ms:
            return None
        job = self._key_jobs.plan(self.manifest, now_ms)
        self._idle_keys = self.manifest if job is None else None
        return job

    def _plan_checkpoint(self, now_ms: int) -> Job:
        views, manifest = self._views, self.manifest
        merging = self._merging
        read = set() if merging is None else {*merging.runs}
        past = [one for one in views.wheel.runs.all() if one not in read and self._is_past(one)]
        end_day = max(
            manifest.hour_level_end_day, hour_level_end(now_ms, views.wheel.config.hour_level_days)
        )
        views.wheel.runs.remove(past)
        try:
            job = CheckpointJob(
                self._place,
                views,
                self._log,
                span_start=Offset(manifest.applied_offset),
                next_run_id=self.next_run_id,
                hour_level_end_day=end_day,
                delay_logs=self._needed_delay_logs(),
            )
        except errors.DiskFull:
            for run in past:
                views.wheel.runs.add(run)
            raise
        self.next_run_id += 2
        self._log_floor = self._find_log_floor()
        return _Checkpoint(job, past)

    def _is_past(self, run: Run) -> bool:
        """Nothing in it is above the cursor, or all of it has been cascaded."""
        return run.footer.due_ms_max < self._views.cursor.key.due_ms or not run.buckets()

    def _needed_delay_logs(self) -> list[DelayLogState]:
        """Delay logs that a run, a queue or level 0 may still point into."""
        wheel = self._views.wheel
        lowest = [self._views.queues.references()[1]]
        lowest += [delay_log_min(units) for units in wheel.units_in_memory()]
        floor = min((one for one in lowest if one is not None), default=1 << 32)
        # Also of runs that are merged or cascaded, but still being read.
        ranges = [
            (run.footer.delay_log_first, run.footer.delay_log_last)
            for run in {*wheel.runs.all(), *wheel.runs_in_use()}
            if run.footer.unit_count
        ]
        return [
            one
            for one in self.manifest.delay_logs
            if one.delay_log_id >= floor
            or any(low <= one.delay_log_id <= high for low, high in ranges)
        ]

    def _plan_rewrite(self) -> Job | None:
        wheel = self._views.wheel
        state = wheel.runs.version, self.manifest.hour_level_end_day
        if state == self._idle_rewrite:
            return None
        day = plan_cascade(wheel.runs, self.manifest.hour_level_end_day)
        slice_units = wheel.config.job_units_per_slice
        inner: MergeJob | CascadeJob
        if day is not None:
            inner = CascadeJob(
                self._place.wheel,
                day,
                wheel.runs,
                run_id=self.next_run_id,
                log=self._log,
                slice_units=slice_units,
            )
            self.next_run_id += 1
            return _Rewrite(self._place, inner, self.manifest)
        for level in (HOUR_LEVEL, DAY_LEVEL):
            runs = plan_merge(wheel.runs, level, wheel.config.merge_run_count)
            if runs:
                # What is past at the checkpoint: a restart begins there, and releases it again.
                cursor = self.manifest.cursor
                inner = MergeJob(
                    self._place.wheel,
                    runs,
                    Key(cursor.due_ms, cursor.sequence),
                    heads=wheel.runs.heads,
                    slice_units=slice_units,
                )
                return _Rewrite(self._place, inner, self.manifest)
        self._idle_rewrite = state
        return None

    def can_mend(self, error: errors.CorruptFile | None = None) -> bool:
        """Whether the next start can build the damaged view: the log has all of it.

        The key index can be built in any case.
        """
        return self._is_of_keys(error) or self._log.start_offset == 0

    def _is_of_keys(self, error: errors.CorruptFile | None) -> bool:
        file = "" if error is None else str(error.params.get("file", ""))
        return file.startswith(self._place.under("keys/"))

    def distrust(self, error: errors.CorruptFile | None = None) -> bool:
        """A file of the views turned out damaged: let the next start build them from the log.

        Not while a job runs, which would write its own manifest.

        Returns:
            Whether it `can_mend`; else the checkpoint stays, for people to decide about.
        """
        if self._is_of_keys(error):
            manifest = read_manifest(self._place)  # a job may have written one and failed then
            name_keys(manifest, KeyState((), manifest.next_key_run_id, is_complete=False))
            write_manifest(self._place, manifest)
            self.manifest = manifest
            return True
        if not self.can_mend(error):
            return False
        path = self._place.under(MANIFEST)
        if self._place.disk.exists(path):
            self._place.disk.remove(path)
            self._place.disk.sync_dir(self._place.directory)
        return True

    def measure_disk(self) -> None:
        """Look at each file's size: in another thread, for there may be ten thousands of them."""
        end_offset = self._log.end_offset
        used_bytes = self._place.disk.used_bytes(self._place.directory)
        self._measured = used_bytes, end_offset

    @property
    def disk_bytes(self) -> int:
        """Bytes of the shard's files on disk: as measured last, and what the log has got since."""
        used_bytes, end_offset = self._measured
        return used_bytes + max(0, self._log.end_offset - end_offset)

    def delay_log_bytes(self, number: int) -> int | None:
        """How long a delay log is, or None where the manifest does not name it."""
        sizes = (one.bytes for one in self.manifest.delay_logs if one.delay_log_id == number)
        return next(sizes, None)

    # -- ending a job -----------------------------------------------------------------------------

    def finish(self, job: Job, now_ms: int) -> list[Work]:
        """`job` has run; what it wrote is in the manifest on disk.

        Returns:
            Removals of files that are not needed any more and a look at what is left, for the jobs'
            thread, before its next job.
        """
        self._end(job)
        works: list[Work] = []
        if isinstance(job, _Checkpoint):
            self.manifest = job.inner.manifest
            if isinstance(self._current, _Rewrite):
                self._current.former = self.manifest
            self._views.wheel.install_flush(job.inner.opened)
            self._garbage.update(job.past)
            self.checkpoint_ms = now_ms
            self._tombstone_sweep.begin()
            self._moved_sweep.begin()
            self._dedup_sweep.begin()
            views = self._views
            for view in (views.tombstones, views.keys, views.queues, views.sequences):
                works += view.end_checkpoint()
        elif isinstance(job, _Rewrite):
            self.manifest = job.manifest
            self._install(job)
        elif isinstance(job, KeyMerge | KeyRebuild):
            self.manifest = job.manifest
            self._key_jobs.finish(job, now_ms)
        return [*works, *self._sweep(now_ms), self.measure_disk]

    def _end(self, job: Job) -> None:
        """It is not under way any more."""
        if job is self._beside:
            self._beside = None
        else:
            self._current = None

    def _install(self, job: _Rewrite) -> None:
        runs = self._views.wheel.runs
        if isinstance(job.inner, MergeJob):
            runs.remove(job.inner.runs)
            self._garbage.update(job.inner.runs)
        else:
            for run in job.inner.sources:
                runs.mark_cascaded(run, job.inner.day)
        if job.opened is not None:
            runs.add(job.opened)

    def fail(self, job: Job) -> None:
        """`job` found no room; the next plan tries again."""
        self._end(job)
        if isinstance(job, _Checkpoint):
            self._views.wheel.abandon_flush()
            for run in job.past:
                self._views.wheel.runs.add(run)
            for run in job.inner.opened:
                run.close()
            self._views.keys.abandon_checkpoint()
        elif isinstance(job, KeyMerge | KeyRebuild):
            self._key_jobs.fail(job)
        for remove in [*self._removals_of_unnamed(), *self._views.keys.removals()]:
            remove()

    def _sweep(self, now_ms: int) -> list[Work]:
        """Removals of files that neither the manifest names nor anyone reads."""
        in_use = self._views.wheel.runs_in_use()
        for run in [run for run in self._garbage if run not in in_use]:
            run.close()
            self._garbage.discard(run)
        kept = {one.delay_log_id for one in self.manifest.delay_logs}
        for number in self._known_delay_logs - kept:
            self._bodies.forget(number)
        self._known_delay_logs = kept
        return [
            *self._removals_of_unnamed(),
            *self._views.keys.removals(),
            *self._removals_of_log(now_ms),
        ]

    def _find_log_floor(self) -> Offset:
        """Below it nothing points into the log now, nor will: what is added points at its end."""
        needed = [
            self._views.applied_offset,
            self._views.queues.references()[0],
            self._views.transactions.floor_offset,
            *(log_offset_min(units) for units in self._views.wheel.units_in_memory()),
        ]
        return min(one for one in needed if one is not None)

    def _removals_of_log(self, now_ms: int) -> list[Work]:
        """Of segments that are past retention and that nothing points into."""
        retention, segments = self._retention, self._log.segments()
        floor = min(self.manifest.applied_offset, self._log_floor)
        size = sum(one.end_offset - one.start_offset for one in segments)
        log_from_ms = now_ms - self.log_retention_ms
        until = self._log.start_offset
        for segment in segments[:-1]:
            too_old = segment.store_ms_max < log_from_ms
            too_much = bool(retention.log_bytes_max) and size > retention.log_bytes_max
            if segment.end_offset > floor or not (too_old or too_much):
                break
            until = segment.end_offset
            size -= segment.end_offset - segment.start_offset
        return self._log.begin_delete_below(until)

    # -- records that clean up --------------------------------------------------------------------

    def is_clean_up_due(self, now_ms: int) -> bool:
        """Whether to ask the two below: now and then."""
        if now_ms < self._clean_up_ms:
            return False
        self._clean_up_ms = now_ms + _CLEAN_UP_MS
        return True

    @property
    def retention_ms(self) -> int:
        """How long what is released is retained of a topic that says nothing about that."""
        return self._retention.retention_ms

    @property
    def log_retention_ms(self) -> int:
        """How long the log is kept: for the topic that asks for most, and never less than without.

        It has the messages and the history of all topics, and goes a segment at a time.
        """
        of_topics_ms = self._views.catalog.retentions_ms.values()
        return max(self._retention.retention_ms, max(of_topics_ms, default=0))

    def plan_trim_ms(self, now_ms: int) -> int | None:
        """The `retain_from_ms` of a TRIM that would remove something, or None."""
        retain_from_ms = now_ms - self._retention.retention_ms
        retain_from = self._views.retain_from(retain_from_ms, now_ms)
        return retain_from_ms if self._views.queues.trimmable(retain_from) else None

    def plan_sequence_floor(self, now_ms: int) -> SequenceNumber | None:
        """The `sequence_floor` of a TRIM_SEQUENCES that is worth its record, or None."""
        views, retention = self._views, self._retention
        if views.feature_level < TRIM_SEQUENCES_LEVEL:
            return None
        found = self._log.find_sequence_before(now_ms - self.log_retention_ms)
        floor = SequenceNumber(min(found, views.next_sequence))
        return floor if floor >= views.sequence_floor + retention.sequence_step else None

    def plan_expire_ms(self, now_ms: int) -> int | None:
        """The `idle_before_ms` of an EXPIRE that would remove something, or None."""
        idle_before_ms = now_ms - self._retention.producer_idle_ms
        oldest = self._views.producers.oldest_ms()
        return idle_before_ms if oldest is not None and oldest < idle_before_ms else None
