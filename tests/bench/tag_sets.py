"""Messages with tags, to measure genes on: random ones, and what a shop would say of its orders.

The orders are real ones where there are any (as in `make demo`), else generated ones of the same
shape. They are not part of this repository.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from node.tools.demo.command import find_orders
from node.tools.demo.trace import NEVER, Orders

I64 = NDArray[np.int64]

SEED: Final = 7
RANDOM_TAGS: Final = 1_000
"""Different tags from which random messages take theirs, all equally often."""
_STATES: Final = 27
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600


@dataclass(frozen=True)
class TagSets:
    """m messages with k tags each."""

    vocabulary: list[str]
    tags: I64
    """int64[m, k] indexes into `vocabulary`, no two alike in a row."""
    source: str
    """Where they are from, in words."""

    def renamed(self, naming: int) -> "TagSets":
        """The same messages, with other names for the tags: other hashes."""
        names = [f"{tag}/{naming}" if naming else tag for tag in self.vocabulary]
        return TagSets(names, self.tags, self.source)

    def carries_one_of(self, wanted: Sequence[int]) -> NDArray[np.bool_]:
        """bool[m]: which messages have one of these tags."""
        found = np.zeros(len(self.tags), np.bool_)
        for tag in wanted:
            found |= (self.tags == tag).any(axis=1)
        return found


def random_sets(count: int, per_message: int) -> TagSets:
    """Messages whose tags are drawn from `RANDOM_TAGS`."""
    rng = np.random.default_rng((SEED, per_message))
    tags = np.array([rng.choice(RANDOM_TAGS, per_message, replace=False) for _ in range(count)])
    vocabulary = [f"tag-{number}" for number in range(RANDOM_TAGS)]
    return TagSets(vocabulary, tags, f"drawn from {RANDOM_TAGS:,} tags, seed {SEED}")


def order_sets(per_message: int) -> TagSets:
    """One message an order: `per_message` of the ten things that a shop knows of it."""
    orders, where = find_orders(None, None, SEED)
    facets = _facets(orders)
    vocabulary = sorted({tag for facet in facets for tag in facet})
    numbers = {tag: number for number, tag in enumerate(vocabulary)}
    every = np.array([[numbers[tag] for tag in facet] for facet in facets]).T
    rng = np.random.default_rng((SEED, per_message))
    chosen = np.argsort(rng.random(every.shape), axis=1)[:, :per_message]
    kind = "real orders" if where.startswith("from") else "generated orders"
    source = f"{len(orders.ids):,} {kind}, {len(vocabulary)} different tags"
    return TagSets(vocabulary, np.take_along_axis(every, chosen, axis=1), source)


def _facets(orders: Orders) -> list[list[str]]:
    """Ten lists, a tag for each order."""
    bought = orders.purchased
    months = bought.astype("M8[s]").astype("M8[M]").astype(str).tolist()
    late = (orders.delivered != NEVER) & (orders.delivered > orders.estimated)
    return [
        [f"state-{int(each[:4], 36) % _STATES}" for each in orders.ids],
        [f"month-{month}" for month in months],
        [f"weekday-{day}" for day in (bought // _DAY_S % 7).tolist()],
        [f"hour-{hour}" for hour in (bought % _DAY_S // _HOUR_S).tolist()],
        _classes("paid-after-h", orders.approved - bought, orders.approved, 6 * _HOUR_S, 12),
        _classes("handed-after-d", orders.handed - bought, orders.handed, _DAY_S, 15),
        _classes("delivered-after-w", orders.delivered - bought, orders.delivered, 7 * _DAY_S, 8),
        _classes("promised-in-w", orders.estimated - bought, orders.estimated, 7 * _DAY_S, 8),
        ["late" if each else "in-time" for each in late.tolist()],
        [_status(*times) for times in zip(*_times(orders), strict=True)],
    ]


def _times(orders: Orders) -> tuple[list[int], ...]:
    return orders.approved.tolist(), orders.handed.tolist(), orders.delivered.tolist()


def _classes(name: str, took: I64, at: I64, step: int, most: int) -> list[str]:
    numbers = np.clip(took // step, 0, most).tolist()
    return [
        f"{name}-{number}" if when != NEVER else f"{name}-never"
        for number, when in zip(numbers, at.tolist(), strict=True)
    ]


def _status(approved: int, handed: int, delivered: int) -> str:
    if delivered != NEVER:
        return "delivered"
    if handed != NEVER:
        return "shipped"
    return "approved" if approved != NEVER else "created"
