"""Seeded faults: edit copies of real logs so that exactly one thing is wrong, in the true format.

    expected = FAULTS["resurrected"](Cluster(nodes), random.Random(7))     # what must be found

A `Cluster` is the directories of some replicas of one log (`log_maker.replicate`). Each function of
`FAULTS` changes the files of one of them, or of all, makes every checksum anew (but where the
checksum is the point), and says which errors an audit must name for it: check, node, file, offset,
sequence, position; nothing more, nothing less.

Edits are in place, so that all other bytes of log and views stay as the node has written them.
Where a record must come to it, it comes to the end, behind the checkpoints.
"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from chaos.log_parts.entries import Entry
from hourwheel.crc32c import crc32c
from hourwheel.formats.meta import decode
from hourwheel.formats.record_batch import (
    DISPATCH_ROW,
    RESOLVE_ROW,
    Kind,
    Outcome,
    RecordBatch,
    build_publish,
    build_rows,
)
from hourwheel.types import TopicQueue
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, pack_file_header
from storage.log.epochs import EpochFile
from tests.support.broken_logs import IDENTITY, read_queue, rewrite_queue
from tests.support.log_copies import (
    SHARD,
    Cluster,
    Expected,
    changed,
    chunk_file,
    log_file,
    with_rows,
)
from tests.support.log_maker import segments

_FAR: Final = 1 << 20
_LEAD_MS_MAX: Final = 1_000
_HOUR_MS: Final = 3_600_000


# --- queues: one replica ------------------------------------------------------------------------


_BY_ID: Final = (Kind.CANCEL, Kind.RESCHEDULE)


def drop_entry(
    cluster: Cluster, rng: random.Random, *, everywhere: bool = False, retries: bool = False
) -> list[Expected]:
    """A released message is in no queue of a replica, or of any."""
    queue = rng.choice(cluster.own_queues(retries=retries))
    # With a cancel or a move that was too late, the missing entry would be blamed on that.
    named = {
        int(one) for kind in _BY_ID for each in cluster.of(kind) for one in each.rows["sequence"]
    }
    entries = enumerate(cluster.entries(TopicQueue(queue)))
    at = rng.choice([at for at, one in entries if one.sequence not in named])
    found = []
    for node in cluster.nodes if everywhere else [rng.choice(cluster.nodes)]:
        units = read_queue(node, TopicQueue(queue))
        rewrite_queue(node, TopicQueue(queue), np.delete(units, at))
        offset, sequence = cluster.released_by[queue][at], int(units["sequence"][at])
        file = chunk_file(TopicQueue(queue))
        found.append(Expected("queue-missing", node.name, file, offset, sequence, at))
    return found


def drop_entry_everywhere(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The same on all replicas: they agree, and are all wrong."""
    return drop_entry(cluster, rng, everywhere=True)


def drop_retry(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A message that is tried again, or a dead letter, is not in its queue on a replica."""
    return drop_entry(cluster, rng, retries=True)


def double_retry(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """One of them is there once more."""
    return double_entry(cluster, rng, retries=True)


def double_entry(cluster: Cluster, rng: random.Random, *, retries: bool = False) -> list[Expected]:
    """A message is in a queue of a replica once more, somewhere behind."""
    node = rng.choice(cluster.nodes)
    queue = rng.choice(cluster.own_queues(retries=retries))
    units = read_queue(node, TopicQueue(queue))
    at = rng.randrange(len(units))
    to = rng.randrange(at, len(units)) + 1
    rewrite_queue(node, TopicQueue(queue), np.insert(units, to, units[at]))
    sequence = int(units["sequence"][at])
    return [Expected("queue-doubled", node.name, chunk_file(TopicQueue(queue)), -1, sequence, to)]


def _add_entry(
    cluster: Cluster, rng: random.Random, check: str, sequences: set[int]
) -> list[Expected]:
    node = rng.choice(cluster.nodes)
    queues = set(cluster.own_queues())
    every = [cluster.unit_of(one) for one in sorted(sequences)]
    unit = rng.choice([one for one in every if int(one["topic_queue"][0]) in queues])
    queue, sequence = int(unit["topic_queue"][0]), int(unit["sequence"][0])
    units = read_queue(node, TopicQueue(queue))
    at = rng.randrange(len(units) + 1)
    rewrite_queue(node, TopicQueue(queue), np.insert(units, at, unit))
    return [Expected(check, node.name, chunk_file(TopicQueue(queue)), -1, sequence, at)]


def early_entry(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A pending message is in a queue of a replica."""
    pending = {one.sequence for one in cluster.model.pending if one.attempt == 1}
    return _add_entry(cluster, rng, "queue-early", pending)


def resurrect(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A cancelled message is in a queue of a replica."""
    return _add_entry(cluster, rng, "queue-cancelled", cluster.model.cancelled)


def enqueue_void(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A message of a refused duplicate is in a queue of a replica."""
    every = set(range(cluster.model.next_sequence))
    return _add_entry(cluster, rng, "queue-void", every - cluster.model.messages.keys())


def swap_entries(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """Two entries of a queue of a replica, at any distance, have changed places."""
    node, queue = rng.choice(cluster.nodes), rng.choice(cluster.own_queues())
    units = read_queue(node, TopicQueue(queue))
    low, high = sorted(rng.sample(range(len(units)), 2))
    units[[low, high]] = units[[high, low]]
    rewrite_queue(node, TopicQueue(queue), units)
    sequence = int(units["sequence"][low])
    return [Expected("queue-order", node.name, chunk_file(TopicQueue(queue)), -1, sequence, low)]


# --- the log: one replica -----------------------------------------------------------------------


def flip_byte(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A bit of a batch is another one on a replica, and its CRC tells."""
    node = rng.choice(cluster.nodes)
    batch = rng.choice(cluster.of(Kind.PUBLISH))
    at = rng.randrange(batch.header.total_bytes - 8)
    raw = bytearray(bytes(batch.head) + bytes(batch.payload))
    raw[at] ^= 1 << rng.randrange(8)
    cluster.put(batch, bytes(raw), node)
    offset = batch.header.offset
    sequence = batch.header.base_sequence if at >= len(batch.head) else -1
    return [Expected("log-corrupt", node.name, log_file(node, offset), offset, sequence)]


def diverge(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A replica has another body in a batch, and all CRCs are those of that body."""
    node = rng.choice(cluster.nodes)
    every = [one for one in cluster.of(Kind.PUBLISH) if one.body_len.any()]
    batch = rng.choice(every)
    at = int(rng.choice(np.flatnonzero(batch.body_len).tolist()))
    ends = np.cumsum(batch.meta_len.astype(np.int64) + batch.body_len)
    payload, columns = bytearray(batch.payload), batch.header.column_bytes
    payload[columns + int(ends[at]) - 1] ^= 0x20
    begin = int(ends[at - 1]) if at else 0
    crc = crc32c(bytes(payload[columns + begin : columns + int(ends[at])]))
    crcs = bytes(batch.payload).index(batch.crc.tobytes(), 16 * batch.header.count)
    payload[crcs + 4 * at : crcs + 4 * at + 4] = crc.to_bytes(4, "little")
    cluster.put(batch, changed(batch, bytes(payload)), node)
    offset = batch.header.offset
    return [Expected("replica-diverges", node.name, log_file(node, offset), offset)]


def corrupt_message(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A byte of a body is another one on all replicas; the batch's CRCs are those of that body."""
    batch = rng.choice([one for one in cluster.of(Kind.PUBLISH) if one.body_len.any()])
    at = int(rng.choice(np.flatnonzero(batch.body_len).tolist()))
    end = int((batch.meta_len.astype(np.int64) + batch.body_len)[: at + 1].sum())
    payload = bytearray(batch.payload)
    payload[batch.header.column_bytes + end - 1] ^= 0x20
    cluster.put(batch, changed(batch, bytes(payload)))
    offset, node = batch.header.offset, cluster.nodes[0]
    sequence = batch.header.base_sequence + at
    return [Expected("message-corrupt", node.name, log_file(node, offset), offset, sequence)]


def lose_segment(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A file of a replica's log is gone, neither the first nor the last."""
    node = rng.choice(cluster.nodes)
    before, lost = rng.choice(list(zip(segments(node), segments(node)[1:-1], strict=False)))
    lost.unlink()
    file = f"{SHARD}/log/{before.name}"
    return [Expected("segment-missing", node.name, file, int(lost.stem))]


def lose_segment_everywhere(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The same file is gone on all replicas: nobody can tell what was in it."""
    at = rng.randrange(1, len(segments(cluster.nodes[0])) - 1)
    found = []
    for node in cluster.nodes:
        before, lost = segments(node)[at - 1 : at + 1]
        lost.unlink()
        file = f"{SHARD}/log/{before.name}"
        found.append(Expected("segment-missing", node.name, file, int(lost.stem)))
    return [*found, Expected("log-hole", offset=found[0].offset)]


def lose_end(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The last file of a replica's log is gone; its checkpoint knew of it."""
    node = rng.choice(cluster.nodes)
    *_, before, lost = segments(node)
    lost.unlink()
    file = f"{SHARD}/log/{before.name}"
    return [Expected("log-short", node.name, file, int(lost.stem))]


def falsify_epochs(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A replica's epoch history has an epoch begin elsewhere."""
    node, path = rng.choice(cluster.nodes), f"{SHARD}/epochs"
    disk = RealDisk(node)
    entries = EpochFile.open(disk, path, IDENTITY).entries
    at = rng.randrange(1, len(entries))
    wrong = int(entries[at].start_offset) + 8
    raw = b"".join(
        int(one.epoch).to_bytes(8, "little")
        + (wrong if number == at else int(one.start_offset)).to_bytes(8, "little")
        for number, one in enumerate(entries)
    )
    atomic_file.write(disk, path, pack_file_header(FileType.EPOCHS, IDENTITY), raw)
    return [Expected("epoch-history", node.name, path, wrong)]


# --- the log: all replicas ----------------------------------------------------------------------


def uncover_message(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A DISPATCH ends before the last message that it released; the next begins where it did."""
    ordinal, last = rng.choice(_uncoverable(cluster))
    batch, after = cluster.of(Kind.DISPATCH)[ordinal : ordinal + 2]
    rows = batch.rows.copy()
    rows["to_due_ms"], rows["to_sequence"] = last.due_ms, last.sequence - 1
    cluster.put(batch, with_rows(batch, rows))
    return [Expected("dispatch-chain", offset=after.header.offset)]


def _uncoverable(cluster: Cluster) -> list[tuple[int, Entry]]:
    """DISPATCH records, by number, between which and the next nothing asks for their last one."""
    found, every = [], cluster.of(Kind.DISPATCH)
    for ordinal, (batch, after) in enumerate(pairwise(every)):
        low, high = batch.header.offset, after.header.offset
        units = [
            (one, queue, at)
            for queue, offsets in cluster.released_by.items()
            for at, (offset, one) in enumerate(
                zip(offsets, cluster.entries(TopicQueue(queue)), strict=True)
            )
            if offset == low and one.attempt == 1
        ]
        if not units:
            continue
        last, queue, at = max(units)
        between = [one for one in cluster.batches if low < one.header.offset < high]
        if last.sequence and not any(_asks(one, last, queue, at) for one in between):
            found.append((ordinal, last))
    return found


def _asks(batch: RecordBatch, last: Entry, queue: int, at: int) -> bool:
    kind = batch.header.kind
    if kind == Kind.PUBLISH:
        at_once = batch.due_ms <= max(batch.header.store_ms, last.due_ms + _LEAD_MS_MAX)
        return bool((at_once & (batch.topic_queue == queue)).any())
    if kind == Kind.CANCEL:
        return last.sequence in batch.rows["sequence"]
    if kind == Kind.RESOLVE:
        first, count = batch.rows["first_position"], batch.rows["count"]
        mine = (batch.rows["topic_queue"] == queue) & (first <= at) & (at < first + count)
        is_due = (batch.rows["outcome"] == Outcome.RETRY) & (
            batch.rows["retry_due_ms"] <= last.due_ms + _LEAD_MS_MAX
        )
        return bool((mine | is_due).any())
    return False


def double_dispatch(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The last DISPATCH is in the log a second time."""
    del rng
    last = cluster.of(Kind.DISPATCH)[-1]
    rows = last.rows.copy().astype(DISPATCH_ROW)
    offset = cluster.append(build_rows(Kind.DISPATCH, rows))
    return [Expected("dispatch-chain", offset=offset)]


def early_dispatch(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A DISPATCH, and so all entries that it made, was there before its time by its own clock."""
    pairs = pairwise(cluster.batches)
    possible = [
        (before.header.store_ms, batch)
        for before, batch in pairs
        if batch.header.kind == Kind.DISPATCH
        and before.header.epoch == batch.header.epoch
        and int(batch.rows["to_due_ms"][0]) - before.header.store_ms > _LEAD_MS_MAX
    ]
    store_ms, batch = rng.choice(possible)
    cluster.put(batch, changed(batch, store_ms=store_ms))
    return [Expected("dispatch-early", offset=batch.header.offset)]


def hurry_dispatch(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """One more DISPATCH, which reaches an hour ahead of its time."""
    del rng
    row = np.zeros(1, DISPATCH_ROW)
    row["prev_due_ms"], row["prev_sequence"] = cluster.model.cursor
    row["to_due_ms"] = cluster.batches[-1].header.store_ms + _HOUR_MS
    return [Expected("dispatch-early", offset=cluster.append(build_rows(Kind.DISPATCH, row)))]


def falsify_check(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A DISPATCH says that one more message was released than was."""
    batch = rng.choice(cluster.of(Kind.DISPATCH))
    rows = batch.rows.copy()
    rows[rng.choice(("check_count", "check_mix"))] += 1
    cluster.put(batch, with_rows(batch, rows))
    return [Expected("dispatch-check", offset=batch.header.offset)]


def acknowledge_nothing(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A group acknowledges a position that its queue never had, instead of one that it had."""
    own = cluster.own_queues()
    possible = [
        (batch, at)
        for batch in cluster.of(Kind.RESOLVE)
        for at, row in enumerate(batch.rows)
        if row["outcome"] == Outcome.ACK and row["topic_queue"] in own
    ]
    batch, at = rng.choice(possible)
    rows = batch.rows.copy().astype(RESOLVE_ROW)
    rows["first_position"][at] = _FAR
    cluster.put(batch, with_rows(batch, rows))
    return [Expected("ack-undelivered", offset=batch.header.offset, position=_FAR)]


def skip_sequences(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """A batch comes whose first sequence is not the next one."""
    due_ms = [cluster.batches[-1].header.store_ms + _HOUR_MS] * 2
    queues = np.full(2, rng.choice(cluster.own_queues()), "<u4")
    raw = build_publish(due_ms, [b"after", b"gap"], topic_queues=queues)
    offset = cluster.append(
        raw, skip=rng.randrange(1, 1_000), due_ms=np.array(due_ms), queues=queues
    )
    node = cluster.nodes[0]
    return [
        Expected(
            "sequence-gap", node.name, log_file(node, offset), offset, cluster.model.next_sequence
        )
    ]


def overtake(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The log says in the end that an ordered group ended a message before an earlier one."""
    return [_out_of_turn(cluster, rng, rng.choice((Outcome.ACK, Outcome.DEAD)))]


def fail_out_of_turn(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """The same of one that was given back."""
    return [_out_of_turn(cluster, rng, Outcome.HELD)]


def _out_of_turn(cluster: Cluster, rng: random.Random, outcome: Outcome) -> Expected:
    model = cluster.model
    possible: list[tuple[int, int, int]] = []
    for one in model.subscriptions:
        if not model.groups[one.group_id].order:
            continue
        for queue in [number for number in model.queues if number >> 8 == one.topic_id]:
            waiting: set[str] = set()
            done = model.resolved.get((one.group_id, queue), set())
            for at, entry in enumerate(model.queues[queue]):
                key = decode(model.metas.get(entry.sequence, b"")).ordering_key
                if key and key in waiting and at not in done:
                    possible.append((one.group_id, queue, at))
                if key and at not in done:
                    waiting.add(key)
    group, queue, at = rng.choice(possible)
    rows = np.array([(group, queue, at, 1, outcome, 0)], RESOLVE_ROW)
    offset = cluster.append(build_rows(Kind.RESOLVE, rows))
    sequence = model.queues[queue][at].sequence
    return Expected("order-overtaken", offset=offset, sequence=sequence, position=at)


def exchange_acknowledgements(cluster: Cluster, rng: random.Random) -> list[Expected]:
    """Two messages of a key, one behind the other, are acknowledged in each other's stead."""
    model = cluster.model
    ordered = {one.group_id for one in model.groups.values() if one.order}
    rows = [
        (batch, at, row)
        for batch in cluster.of(Kind.RESOLVE)
        for at, row in enumerate(batch.rows.tolist())
        if row[0] in ordered
    ]
    held = {row[:3] for _, _, row in rows if row[4] == Outcome.HELD}
    acks = {row[:3]: (batch, at) for batch, at, row in rows if row[3:5] == (1, Outcome.ACK)}
    before: dict[tuple[int, int, str], int] = {}
    possible = []
    for group, queue, position in sorted(acks):
        sequence = model.queues[queue][position].sequence
        key = decode(model.metas.get(sequence, b"")).ordering_key
        other = before.get((group, queue, key), -1)
        if key and other >= 0 and (group, queue, position) not in held:
            first, _ = acks[group, queue, other]
            if cluster.released_by[queue][position] < first.header.offset:
                possible.append((group, queue, other, position))
        before[group, queue, key] = position
    group, queue, other, position = rng.choice(possible)
    first, _ = acks[group, queue, other]
    for old, new in ((other, position), (position, other)):
        batch, at = acks[group, queue, old]
        changed_rows = batch.rows.copy().astype(RESOLVE_ROW)
        changed_rows["first_position"][at] = new
        cluster.put(batch, with_rows(batch, changed_rows))
    sequence = model.queues[queue][position].sequence
    return [Expected("order-overtaken", "", "", first.header.offset, sequence, position)]


Fault = Callable[[Cluster, random.Random], list[Expected]]
FAULTS: Final[dict[str, Fault]] = {
    "dropped entry": drop_entry,
    "dropped entry, everywhere": drop_entry_everywhere,
    "dropped retry": drop_retry,
    "doubled retry": double_retry,
    "dispatch that does not cover": uncover_message,
    "doubled entry": double_entry,
    "doubled dispatch": double_dispatch,
    "early entry": early_entry,
    "early dispatch": early_dispatch,
    "hurried dispatch": hurry_dispatch,
    "flipped byte": flip_byte,
    "corrupt message": corrupt_message,
    "lost segment": lose_segment,
    "lost segment, everywhere": lose_segment_everywhere,
    "lost end": lose_end,
    "resurrected": resurrect,
    "void entry": enqueue_void,
    "swapped entries": swap_entries,
    "ack of nothing": acknowledge_nothing,
    "overtaken": overtake,
    "exchanged acknowledgements": exchange_acknowledgements,
    "failed out of turn": fail_out_of_turn,
    "gap": skip_sequences,
    "divergence": diverge,
    "lagged check": falsify_check,
    "epoch history": falsify_epochs,
}
"""Name -> what makes exactly this fault and says what must be found."""
