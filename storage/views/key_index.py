"""The key index: which messages have a key, as rows of hashes. Bounded in memory, on disk the rest.

    insert --> table in memory --checkpoint--> run --merge, trim--> fewer, larger runs

A view as all others, but nothing that is decided as the log is applied depends on it: who cancels
by key finds the messages here, and then cancels them by id. So it may be lost, and be built again
while the shard goes on; until then `is_complete` is False, and it answers nothing.

What is left over of messages that are past and below the sequence floor goes when runs are merged,
by and by; who reads leaves it out.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.errors import invariant
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.views.key_rows import I64, U64, Hashes, KeyRows, in_order, joined, spread
from storage.views.key_run import FEW_ROWS, NAME_END, KeyRun, KeyRunWriter, file_name
from storage.views.key_search import find_in
from storage.views.sorting import sorted_unique

_SORTED_AT_ONCE: Final = 8_192
"""Rows that are put in order as they come: half a millisecond."""
_CHUNK_ROWS: Final = 65_536
_PIECE_ROWS: Final = 4_096
_TIER_RATIO: Final = 4

Work = Callable[[], None]


class KeyState(NamedTuple):
    """What the manifest says."""

    run_ids: tuple[int, ...] = ()
    """Oldest first."""
    next_run_id: int = 1
    is_complete: bool = True
    """All messages that are known have their rows in it."""


class KeyTable:
    """Rows in memory: sorted chunks, and behind them what came last."""

    def __init__(self, chunks: Iterable[KeyRows] = ()) -> None:
        """Of chunks, each in order, the older first."""
        self._chunks: list[KeyRows] = list(chunks)
        self._tail: list[KeyRows] = []
        self._tail_count = 0
        self.count = sum(chunk.size for chunk in self._chunks)

    def insert(self, rows: KeyRows) -> None:
        """Add rows of messages that follow on the last ones."""
        self._tail.append(rows)
        self._tail_count += rows.size
        self.count += rows.size
        if self._tail_count >= _SORTED_AT_ONCE:
            self.chunks()

    def chunks(self) -> list[KeyRows]:
        """All rows, in sorted chunks that are few."""
        if self._tail:
            fresh = in_order(joined(self._tail))
            self._tail, self._tail_count = [], 0
            chunks = self._chunks
            while chunks and chunks[-1].size <= fresh.size and fresh.size < _CHUNK_ROWS // 2:
                fresh = in_order(joined([chunks.pop(), fresh]))
            chunks.append(fresh)
        return self._chunks


class Found(NamedTuple):
    """Rows of some of n keys."""

    ordinals: I64
    """int64[m]: of the key that each row is of."""
    sequences: U64
    """uint64[m]."""
    due_ms: I64
    """int64[m]: of each message as it was published."""
    many: I64
    """Ordinals of keys with too many rows; what is here of theirs is not all: see `pieces`."""


class _Pending:
    """A checkpoint that has begun and not ended."""

    def __init__(self, table: KeyTable, run_id: int) -> None:
        self.table, self.run_id = table, run_id
        self.run: KeyRun | None = None


class KeyIndex:
    """See the top of this file. One thread; the works of a checkpoint run in any."""

    def __init__(
        self, disk: Disk, directory: str, identity: Identity, next_run_id: int = 1
    ) -> None:
        """Make an empty one that keeps its files in `directory`; see `open`."""
        self._disk, self._directory, self._identity = disk, directory, identity
        self._table = KeyTable()
        self._pending: _Pending | None = None
        self.runs: list[KeyRun] = []
        """Oldest first."""
        self.next_run_id = next_run_id
        self.is_complete = True

    @classmethod
    def open(cls, disk: Disk, directory: str, identity: Identity, state: KeyState) -> "KeyIndex":
        """Take up the state of a checkpoint; `directory` is made where it does not exist.

        Where a run is missing or damaged, or it was not complete, it is empty and not complete.
        """
        disk.make_dir(directory)
        index = cls(disk, directory, identity, state.next_run_id)
        index.is_complete = state.is_complete
        if state.is_complete:
            try:
                for run_id in state.run_ids:
                    index.runs.append(index.open_run(run_id))
            except errors.CorruptFile:
                index.forget()
        for remove in index.removals():
            remove()
        return index

    def forget(self) -> None:
        """Let go of all rows that are on disk: they are to be built again."""
        for run in self.runs:
            run.close()
        self.runs, self.is_complete = [], False

    def path_of(self, run_id: int) -> str:
        """Where a run lies."""
        return join(self._directory, file_name(run_id))

    def open_run(self, run_id: int) -> KeyRun:
        """Open a run. For any thread. Raises CorruptFile."""
        run = KeyRun(self._disk, self.path_of(run_id), self._identity)
        if run.run_id != run_id:
            run.close()
            raise errors.CorruptFile(f"{run.path}: it is another run", file=run.path)
        return run

    def write_run(self, run_id: int, slices: Iterable[KeyRows], rows_max: int) -> KeyRun | None:
        """Write a run durably, and open it; None without any rows. For any thread.

        Args:
            run_id: a number that `take_run_id` gave.
            slices: its rows, in order.
            rows_max: at most so many rows they are.
        """
        path = self.path_of(run_id)
        writer = KeyRunWriter(self._disk, path, self._identity, run_id=run_id, rows_max=rows_max)
        for rows in slices:
            writer.append(rows)
        if not writer.finish().row_count:
            self._disk.remove(path)
            return None
        self._disk.sync_dir(self._directory)
        return self.open_run(run_id)

    # -- rows in and out --------------------------------------------------------------------------

    @property
    def unsaved_count(self) -> int:
        """Rows that are in memory."""
        return self._table.count

    @property
    def row_count(self) -> int:
        """All rows, also those that are left over."""
        return sum(run.row_count for run in self.runs) + sum(one.count for one in self._tables())

    def _tables(self) -> list[KeyTable]:
        pending = [] if self._pending is None else [self._pending.table]
        return [*pending, self._table]

    def insert(self, rows: KeyRows) -> None:
        """Add the rows of new messages, whose sequences are above all that came before."""
        self._table.insert(rows)

    def find(self, hashes: Hashes) -> Found:
        """The rows of n keys.

        Raises:
            CorruptFile: a run is damaged.
        """
        ordinals: list[I64] = []
        parts: list[KeyRows] = []
        many: list[I64] = []
        order = np.argsort(hashes.high)
        ordered = hashes.take(order)
        high = ordered.high
        for table in self._tables():
            for chunk in table.chunks():
                low = np.searchsorted(chunk.high, high, "left")
                end = np.searchsorted(chunk.high, high, "right")
                is_many = end - low > FEW_ROWS
                low, end = low[~is_many], end[~is_many]
                many.append(np.flatnonzero(is_many))
                ordinal, member = spread(low, end)
                ordinal = np.flatnonzero(~is_many)[ordinal]
                is_same = chunk.low[member] == ordered.low[ordinal]
                ordinals.append(ordinal[is_same])
                parts.append(chunk.take(member[is_same]))
        found = find_in(self.runs, ordered)
        ordinals.append(found.ordinals)
        parts.append(found.rows)
        many.append(found.many)
        rows = joined(parts)
        where = np.concatenate(ordinals)
        too_many = sorted_unique(np.concatenate(many))
        return Found(order[where], rows.sequence, rows.due_ms, order[too_many])

    def pieces(self, hashes: Hashes, ordinal: int) -> Generator[KeyRows, None, None]:
        """All rows of one of n keys, some thousands at a time, as of the first one.

        What is inserted later does not come; runs that are merged meanwhile stay readable. Raises
        CorruptFile.
        """
        high, low = hashes.high[ordinal], hashes.low[ordinal]
        taken = [chunk for table in self._tables() for chunk in table.chunks()]
        runs = list(self.runs)
        for run in runs:  # before the first row goes out: a merge may end between two pieces
            run.hold()
        try:
            for chunk in taken:
                first = int(np.searchsorted(chunk.high, high, "left"))
                end = int(np.searchsorted(chunk.high, high, "right"))
                for at in range(first, end, _PIECE_ROWS):
                    rows = chunk.take(slice(at, min(at + _PIECE_ROWS, end)))
                    yield rows.take(rows.low == low)
            for run in runs:
                yield from run.pieces(high, low)
        finally:
            for run in runs:
                run.release()

    def newest(self, hashes: Hashes, ordinal: int, below: int, count: int) -> KeyRows:
        """Rows of one of n keys, the highest sequences below a bound first; at most `count`.

        Fewer: there are no more. Raises CorruptFile.
        """
        high, low = hashes.high[ordinal], hashes.low[ordinal]
        parts = [run.newest(high, low, below, count) for run in self.runs]
        for table in self._tables():
            for chunk in table.chunks():
                first = int(np.searchsorted(chunk.high, high, "left"))
                end = int(np.searchsorted(chunk.high, high, "right"))
                rows = chunk.take(slice(first, end))
                rows = rows.take((rows.low == low) & (rows.sequence < np.uint64(below)))
                parts.append(rows.take(slice(max(0, rows.size - count), None)))
        rows = joined(parts)
        # A row may be there twice, after the index was built again.
        last = np.unique(rows.sequence, return_index=True)[1][::-1]
        return rows.take(last[:count])

    def all_rows(self) -> KeyRows:
        """Every row, by hash and sequence: reads all runs. For tests and digests."""
        parts = [chunk for table in self._tables() for chunk in table.chunks()]
        parts += [run.sample(run.row_count) for run in self.runs]
        rows = joined(parts)
        return rows.take(np.lexsort((rows.sequence, rows.low, rows.high)))

    # -- checkpoints ------------------------------------------------------------------------------

    @property
    def state(self) -> KeyState:
        """For the manifest: what is durable once the works of the last `begin_checkpoint` ran."""
        run_ids = [run.run_id for run in self.runs]
        if self._pending is not None:
            run_ids.append(self._pending.run_id)
        return KeyState(tuple(run_ids), self.next_run_id, self.is_complete)

    def begin_checkpoint(self) -> list[Work]:
        """Capture what is in memory, and move `state` on to it.

        Returns:
            Works for another thread that make it durable. When all have run and the manifest is
            durable, call `end_checkpoint`. If one fails, just begin again later.
        """
        self.abandon_checkpoint()
        if not self._table.count:
            return []
        pending = self._pending = _Pending(self._table, self.take_run_id())
        self._table = KeyTable()
        rows = joined(pending.table.chunks())

        def write() -> None:
            pending.run = self.write_run(pending.run_id, [in_order(rows)], rows.size)

        return [write]

    def abandon_checkpoint(self) -> None:
        """It failed, if one had begun: its rows are in memory still."""
        if self._pending is not None:
            former, self._pending = self._pending, None
            if former.run is not None:
                former.run.close()
            self._table = KeyTable([*former.table.chunks(), *self._table.chunks()])

    def end_checkpoint(self) -> list[Work]:
        """The manifest that names `state` is durable: move on. No works are left."""
        if self._pending is not None and self._pending.run is not None:
            self.runs.append(self._pending.run)
            self._pending = None
        return []

    # -- merges -----------------------------------------------------------------------------------

    def take_run_id(self) -> int:
        """The number of a new run."""
        self.next_run_id += 1
        return self.next_run_id - 1

    def plan_merge(self, run_count: int) -> list[KeyRun]:
        """Adjacent runs to merge next, oldest first; empty for none: as in timewheel/compaction."""
        runs = self.runs
        for at in range(len(runs) - run_count + 1):
            group = runs[at : at + run_count]
            sizes = [run.row_count for run in group]
            if max(sizes) <= _TIER_RATIO * min(sizes):
                return group
        if len(runs) >= _TIER_RATIO * run_count:
            starts = range(len(runs) - run_count + 1)
            smallest = min(
                starts, key=lambda at: sum(run.row_count for run in runs[at : at + run_count])
            )
            return runs[smallest : smallest + run_count]
        return []

    def install(self, replaced: list[KeyRun], run: KeyRun | None) -> None:
        """A manifest is durable in which `run`, or nothing, stands for some neighbours."""
        at = self.runs.index(replaced[0]) if replaced else 0
        invariant(self.runs[at : at + len(replaced)] == replaced, "neighbours are merged")
        self.runs[at : at + len(replaced)] = [] if run is None else [run]
        for one in replaced:
            one.close()

    def removals(self) -> list[Work]:
        """Of files that no manifest names any more, or that a job left which failed."""
        named = {file_name(run_id) for run_id in self.state.run_ids}
        return [
            partial(self._disk.remove, join(self._directory, name))
            for name in self._disk.list(self._directory)
            if name.endswith(NAME_END) and name not in named
        ]

    def close(self) -> None:
        """Close all files."""
        for run in self.runs:
            run.close()
