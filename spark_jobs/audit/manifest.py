"""The small state of a checkpoint against the log: everything that a node goes on from.

A manifest says where its views stand (`applied_offset`) and holds the small ones whole: topics,
groups, what each group has resolved, what each producer is remembered by, epochs, counts. All of it
follows from the log below that offset, so all of it is made again here and compared, field by
field. What names files is compared by those who read the files (`checks.wheel`, `audit.join`,
`audit.sequences`); only where the day level begins is a node's own choice.

Of a log whose beginning is gone only what its records alone say is compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint, ProducerState
from hourwheel.types import FIRST_OFFSET, QUEUE_BITS
from spark_jobs.audit.checks.windows import Window
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.requests import Request
from spark_jobs.audit.facts.scan import NO_MOMENT, Moment
from spark_jobs.audit.facts.transactions import Known, follow
from spark_jobs.audit.shard import ShardState
from spark_jobs.logs.replica import ERROR, Replica, ShardCopy
from storage.views.catalog import Catalog
from storage.views.producer_state import DEDUPED
from storage.views.transactions import Transactions

if TYPE_CHECKING:
    from spark_jobs.audit.join import Joining

Array = NDArray[Any]
_REPORTED_MAX: Final = 20
"""At most so many differences of one field are reported."""
_SECOND_MS: Final = 1_000


@dataclass(frozen=True)
class Difference:
    """A field of a manifest that is not what the log makes it."""

    field: str
    found: object
    wanted: object
    sequence: int = -1
    position: int = -1
    topic: str = ""

    def finding(self, shard: int, node: str, file: str, offset: int) -> Finding:
        """It as a finding."""
        return Finding(
            ERROR,
            "checkpoint",
            shard,
            node,
            file,
            offset,
            self.sequence,
            self.position,
            self.topic,
            detail=f"{self.field} of the checkpoint: {self.found}; by the log: {self.wanted}",
        )


def check_manifests(state: ShardState, joining: "Joining") -> None:
    """Compare every replica's manifest with the log, as far as the log goes."""
    for replica, copy in state.copies:
        manifest = copy.manifest
        if manifest is None or not 0 < copy.applied_offset <= state.end_offset:
            continue
        found = _Manifest(state, joining, replica, copy, manifest).differences()
        file = copy.path("checkpoint")
        state.add(
            *(one.finding(state.shard, replica.node, file, copy.applied_offset) for one in found)
        )


class _Manifest:
    def __init__(
        self,
        state: ShardState,
        joining: "Joining",
        replica: Replica,
        copy: ShardCopy,
        manifest: Checkpoint,
    ) -> None:
        self._state, self._joining, self._manifest = state, joining, manifest
        self._node, self._applied = replica.node, copy.applied_offset

    def differences(self) -> Iterator[Difference]:
        facts = self._state.facts
        moment = facts.moments.get(self._applied, NO_MOMENT)
        if facts.first is None:
            return
        if facts.first.end_offset == self._applied:  # nothing was written since it was trimmed
            moment = moment._replace(next_sequence=facts.first.next_sequence)
        if moment.next_sequence < 0:
            yield Difference("applied offset", self._applied, "no record ends there")
            return
        yield from self._of_records(moment)
        yield from self._files()
        if self._state.is_whole:
            yield from self._counts(moment)
            yield from self._catalog()
            yield from self._producers()
            yield from self._transactions()
            yield from self._acknowledged()

    # -- what records alone say -------------------------------------------------------------------

    def _of_records(self, moment: Moment) -> Iterator[Difference]:
        manifest, state = self._manifest, self._state
        yield from _differing("next sequence", manifest.next_sequence, moment.next_sequence)
        count = manifest.sequence_index_count
        yield from _differing("sequences in the index", count, moment.next_sequence)
        yield from _differing(
            "epochs",
            [
                (one.epoch, one.start_offset, one.start_sequence)
                for one in manifest.epochs
                if one.start_offset >= state.start_offset
            ],
            [
                (one.epoch, one.offset, one.next_sequence)
                for one in state.facts.epoch_starts
                if one.offset < self._applied
            ],
        )

    def _files(self) -> Iterator[Difference]:
        manifest = self._manifest
        numbers = [one.run_id for one in manifest.runs]
        last = max([0, *numbers, *(one.delay_log_id for one in manifest.delay_logs)])
        if manifest.next_run_id <= last:
            yield Difference("number of the next run", manifest.next_run_id, f"above {last}")
        if len(set(numbers)) != len(numbers):
            yield Difference("runs", numbers, "each of them once")

    def _counts(self, moment: Moment) -> Iterator[Difference]:
        manifest, state, applied = self._manifest, self._state, self._applied
        ended = state.ledger.ended.get(applied, np.zeros(3, np.int64))
        scheduled = self._joining.retries.scheduled
        discarded = sum(one.is_discarded and one.end < applied for one in scheduled)
        second = manifest.cursor.due_ms // _SECOND_MS * _SECOND_MS
        again = sum(
            one.end < applied and not one.is_discarded and one.unit.due_ms >= second
            for one in scheduled
        )
        levels = [level for offset, level in state.facts.levels if offset < applied]
        floors = state.facts.floors
        reached = floors["sequence_floor"][floors["offset"] < np.uint64(applied)]
        floor = int(reached.max(initial=0))
        yield from _differing("sequence floor", manifest.sequence_floor, floor)
        yield from _differing("store_ms", manifest.store_ms, moment.store_ms)
        yield from _differing("feature level", manifest.feature_level, max(levels, default=0))
        yield from _differing("cancelled messages", manifest.cancelled_count, int(ended[0]))
        discarded += int(ended[1])
        yield from _differing("discarded messages", manifest.discarded_count, discarded)
        if (manifest.cursor.due_ms, manifest.cursor.sequence) == state.dispatch.cursor_at(applied):
            local = int(ended[2]) + again
            yield from _differing("released of this second", manifest.cursor.local_index, local)

    # -- topics, groups, producers ----------------------------------------------------------------

    def _catalog(self) -> Iterator[Difference]:
        manifest, wanted = self._manifest, self._state.line.catalogs.get(self._applied)
        if wanted is None:
            return
        try:
            mine = Catalog.from_manifest(manifest)
        except errors.HourwheelError as error:
            yield Difference("catalog", error.message, "topics, groups and subscriptions")
            return
        for name, found, right in (
            ("topic", mine.topics(), wanted.topics()),
            ("group", mine.groups(), wanted.groups()),
            ("subscription", mine.subscriptions(), wanted.subscriptions()),
        ):
            pair = [[one.config() for one in each] for each in (found, right)]
            yield from _differing_items(name, *pair)
        yield from _differing("next topic's number", manifest.next_topic_id, wanted.next_topic_id)
        yield from _differing("next group's number", manifest.next_group_id, wanted.next_group_id)
        yield from _differing(
            "next own topic's number", mine.next_internal_id, wanted.next_internal_id
        )

    def _producers(self) -> Iterator[Difference]:
        state = self._state
        facts = state.facts
        before = facts.requests["offset"] < self._applied
        expires = facts.expires[facts.expires["offset"] < self._applied]
        deleted = {key: at for key, at in state.line.deleted.items() if at < self._applied}
        wanted = Request.remembered(facts.requests[before], expires, deleted)
        self._add_answers(wanted)
        yield from _differing_items("producer", list(self._manifest.producers), wanted)

    def _add_answers(self, producers: Sequence[ProducerState]) -> None:
        """Add the answers about dedup keys: they are remembered with the batches that got them."""
        answers = self._state.answers
        for batch in (one for each in producers for one in each.batches) if answers else ():
            rows = [
                (at, *answers[batch.base_sequence + at])
                for at in range(batch.count)
                if batch.base_sequence + at in answers
            ]
            batch.deduped = np.array(rows, DEDUPED).tobytes()

    def _transactions(self) -> Iterator[Difference]:
        state, applied = self._state, self._applied
        facts = state.facts
        deleted = {key: at for key, at in state.line.deleted.items() if at < applied}
        prepares, steps, commits = (
            one[one["offset"] < applied] for one in (facts.prepares, facts.steps, facts.commits)
        )
        wanted = follow(prepares, steps, commits, deleted).known
        try:
            mine = Transactions(self._manifest.transactions)
        except errors.HourwheelError as error:
            yield Difference("transactions", error.message, "rows of transactions")
            return
        offsets = [
            at
            for is_open in (True, False)
            for at in mine.offsets_after(FIRST_OFFSET, is_open=is_open)
        ]
        found: dict[int, Known] = {
            one.offset: Known(one.state, one.checks, one.base_sequence)
            for one in map(mine.find, offsets)
            if one is not None
        }
        for offset in sorted(found.keys() | wanted.keys()):
            name = f"transaction prepared at {offset}"
            yield from _differing(name, found.get(offset), wanted.get(offset))

    # -- acknowledgements -------------------------------------------------------------------------

    def _acknowledged(self) -> Iterator[Difference]:
        wanted = self._joining.windows_at(self._applied)
        found = {
            (one.group_id, one.topic_queue): _bounds(one.floor_position, one.resolved_range_deltas)
            for one in self._manifest.acks
            if one.floor_position or one.resolved_range_deltas  # else it holds, and no more
        }
        for key in sorted(found.keys() | wanted.keys()):
            mine, theirs = wanted.get(key, ()), found.get(key, ())
            if mine == theirs:
                continue
            group_id, topic_queue = key
            at = next(
                (a for a, b in zip(mine, theirs, strict=False) if a != b),
                max((*mine, *theirs), default=0),
            )
            line = self._state.line
            group = line.group_names.get(group_id, f"#{group_id}")
            name = f"what group {group} has resolved of queue {topic_queue:08x}"
            topic = line.name_of(topic_queue >> QUEUE_BITS)
            yield Difference(name, _ranges(theirs), _ranges(mine), position=at, topic=topic)


def _bounds(floor: int, deltas: Any) -> Window:
    """(floor, first, end, first, end, ...) of the resolved ranges."""
    return (floor, *np.cumsum([floor, *deltas]).tolist()[1:])


def _ranges(bounds: Window) -> str:
    if not bounds:
        return "nothing"
    rest = bounds[1:7]
    pairs = [f"[{low}, {high})" for low, high in zip(rest[::2], rest[1::2], strict=False)]
    more = ", ..." if len(bounds) > len(rest) + 1 else ""
    return ", ".join([f"all below {bounds[0]}", *pairs]) + more


def _differing(field: str, found: object, wanted: object) -> Iterator[Difference]:
    if found != wanted:
        yield Difference(field, found, wanted)


def _differing_items(name: str, found: list[Any], wanted: list[Any]) -> Iterator[Difference]:
    """Messages of protobuf, in their order: the first of those that are not the same."""
    if found == wanted:
        return
    mine, theirs = [str(one) for one in wanted], [str(one) for one in found]
    shown = 0
    for one, other in zip([*theirs, *[""] * len(mine)], [*mine, *[""] * len(theirs)], strict=False):
        if one != other and shown < _REPORTED_MAX:
            shown += 1
            yield Difference(name, _short(one), _short(other))


def _short(text: str) -> str:
    return " ".join(text.split()) or "none"
