"""A shard's views held against the naive reading of its log, and against a rebuild of them."""

from collections import Counter
from dataclasses import replace

import numpy as np

from chaos.log_model import LogModel
from chaos.log_parts.entries import Entry
from hourwheel.formats.meta import decode
from hourwheel.formats.tag_gene import GENE_UNKNOWN, sparse_gene
from hourwheel.types import FIRST_OFFSET, Offset, Position, TopicQueue
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import ShardConfig, open_shard
from node.shard.shard import Shard
from node.shard.views import Views
from storage.views.dedup_keys import pack_parts, unpack_rows
from storage.views.key_rows import hash_keys
from storage.views.moved import AT_ONCE_MS
from storage.views.recurrences import NEVER_MS, NO_SEQUENCE
from storage.views.unit import Units
from tests.sim.disk import SimulatedDisk


def entries_of(units: Units) -> list[Entry]:
    """Units as the model has them: a first release is one, also of what was moved."""
    names = ("due_ms", "sequence", "attempt", "topic_queue", "store_ms")
    columns = [units[name].tolist() for name in names]
    columns[2] = np.maximum(units["attempt"], 1).tolist()
    return [Entry(*row) for row in zip(*columns, strict=True)]


def check_views(views: Views, model: LogModel) -> None:
    """Everything that the views hold is what the log says."""
    assert views.applied_offset == model.offset
    assert views.next_sequence == model.next_sequence
    assert tuple(views.cursor.key) == model.cursor
    assert Counter(entries_of(views.pending_units())) == Counter(model.pending)
    assert views.counters.discarded == model.discarded_count
    assert views.counters.cancelled == len(model.cancelled)
    assert views.sequence_floor == model.sequence_floor
    expire = {model.origins[at] for at, meta in model.metas.items() if decode(meta).expires_ms}
    assert expire & model.topics.keys() <= views.expiring_topics <= model.topics.keys()
    assert views.queues.topic_queues() == sorted(model.queues)
    for number, entries in model.queues.items():
        _check_queue(views, number, entries, model)
    for (group, number), window in views.acks.items():
        kept = range(model.starts.get(number, 0), len(model.queues[number]))
        resolved = model.resolved.get((group, number), set()).intersection(kept)
        assert {at for at in kept if window.is_resolved(Position(at))} == resolved
        places = {
            at: model.held[group, number, at] for at in kept if (group, number, at) in model.held
        }
        assert {at: tuple(one) for at, one in window.held.items()} == places
    resolved_ones = {key for key, one in model.resolved.items() if one}
    assert resolved_ones | {key[:2] for key in model.held} == {key for key, _ in views.acks.items()}
    _check_sequences(views, model)
    _check_moved(views, model)
    _check_transactions(views, model)
    _check_recurrences(views, model)
    _check_dedup_keys(views, model)


def _check_transactions(views: Views, model: LogModel) -> None:
    """Each that is known, with its outcome."""
    transactions, known = views.transactions, model.deals.known
    offsets = {True: [], False: []}  # type: dict[bool, list[int]]
    for offset, deal in known.items():
        one = transactions.find(Offset(offset))
        assert one is not None
        assert (one.state.name, one.checks, one.base_sequence) == (
            *(deal.state, deal.checks, deal.base_sequence),
        )
        assert one.message_count == deal.message_count
        found = transactions.find_token(one.token)
        assert found == one
        offsets[one.is_open].append(offset)
    assert transactions.offsets_after(FIRST_OFFSET, is_open=True) == sorted(offsets[True])
    assert transactions.offsets_after(FIRST_OFFSET, is_open=False) == model.deals.decided[::-1]
    assert transactions.floor_offset == min(offsets[True], default=None)


def _check_dedup_keys(views: Views, model: LogModel) -> None:
    """Each pending message that has a dedup key has a row, and of pending ones only they."""
    rows = unpack_rows(pack_parts(views.dedup_keys.capture()))
    assert views.dedup_keys.count == len(rows)
    names = zip(*(rows[name].tolist() for name in ("topic_id", "high", "low")), strict=True)
    found = dict(zip(rows["sequence"].tolist(), names, strict=True))
    waiting = {one.sequence for one in model.waiting.values() if one.attempt == 1}
    wanted = {at: name for at, name in model.unique.names.items() if at in waiting}
    assert {at: name for at, name in found.items() if at in waiting} == wanted


def _check_moved(views: Views, model: LogModel) -> None:
    """What was moved is known, as far as an entry of it lies ahead."""
    known = {key: one for key, one in model.moved.items() if (one[1], key) > model.cursor}
    every = np.array(sorted(model.moved), np.uint64)
    rows = views.moved.find(every)
    found = dict(zip(every.tolist(), rows.due_ms.tolist(), strict=True))
    for sequence, (due_ms, _) in known.items():
        wanted = AT_ONCE_MS if sequence in model.leaving else due_ms
        assert found[sequence] == wanted
    assert views.moved.count == int(rows.are_moved.sum()) >= len(known)


def _check_recurrences(views: Views, model: LogModel) -> None:
    expected = model.recurring.recurrences
    assert list(views.recurrences.names_after("")) == sorted(expected)
    assert sorted(views.recurrences.versions()) == sorted(one.version for one in expected.values())
    for name, one in expected.items():
        state = views.recurrences.find(name)
        assert state is not None
        assert views.recurrences.find_name(one.version) == name
        last, due_ms = one.own[-1] if one.own else (NO_SEQUENCE, NEVER_MS)
        assert state == (
            *(one.version, one.next_index, len(one.sequences), one.count_max, one.after_ms),
            *(due_ms, last, len(views.recurrences.definition(name)), state.missed),
            int(one.is_paused),
        )


def _check_queue(views: Views, number: int, expected: list[Entry], model: LogModel) -> None:
    queue, start = views.queues.get(TopicQueue(number)), model.starts.get(number, 0)
    assert queue.end_position == len(expected)
    assert queue.start_position == start
    found: list[Entry] = []
    while start + len(found) < len(expected):
        found += entries_of(queue.read(start + len(found), 4_096))
    assert found == expected[start:]
    _check_genes(views, number, model)


def _check_genes(views: Views, number: int, model: LogModel) -> None:
    """A gene says what it should, or that nobody knows."""
    queue = views.queues.get(TopicQueue(number))
    at = int(queue.start_position)
    while at < queue.end_position:
        units = queue.read(at, 4_096)
        for sequence, gene in zip(
            units["sequence"].tolist(), units["tag_gene"].tolist(), strict=True
        ):
            raw = model.metas.get(sequence, b"")
            assert gene in {GENE_UNKNOWN if raw else 0, sparse_gene(decode(raw).tags)}
        at += len(units)


def _check_sequences(views: Views, model: LogModel) -> None:
    every = np.arange(model.next_sequence + 1, dtype=np.uint64)
    due_ms, states = views.sequences.read_many(every)
    found = {at: due for at, due in enumerate(due_ms.tolist()) if states[at]}
    assert found == model.messages
    cancelled = set(np.flatnonzero(views.tombstones.contains(every)).tolist())
    assert {one for one in model.cancelled if model.is_known(one)} <= cancelled <= model.cancelled
    assert views.tombstones.count == len(cancelled)
    if views.keys.is_complete:
        _check_keys(views, model)


def _check_keys(views: Views, model: LogModel) -> None:
    """Each known message has its rows, and only messages have."""
    expected: set[tuple[int, int, int, int]] = set()
    for sequence, due_ms in model.messages.items():
        keys = [key.encode() for key in decode(model.metas.get(sequence, b"")).keys]
        hashes = hash_keys([model.origins[sequence]] * len(keys), keys)
        for high, low in zip(hashes.high.tolist(), hashes.low.tolist(), strict=True):
            expected.add((high, low, sequence, due_ms))
    rows = [*zip(*(column.tolist() for column in views.keys.all_rows()), strict=True)]
    found = set(rows)
    assert len(found) == len(rows)
    known = {row for row in expected if model.is_known(row[2])}
    assert known <= found <= expected


def rebuilt_digest(shard: Shard, place: ShardPlace) -> str:
    """The digest of views that are built anew from the whole log, copied up to the applied offset.

    With other sizes of everything that is local: where units lie must not matter.
    """
    log, copy = shard.log, SimulatedDisk()
    assert log.start_offset == 0
    assert log.flushed_end_offset == shard.views.applied_offset
    copy.make_dir(place.under("log"))
    for segment in log.segments():
        size = segment.end_offset - segment.start_offset + 64
        file = copy.open(segment.path, create=True)
        file.pwrite([place.disk.open(segment.path).pread(size, 0)], 0)
    opened = open_shard(replace(place, disk=copy), ShardConfig())
    return opened.shard.views.digest()
