"""A node with a bug on purpose: the child's side. What the checker must find.

python -m tests.support.buggy_node 'dispatch twice' --config ...
"""

import os
import sys
from dataclasses import replace
from itertools import count
from typing import Any, Final

import numpy as np

import node.consumers.receive_service
import node.shard.recovery
import storage.queues.consume_queue
from hourwheel import program
from node.broker.recurring import occurrence_planner
from node.broker.reschedule_service import RescheduleService
from node.catalog import positions
from node.consumers import dead_letter_service
from node.consumers.group_limits import GroupLimits
from node.delivery import reading_order
from node.delivery.expiry import Expired
from node.delivery.key_lines import NO_KEY, KeyLines
from node.delivery.resets import Resets
from node.process.command import main
from node.shard.apply import Applier
from node.shard.dispatcher import Dispatcher
from storage.queues.ack_state import AckStates
from storage.views import unit
from storage.views.catalog import Catalog
from storage.views.catalog_items import START_NOW_MS
from storage.views.recurrences import State
from timewheel.wheel import Wheel

EARLY_MS: Final = 400
MARK_EVERY: Final = 50
SLOT_DROPPED: Final = 3
"""One second in so many is dropped."""
REPEATED: Final = 10
"""One occurrence in so many is wrong."""


def acknowledge_before_fsync() -> None:
    """Nothing is ever made durable; only a power failure shows it."""
    for name in ("fdatasync", "fsync"):
        setattr(os, name, lambda _: None)


class LazyMark:
    """A high watermark that is written down now and then."""

    def __init__(self, mark: Any) -> None:
        self._mark, self._count = mark, 0

    def store(self, offset: Any) -> None:
        self._count += 1
        if self._count % MARK_EVERY == 0:
            self._mark.store(offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mark, name)


def truncate_at_the_high_watermark() -> None:
    """A replica that starts cuts off what it did not note as committed; its master may be gone.

    As Kafka did before KIP-101: what was acknowledged in between is lost.
    """
    real: Any = node.shard.recovery._open

    def open_and_cut(*arguments: Any) -> Any:
        opened = real(*arguments)
        if opened.shard.committed_offset < opened.shard.log.end_offset:
            opened.shard.truncate(opened.shard.committed_offset)
        opened.watermark = LazyMark(opened.watermark)
        return opened

    _patch(node.shard.recovery, "_open", open_and_cut)


def drop_a_slot() -> None:
    """What is due in some seconds leaves the wheel and arrives nowhere."""
    real: Any = Wheel.take

    def take(self: Wheel, to: Any) -> Any:
        units = real(self, to)
        return units[units["due_ms"] // 1_000 % SLOT_DROPPED != 0]

    _patch(Wheel, "take", take)


def tick_early() -> None:
    """The wheel is ahead of the clock, and so is the gate of the queues."""
    real: Any = unit.release_ms
    _patch(Dispatcher, "lead_ms", property(lambda _: EARLY_MS))
    # The node looks once more before it hands out: that is fooled, too.
    for module in (storage.queues.consume_queue, node.consumers.receive_service):
        vars(module)["release_ms"] = lambda units: real(units) - EARLY_MS


def dispatch_twice() -> None:
    """What is due is released, and released again."""
    real: Any = Applier._release

    def release(self: Applier, units: Any) -> None:
        real(self, units)
        real(self, units)

    _patch(Applier, "_release", release)


def forget_the_order() -> None:
    """Ordered groups get messages as they come, whatever their ordering keys."""
    real: Any = KeyLines.add

    def add(self: KeyLines, position: int, key: int, window: Any) -> None:
        del key
        real(self, position, NO_KEY, window)

    _patch(KeyLines, "add", add)


def hold_any_number() -> None:
    """Groups have no limits."""
    _patch(GroupLimits, "allowance", lambda *_: None)


def forget_expiries() -> None:
    """Who receives gets messages that have expired, too."""
    _patch(Expired, "find", lambda *_: None)


def lowest_first() -> None:
    """Of what is visible to a group the lowest priority comes first."""
    vars(reading_order)["sorted"] = lambda levels, reverse: sorted(levels, reverse=not reverse)


def leave_one_unmoved() -> None:
    """Of messages that are moved to one instant the last is told to be, and is not."""
    real: Any = RescheduleService.reschedule

    async def reschedule(self: Any, ids: Any, times_ms: Any, *, are_delays: bool) -> Any:
        if len(ids) < 2 or len(set(times_ms.tolist())) > 1:
            return await real(self, ids, times_ms, are_delays=are_delays)
        found = await real(self, ids[:-1], times_ms[:-1], are_delays=are_delays)
        return np.append(found, found[-1:])

    _patch(RescheduleService, "reschedule", reschedule)


def repeat_an_occurrence() -> None:
    """Now and then a recurrence comes again at the instant at which it has come before."""
    real: Any = vars(occurrence_planner)["plan_next"]
    calls = count()

    def plan_next(schedule: Any, missed: int, after_ms: int, now_ms: int) -> Any:
        planned = real(schedule, missed, after_ms, now_ms)
        is_chosen = next(calls) % REPEATED == REPEATED - 1
        return planned._replace(due_ms=after_ms) if is_chosen else planned

    vars(occurrence_planner)["plan_next"] = plan_next
    _patch(State, "accepts", lambda self, index, _: index == self.next_index)


def leave_out_an_occurrence() -> None:
    """Now and then a recurrence leaves an instant out."""
    real: Any = vars(occurrence_planner)["plan_next"]
    calls = count()

    def plan_next(schedule: Any, missed: int, after_ms: int, now_ms: int) -> Any:
        planned = real(schedule, missed, after_ms, now_ms)
        is_chosen = next(calls) % REPEATED == REPEATED - 1 and planned.due_ms is not None
        return real(schedule, missed, planned.due_ms, now_ms) if is_chosen else planned

    vars(occurrence_planner)["plan_next"] = plan_next


def keep_what_was_done() -> None:
    """A group that is reset stays done with what it was done with."""
    _patch(AckStates, "begin_at", lambda *_: None)


def let_old_receipts_count() -> None:
    """What was received before a group's reset may still be acknowledged after it."""
    _patch(Resets, "is_stale", lambda *_: False)


def leave_one_dead() -> None:
    """Of dead letters that are given back together one is left out."""
    real: Any = vars(dead_letter_service)["redrive_rows"]

    def redrive_rows(group_queue: Any, ranges: Any, now_ms: int) -> Any:
        *others, (first, end) = ranges
        return real(group_queue, [*others, (first + 1, end + 1)], now_ms)

    vars(dead_letter_service)["redrive_rows"] = redrive_rows


def begin_with_now() -> None:
    """New members of broadcasts begin with what comes, whatever they have asked for."""
    real: Any = vars(positions)["rows_to_start"]

    async def rows_to_start(shard: Any, group: Any, topic: Any, now_ms: int) -> Any:
        if group.is_member:
            group = replace(group, start_ms=START_NOW_MS, first_new_topic_id=0)
        return await real(shard, group, topic, now_ms)

    vars(positions)["rows_to_start"] = rows_to_start


def serve_paused_groups() -> None:
    """A group is told to be paused, and gets messages all the same."""
    real: Any = Catalog.find_group_by_id

    def find_group_by_id(self: Catalog, group_id: Any) -> Any:
        found = real(self, group_id)
        return found and replace(found, is_paused=False)

    _patch(Catalog, "find_group_by_id", find_group_by_id)


def _patch(owner: object, name: str, replacement: object) -> None:
    setattr(owner, name, replacement)


BUGS: Final = {
    "none": lambda: None,
    "acknowledge before fsync": acknowledge_before_fsync,
    "truncate at the high watermark": truncate_at_the_high_watermark,
    "drop a slot": drop_a_slot,
    "tick early": tick_early,
    "dispatch twice": dispatch_twice,
    "forget the order": forget_the_order,
    "hold any number": hold_any_number,
    "forget expiries": forget_expiries,
    "lowest first": lowest_first,
    "leave one unmoved": leave_one_unmoved,
    "repeat an occurrence": repeat_an_occurrence,
    "leave out an occurrence": leave_out_an_occurrence,
    "keep what was done": keep_what_was_done,
    "let old receipts count": let_old_receipts_count,
    "leave one dead": leave_one_dead,
    "begin with now": begin_with_now,
    "serve paused groups": serve_paused_groups,
}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    program.run(lambda: main)
