"""The same work for each peer: publish and cancel, a hot millisecond, a steady rate.

Each workload is for a peer that has just been started, and gives its figures by their names. What
is wrong in an answer (a message that is missing, early or there twice) is an error, not a figure.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.bench import load
from tests.bench.peers.peer import Peer
from tests.bench.sizes import Size

Figures = dict[str, float]
Workload = Callable[[Peer, Size], Figures]

BATCH: Final = 500
_HEAD: Final = 25
_SPARE_S: Final = 3.0
_SLACK: Final = 2.0
_GRACE_S: Final = 30.0


class _Bodies:
    """200 bytes each that say which message it is and when it was due."""

    def __init__(self) -> None:
        self._tails = [body[_HEAD:] for body in load.make_bodies()]

    def make(self, first: int, due_ms: Sequence[int]) -> list[bytes]:
        """Bodies of the messages `first`, `first` + 1, ..."""
        tails = self._tails
        return [
            b"%012d%013d" % (number, due) + tails[number % len(tails)]
            for number, due in enumerate(due_ms, start=first)
        ]


def _read(body: bytes) -> tuple[int, int]:
    return int(body[:12]), int(body[12:_HEAD])


def publish_and_cancel(peer: Peer, size: Size) -> Figures:
    """Messages due over 24 hours, list by list; then half of them taken back, in random order."""
    count = size.pick(1_000, 50_000, 200_000)
    now_ms, chance = int(time.time() * 1_000), random.Random(load.SEED)
    due_ms = [now_ms + load.HOUR_MS + chance.randrange(load.DAY_MS) for _ in range(count)]
    lists = list(_lists(due_ms))
    ids: list[Any] = []
    publishing = _Calls("publish")
    for one_due_ms, bodies in lists:
        ids += peer.publish(one_due_ms, bodies)
        publishing.on_end()
    ids += peer.flush()
    figures = publishing.figures(count)
    if len(ids) != count:
        raise RuntimeError(f"{len(ids)} ids for {count} messages")
    chance.shuffle(ids)
    return figures | _cancel(peer, ids[: count // 2])


def _cancel(peer: Peer, ids: list[Any]) -> Figures:
    cancelled, cancelling = 0, _Calls("cancel")
    for at in range(0, len(ids), BATCH):
        cancelled += peer.cancel(ids[at : at + BATCH])
        cancelling.on_end()
    if cancelled != len(ids):
        raise RuntimeError(f"{cancelled} of {len(ids)} were cancelled")
    return cancelling.figures(len(ids))


def hot_millisecond(peer: Peer, size: Size) -> Figures:
    """Many messages due in one millisecond: when the first one comes, and how fast the others."""
    count = size.pick(1_000, 50_000, 100_000)
    due_ms = math.ceil((time.time() + _loading_s(peer, count)) * 1_000)
    _load(peer, [due_ms] * count)
    late_ms = _receive(peer, count, due_ms)
    seconds = (late_ms.max() - late_ms.min()) / 1_000
    return {
        "hot millisecond: first message, ms late": float(late_ms.min()),
        "hot millisecond: drained, msg/s": count / max(seconds, 1e-3),
    }


def steady(peer: Peer, size: Size, *, per_second: int) -> Figures:
    """So many messages due each second: how late each comes."""
    count = per_second * size.pick(1, 5, 15)
    first_ms = math.ceil((time.time() + _loading_s(peer, count)) * 1_000)
    due_ms = [first_ms + ordinal * 1_000 // per_second for ordinal in range(count)]
    _load(peer, due_ms)
    late_ms = _receive(peer, count, due_ms[-1])
    name = f"{per_second:,}/s:"
    figures = {
        f"{name} p{percent}, ms late": float(np.percentile(late_ms, percent))
        for percent in (50, 99, 99.9)
    }
    return figures | {f"{name} largest, ms late": float(late_ms.max())}


WORKLOADS: Final[Mapping[str, Workload]] = {
    "publish": publish_and_cancel,
    "hot": hot_millisecond,
    "steady-2000": partial(steady, per_second=2_000),
    "steady-20000": partial(steady, per_second=20_000),
}


class _Calls:
    """Times of one call after the other."""

    def __init__(self, name: str) -> None:
        """The first one begins now."""
        self._name = name
        self._begun_s = self._before_s = time.perf_counter()
        self._times_ms: list[float] = []

    def on_end(self) -> None:
        """One has ended, and the next one begins."""
        now_s = time.perf_counter()
        self._times_ms.append((now_s - self._before_s) * 1_000)
        self._before_s = now_s

    def figures(self, count: int) -> Figures:
        """Of `count` messages, all done now."""
        p50, p99 = np.percentile(self._times_ms, (50, 99)).tolist()
        return {
            f"{self._name}: msg/s": count / (time.perf_counter() - self._begun_s),
            f"{self._name}: one call of {BATCH}, p50 ms": p50,
            f"{self._name}: one call of {BATCH}, p99 ms": p99,
        }


def _loading_s(peer: Peer, count: int) -> float:
    """How long before the first due time loading must begin: a try shows how fast it goes."""
    trial = 10 * BATCH
    far_ms = int(time.time() * 1_000) + load.DAY_MS
    begun_s = time.perf_counter()
    _load(peer, [far_ms] * trial)
    return (time.perf_counter() - begun_s) / trial * count * _SLACK + _SPARE_S


def _load(peer: Peer, due_ms: Sequence[int]) -> None:
    for one_due_ms, bodies in _lists(due_ms):
        peer.publish(one_due_ms, bodies)
    peer.flush()
    if time.time() * 1_000 > due_ms[0]:
        raise RuntimeError("the first message was due before all were published: a slow machine")


def _lists(due_ms: Sequence[int]) -> Iterator[tuple[Sequence[int], list[bytes]]]:
    make = _Bodies().make
    for at in range(0, len(due_ms), BATCH):
        part = due_ms[at : at + BATCH]
        yield part, make(at, part)


def _receive(peer: Peer, count: int, last_due_ms: int) -> NDArray[np.float64]:
    """float64[count]: how late each message came, in milliseconds, in order of receipt.

    Raises:
        RuntimeError: one is missing, came twice, or before it was due.
    """
    got: list[tuple[float, Sequence[bytes]]] = []
    left = count
    for received_s, bodies in peer.receive(last_due_ms / 1_000 + _GRACE_S):
        got.append((received_s, bodies))
        left -= len(bodies)
        if left <= 0:
            break
    found = [(received_s, *_read(body)) for received_s, bodies in got for body in bodies]
    numbers = {number for _, number, _ in found}
    if len(found) != count or len(numbers) != count:
        raise RuntimeError(f"{len(found)} came of {count} messages, {len(numbers)} different ones")
    late_ms = np.array([received_s * 1_000 - due_ms for received_s, _, due_ms in found])
    if late_ms.min() < 0:
        raise RuntimeError(f"a message came {-late_ms.min():.2f} ms before it was due")
    return late_ms
