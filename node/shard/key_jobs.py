"""Background work of the key index: merging its runs, and building it again where it was lost.

A merge leaves out what is not asked for any more: rows of messages that are below the sequence
floor and were due before the cursor, as the last manifest has them. So a restart, which begins
there, never misses one.

A rebuild reads the log as far back as it goes, and then the pending messages that are older than
that, in the order of their keys, each in pieces of so many rows, between which other jobs take
their turn. What any of these jobs has in memory is bounded, whatever there is of messages or of one
key. Messages that had been refused as duplicates get rows as well; who finds one asks
the sequence index, which knows them as such. Until the end the index is not complete, and a restart
begins anew.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Kind
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import DUE_MS_MAX, FIRST_OFFSET, SEQUENCE_MAX, Key, Offset, SequenceNumber
from node.shard.checkpoint import ShardPlace, name_keys, write_manifest
from node.shard.message_keys import rows_of_batch, rows_of_units
from node.shard.views import Views
from storage.log.commit_log import CommitLog
from storage.views.key_index import KeyState
from storage.views.key_merge import merged
from storage.views.key_rows import KeyRows, in_order, joined
from storage.views.key_run import KeyRun
from storage.views.moved import Moved
from storage.views.unit import Units, equal_spans, pick
from timewheel.bodies import Bodies
from timewheel.compaction import Pause
from timewheel.range_scan import RunStream
from timewheel.run import Run
from timewheel.run_format import BLOCK_UNITS

MERGE_RUN_COUNT: Final = 8
_SLICE_ROWS: Final = 65_536
PIECE_BYTES: Final = 64 << 20
"""Of the log in one job of a rebuild."""
PIECE_ROWS: Final = 1 << 19
"""Of one job of a rebuild, or a few more: 16 MB, and twice as much while they are put in order."""
KEY_LAST: Final = Key(DUE_MS_MAX, SEQUENCE_MAX)
UNITS_AT_ONCE: Final = 4_096
_READ_BYTES: Final = 8 << 20
"""Of messages that are read at once; or one message, whatever its size."""
_SAMPLE_BLOCKS: Final = 32
_LOOK_MS: Final = 60_000
"""So often one run is looked at for what is left over in it."""
_RETRY_MS: Final = 60_000
"""What could not be read for a rebuild is read again after so long."""
_DEAD_SHARE: Final = 0.5
"""With so much of it a run is worth being written anew."""


class Floor:
    """Below it nothing of a message that is past is known any more; as of a manifest.

    Rows have the due time that a message was published with. One that was moved is kept for as long
    as that is known.
    """

    def __init__(self, manifest: Checkpoint, moved: NDArray[np.uint64]) -> None:
        """What `manifest` says. `moved`: messages that were moved by now, ascending."""
        self._moved = moved
        self._sequence = np.uint64(manifest.sequence_floor)
        cursor = manifest.cursor
        self._key = Key(cursor.due_ms, cursor.sequence)

    def keeps(self, rows: KeyRows) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """bool[n]: which rows somebody may ask about."""
        due_ms, key = rows.due_ms, self._key
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = rows.sequence >= self._sequence
        found |= due_ms > key.due_ms
        found |= (due_ms == key.due_ms) & (rows.sequence > np.uint64(key.sequence))
        if len(self._moved) and not found.all():
            found |= np.isin(rows.sequence, self._moved)
        return found

    def may_drop_of(self, run: KeyRun) -> bool:
        """Whether it may drop any row of a run."""
        return run.footer.sequence_min < int(self._sequence)


def _is_left_over(run: KeyRun, manifest: Checkpoint, moved: Moved) -> bool:
    """Whether none of its rows is needed any more. Each turn asks: no walk over rows."""
    footer = run.footer
    return (
        footer.sequence_max < manifest.sequence_floor
        and footer.due_ms_max < manifest.cursor.due_ms
        and not moved.has_between(footer.sequence_min, footer.sequence_max)
    )


class _Job:
    """Writes a run, and a manifest that names it."""

    name = "keys"

    def __init__(
        self, place: ShardPlace, views: Views, replaced: list[KeyRun], manifest: Checkpoint
    ) -> None:
        keys = views.keys
        self._place, self._keys, self._former = place, keys, manifest
        self.floor = Floor(manifest, views.moved.sequences())
        self.replaced = replaced
        self._state: KeyState = keys.state
        self._run_id = keys.take_run_id()
        self.written: KeyRun | None = None
        self.manifest = Checkpoint()

    def write(self, slices: Iterator[KeyRows], rows_max: int, *, is_complete: bool) -> None:
        self.written = self._keys.write_run(self._run_id, slices, rows_max)
        gone = {run.run_id for run in self.replaced}
        run_ids = [run_id for run_id in self._state.run_ids if run_id not in gone]
        if self.written is not None:
            run_ids.append(self._run_id)
        self.manifest.CopyFrom(self._former)
        name_keys(self.manifest, KeyState(tuple(run_ids), self._run_id + 1, is_complete))
        write_manifest(self._place, self.manifest)


class KeyMerge(_Job):
    """Makes one run of several, without what is not asked for any more."""

    def run(self, pause: Pause) -> None:
        """See node.shard.job_planner.Job."""
        floor, total = self.floor, sum(run.row_count for run in self.replaced)

        def slices() -> Iterator[KeyRows]:
            for rows in merged(self.replaced, _SLICE_ROWS):
                yield rows.take(floor.keeps(rows))
                pause()

        self.write(slices(), total, is_complete=self._state.is_complete)


class KeyRebuild(_Job):
    """Makes one run of a piece of what the index is to be built of."""

    is_last = False
    is_put_off = False
    """What it reads is damaged, or cannot be read: nothing was written."""
    _is_by_sequence = True

    def rows(self, pause: Pause) -> Iterator[KeyRows]:
        """Rows of messages, in any order; of about `PIECE_ROWS` rows at most."""
        raise NotImplementedError

    def run(self, pause: Pause) -> None:
        """See node.shard.job_planner.Job."""
        floor = self.floor
        try:
            parts = [rows.take(floor.keeps(rows)) for rows in self.rows(pause)]
        except (errors.CorruptLog, errors.DiskFailed, FileNotFoundError):
            # Local damage stays local: the scrubber names and repairs it, and calls by key wait.
            self.is_put_off = True
            self.manifest.CopyFrom(self._former)
            return
        rows = joined(parts)
        parts.clear()
        rows = in_order(rows, by_sequence=self._is_by_sequence)
        self.write(iter([rows]), rows.size, is_complete=self.is_last)


class _LogPiece(KeyRebuild):
    """Of the log from one offset on."""

    def __init__(
        self,
        place: ShardPlace,
        views: Views,
        manifest: Checkpoint,
        log: CommitLog,
        span: tuple[Offset, Offset],
    ) -> None:
        super().__init__(place, views, [], manifest)
        self._log, self._span = log, span
        self.first_sequence: SequenceNumber | None = None
        """Of the first message in it."""
        self.end_offset = span[1]
        """Behind what was read."""

    def rows(self, pause: Pause) -> Iterator[KeyRows]:
        begin, end = self._span
        count = 0
        for batch in self._log.scan(begin, end):
            header = batch.header
            if header.kind == Kind.PUBLISH:
                if self.first_sequence is None:
                    self.first_sequence = header.base_sequence
                found = rows_of_batch(batch, None)
                if found is not None:
                    count += found.size
                    yield found
                pause()
            at = header.end_offset
            if at - begin >= PIECE_BYTES or count >= PIECE_ROWS:
                self.end_offset = at
                return


class _PendingPiece(KeyRebuild):
    """Of messages in the wheel's runs, with keys > `after`, that are older than the log."""

    _is_by_sequence = False

    def __init__(
        self,
        place: ShardPlace,
        views: Views,
        manifest: Checkpoint,
        log: CommitLog,
        end_sequence: SequenceNumber,
        after: Key,
    ) -> None:
        super().__init__(place, views, [], manifest)
        self.after = after
        """What was read lies at or below this key."""
        self._end_sequence = np.uint64(end_sequence)
        self._runs: list[Run] = views.wheel.runs.all()
        self._log = log

    def rows(self, pause: Pause) -> Iterator[KeyRows]:
        streams = [
            RunStream(run, first, end)
            for run in self._runs
            for first, end in run.pieces(self.after, KEY_LAST)
        ]
        bodies = Bodies(self._place.disk, self._place.under("wheel"), self._log)
        count = 0
        try:
            while streams and count < PIECE_ROWS:
                each = max(BLOCK_UNITS, UNITS_AT_ONCE // len(streams))
                streams = [stream for stream in streams if stream.fill(each)]
                bound = min([KEY_LAST, *(one.last for one in streams if one.last is not None)])
                for stream in streams:
                    for found in self._rows_of(self._chosen(stream.take(bound)), bodies):
                        count += found.size
                        yield found
                        pause()
                self.after = bound
        finally:
            bodies.close()

    @staticmethod
    def _rows_of(units: Units, bodies: Bodies) -> Iterator[KeyRows]:
        sizes = units["meta_len"].astype(np.int64) + units["body_len"]
        parts = (np.cumsum(sizes) - sizes) // _READ_BYTES
        for first, end in equal_spans(parts):
            part = units[first:end]
            blobs, _ = bodies.read(part)  # a damaged one is empty: it has no keys
            found = rows_of_units(part, blobs)
            if found is not None:
                yield found

    def _chosen(self, units: Units) -> Units:
        # What a group gave back was released before. Of a message that was moved each entry may
        # give a row, with a due time of its own: who finds one asks where the message is due.
        is_chosen = (units["sequence"] < self._end_sequence) & (units["attempt"] <= 1)
        is_chosen &= units["meta_len"] > 0
        return pick(units, is_chosen)


class _End(KeyRebuild):
    """Nothing is left to read."""

    is_last = True

    def rows(self, pause: Pause) -> Iterator[KeyRows]:
        pause()
        return iter(())


KeyJob: TypeAlias = KeyMerge | KeyRebuild


class KeyJobs:
    """Plans and ends these jobs. On the thread that applies; a job runs on another one."""

    def __init__(self, place: ShardPlace, views: Views, log: CommitLog) -> None:
        """Begin to build the index where it is not complete."""
        self._place, self._views, self._log = place, views, log
        self._end_offset = views.applied_offset
        """What is applied later comes into the index by itself."""
        self._offset = FIRST_OFFSET
        self._end_sequence = views.next_sequence
        """All messages from here on are in the log, or came into the index by themselves."""
        self._after = views.cursor.key
        self._not_before_ms = 0
        """When to read again what could not be read."""
        self._look_ms = 0
        self._looked_at = 0
        """Number of the run that was looked at last."""

    @property
    def next_look_ms(self) -> int:
        """From then on `plan` may find a job although nothing has changed but the time."""
        return self._look_ms if self._views.keys.is_complete else self._not_before_ms

    def plan(self, manifest: Checkpoint, now_ms: int) -> KeyJob | None:
        """The next job, or None. `manifest`: what lies on disk."""
        keys = self._views.keys
        runs = keys.plan_merge(MERGE_RUN_COUNT)
        if not runs and not keys.is_complete:
            return None if now_ms < self._not_before_ms else self._plan_rebuild(manifest)
        runs = runs or self._find_dead(manifest, now_ms)
        return KeyMerge(self._place, self._views, runs, manifest) if runs else None

    def _plan_rebuild(self, manifest: Checkpoint) -> KeyJob:
        views, log = self._views, self._log
        begin = max(self._offset, log.start_offset)
        if begin > self._offset and self._offset:
            self._end_sequence = views.next_sequence  # the log was trimmed meanwhile
        if begin < self._end_offset:
            span = begin, self._end_offset
            return _LogPiece(self._place, views, manifest, log, span)
        after = max(self._after, views.cursor.key)
        if log.start_offset and after < KEY_LAST:
            end = self._end_sequence
            return _PendingPiece(self._place, views, manifest, log, end, after)
        return _End(self._place, views, [], manifest)

    def _find_dead(self, manifest: Checkpoint, now_ms: int) -> list[KeyRun]:
        """A run that is left over, or mostly so."""
        runs, moved = self._views.keys.runs, self._views.moved
        for run in runs:
            if _is_left_over(run, manifest, moved):
                return [run]
        if now_ms < self._look_ms or not runs:
            return []
        self._look_ms = now_ms + _LOOK_MS
        later = [run for run in runs if run.run_id > self._looked_at]
        run = (later or runs)[0]
        self._looked_at = run.run_id
        floor = Floor(manifest, moved.sequences())
        if not floor.may_drop_of(run):
            return []
        rows = run.sample(_SAMPLE_BLOCKS)
        return [run] if float(floor.keeps(rows).mean()) < 1 - _DEAD_SHARE else []

    def finish(self, job: KeyJob, now_ms: int) -> None:
        """`job` has run, and its manifest is durable."""
        keys = self._views.keys
        if isinstance(job, KeyRebuild) and job.is_put_off:
            self._not_before_ms = now_ms + _RETRY_MS
            return
        keys.install(job.replaced, job.written)
        if isinstance(job, _LogPiece):
            self._offset = job.end_offset
            if job.first_sequence is not None:
                self._end_sequence = SequenceNumber(min(self._end_sequence, job.first_sequence))
        elif isinstance(job, _PendingPiece):
            self._after = job.after
        if isinstance(job, KeyRebuild) and job.is_last:
            keys.is_complete = True

    def fail(self, job: KeyJob) -> None:
        """`job` found no room, or was dropped."""
        if job.written is not None:
            job.written.close()
