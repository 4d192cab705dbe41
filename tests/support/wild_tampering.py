"""Random faults without a meaning: for tests that let two audits say what they are.

As `tests.support.tampering`, of which these take a `Cluster`; nobody says what must be found.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from hourwheel.formats.record_batch import Kind, RecordBatch, Stamp, stamp
from hourwheel.types import TopicQueue
from tests.support.broken_logs import read_queue, rewrite_queue
from tests.support.log_copies import Cluster, changed, with_rows
from tests.support.log_edits import EDITS, turn_mark
from tests.support.log_maker import segments

_NUDGES: Final = (-5_000, -1_000, -1, 1, 2, 1_000, 5_000)

_LEFT_ALONE: Final = {"zero", "outcome", "check_offset"}
"""Of rows: no numbers, or such that lie where no record begins."""


def _some(cluster: Cluster, rng: random.Random) -> list[Path]:
    """All nodes, or one."""
    return cluster.nodes if rng.random() < 0.5 else [rng.choice(cluster.nodes)]


def nudge_row(cluster: Cluster, rng: random.Random) -> None:
    """A number in a record is another one."""
    kind = rng.choice((Kind.DISPATCH, Kind.CANCEL, Kind.RESOLVE))
    batch = rng.choice(cluster.of(kind))
    rows: Any = batch.rows.copy()
    names = [one for one in rows.dtype.names if one not in _LEFT_ALONE]
    at, name = rng.randrange(len(rows)), rng.choice(names)
    limit = np.iinfo(rows.dtype[name]).max
    rows[name][at] = min(max(0, int(rows[name][at]) + rng.choice(_NUDGES)), int(limit))
    cluster.put(batch, with_rows(batch, rows), *_some(cluster, rng))


def other_outcome(cluster: Cluster, rng: random.Random) -> None:
    """A group did something else with what it got."""
    batch = rng.choice(cluster.of(Kind.RESOLVE))
    rows: Any = batch.rows.copy()
    rows["outcome"][rng.randrange(len(rows))] = rng.randrange(1, 4)
    cluster.put(batch, with_rows(batch, rows), *_some(cluster, rng))


def other_due(cluster: Cluster, rng: random.Random) -> None:
    """A message is due at another time."""
    batch = rng.choice(cluster.of(Kind.PUBLISH))
    due_ms = batch.due_ms.copy()
    due_ms[rng.randrange(len(due_ms))] += rng.choice(_NUDGES)
    place = Stamp(*batch.header[6:11])
    head, payload = stamp(batch, place, due_ms=due_ms, topic_queue=batch.topic_queue)
    cluster.put(batch, head + bytes(payload), *_some(cluster, rng))


def other_time(cluster: Cluster, rng: random.Random) -> None:
    """A record was stored at another time."""
    batch: RecordBatch = rng.choice(cluster.batches)
    store_ms = batch.header.store_ms + rng.choice(_NUDGES)
    cluster.put(batch, changed(batch, store_ms=store_ms), *_some(cluster, rng))


def flip_bit(cluster: Cluster, rng: random.Random) -> None:
    """A bit of a log is another one."""
    path = rng.choice(segments(rng.choice(cluster.nodes)))
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(64, len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def cut_segment(cluster: Cluster, rng: random.Random) -> None:
    """A file of a log ends early."""
    path = rng.choice(segments(rng.choice(cluster.nodes)))
    raw = path.read_bytes()
    path.write_bytes(raw[: rng.randrange(64, len(raw))])


def scramble_queue(cluster: Cluster, rng: random.Random) -> None:
    """Entries of a queue are lost, doubled, moved, and have other fields."""
    queue = rng.choice(list(cluster.model.queues))
    for node in _some(cluster, rng):
        units = read_queue(node, TopicQueue(queue))
        for _ in range(rng.randrange(1, 4)):
            if not len(units):
                break
            at, to = rng.randrange(len(units)), rng.randrange(len(units))
            what = rng.randrange(4)
            if what == 0:
                units = np.delete(units, at)
            elif what == 1:
                units = np.insert(units, to, units[at])
            elif what == 2:
                units[[at, to]] = units[[to, at]]
            else:
                name = rng.choice(
                    ("due_ms", "store_ms", "crc", "sequence", "origin_topic", "attempt")
                )
                units[name][at] += rng.randrange(1, 20)
        rewrite_queue(node, TopicQueue(queue), units)


def scramble_index(cluster: Cluster, rng: random.Random) -> None:
    """The sequence index says something else of some message."""
    what, seed = rng.choice(("due_ms", "state", "tail")), rng.random()
    for node in _some(cluster, rng):
        EDITS[f"index: {what}"](node, random.Random(seed))


def turn_some_mark(cluster: Cluster, rng: random.Random) -> None:
    """Another message is marked as cancelled, or one of them no longer is."""
    sequence = rng.randrange(cluster.model.next_sequence)
    for node in _some(cluster, rng):
        turn_mark(node, sequence)


WILD: Final[dict[str, Callable[[Cluster, random.Random], object]]] = {
    "nudged row": nudge_row,
    "other outcome": other_outcome,
    "other due time": other_due,
    "other time": other_time,
    "flipped bit": flip_bit,
    "cut segment": cut_segment,
    "scrambled queue": scramble_queue,
    "scrambled index": scramble_index,
    "turned mark": turn_some_mark,
}
"""Name -> fault."""
