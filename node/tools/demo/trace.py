"""What the demo replays: the timers that a shop sets and takes back in the life of its orders.

    timer            set when      due                              taken back when
    close-unpaid     purchased     30 minutes later                 paid
    chase-handover   paid          3 days later                     handed to the carrier
    remind-seller    paid          1 day before promised delivery   delivered
    apologise        handed over   1 day after promised delivery    delivered
    ask-review       delivered     3 days later                     never

Two years are played in half a minute, and there 30 minutes would be half a millisecond. So there
are two scales. Orders are purchased on a linear one, the calendar. What happens in an order's life,
t after its purchase, happens `scale * log(1 + t / 10 min)` after it: 30 minutes are about a second
and two months ten. It is the same for all orders and only grows, so within an order everything
keeps its order: a timer is taken back before it is due if and only if it was in real life. Due
times fall on hundredths of a second, as they fall on seconds in real life.

Pure: orders in, timers out.
"""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors

NEVER: Final = -1
"""Instead of a time: it does not happen."""
_COLUMNS: Final = {
    "purchased": "order_purchase_timestamp",
    "approved": "order_approved_at",
    "handed": "order_delivered_carrier_date",
    "delivered": "order_delivered_customer_date",
    "estimated": "order_estimated_delivery_date",
}
_MINUTE_S: Final = 60
_DAY_S: Final = 86_400
_LOG_UNIT_S: Final = 10 * _MINUTE_S
_CALENDAR_SHARE: Final = 0.65
"""Part of the playing time in which orders are purchased; the rest is for the last ones' lives."""
_GRID_MS: Final = 10
_QUICK_SHARE: Final = 0.57
_UNPAID_SHARE: Final = 0.002
_NEVER_HANDED_SHARE: Final = 0.015
_NEVER_DELIVERED_SHARE: Final = 0.026

I64: TypeAlias = NDArray[np.int64]


class Kind(IntEnum):
    """Which timer. See the top of this file."""

    CLOSE_UNPAID = 0
    CHASE_HANDOVER = 1
    REMIND_SELLER = 2
    APOLOGISE = 3
    ASK_REVIEW = 4

    @property
    def label(self) -> str:
        """Its name in messages and tables."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Orders:
    """n orders. Times are int64[n], seconds since the Unix epoch, or NEVER."""

    ids: list[str]
    purchased: I64
    approved: I64
    """Paid."""
    handed: I64
    """To the carrier, by the seller."""
    delivered: I64
    estimated: I64

    def first(self, count: int) -> "Orders":
        """The first `count` of them, by purchase."""
        chosen = np.argsort(self.purchased, kind="stable")[:count]
        times = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return Orders([self.ids[index] for index in chosen.tolist()], **times)


@dataclass(frozen=True)
class Trace:
    """n timers by the time at which they are set. Times are int64[n], ms since the start."""

    orders: Orders
    order: I64
    """Whose: index into `orders`."""
    kind: NDArray[np.uint8]
    publish_ms: I64
    due_ms: I64
    """Not before `publish_ms`."""
    cancel_ms: I64
    """When it is taken back: from `publish_ms` to `due_ms`; or NEVER."""
    calendar_ms: int
    """How long the calendar is played."""

    def __len__(self) -> int:
        """How many timers."""
        return len(self.order)

    @property
    def end_ms(self) -> int:
        """When the last thing happens."""
        return int(max(self.due_ms.max(initial=0), self.publish_ms.max(initial=0)))

    def body(self, index: int) -> bytes:
        """The message of a timer; no two are alike."""
        facts = {
            "order": self.orders.ids[int(self.order[index])],
            "timer": Kind(int(self.kind[index])).label,
        }
        return json.dumps(facts).encode()

    def date_at(self, at_ms: float) -> str:
        """The day on which orders are purchased at this moment."""
        first, last = int(self.orders.purchased.min()), int(self.orders.purchased.max())
        passed = min(max(at_ms / self.calendar_ms, 0.0), 1.0) if self.calendar_ms else 1.0
        return str(np.datetime64(first + int((last - first) * passed), "s").astype("M8[D]"))


def read_orders(lines: Iterable[str]) -> Orders:
    """Orders from CSV with a header line, by purchase.

    Raises:
        InvalidArgument: a column is missing, a time cannot be read, or there is no order.
    """
    rows = list(csv.DictReader(lines))
    wanted = ["order_id", *_COLUMNS.values()]
    missing = [name for name in wanted if rows and rows[0].get(name) is None]
    if missing or not rows:
        raise errors.InvalidArgument(
            f"no orders: column {missing[0]} is missing"
            if missing
            else "no orders: the file is empty"
        )
    times = {name: _seconds(rows, column) for name, column in _COLUMNS.items()}
    ids = [row["order_id"] for row in rows]
    if len(set(ids)) < len(ids):
        raise errors.InvalidArgument("two orders have one order_id")
    if (times["purchased"] == NEVER).any():
        raise errors.InvalidArgument("an order was never purchased")
    return Orders(ids, **times).first(len(ids))


def _seconds(rows: list[dict[str, Any]], column: str) -> I64:
    """int64[n]: the times of a column."""
    try:
        times = np.array([row[column] or "" for row in rows], "M8[s]")
    except ValueError as error:
        raise errors.InvalidArgument(f"column {column}: {error}") from None
    seconds: I64 = times.astype(np.int64)
    seconds[np.isnat(times)] = NEVER
    return seconds


def generate_orders(count: int, seed: int) -> Orders:
    """Orders of the shape of the real ones: a growing shop, slow banks, parcels that are late.

    The shares and distributions are fitted to 4,071 orders of a Brazilian marketplace.
    """
    rng = np.random.default_rng(seed)
    first = int(np.datetime64("2016-10-04", "s").astype(np.int64))
    purchased = first + (np.sqrt(rng.random(count)) * 716 * _DAY_S).astype(np.int64)
    is_quick = rng.random(count) < _QUICK_SHARE
    minutes = np.where(is_quick, rng.uniform(8, 29, count), rng.lognormal(6.6, 1.0, count))
    approved = purchased + (minutes * _MINUTE_S).astype(np.int64)
    handed = approved + (rng.lognormal(0.65, 0.95, count) * _DAY_S).astype(np.int64)
    delivered = handed + (rng.lognormal(1.95, 0.75, count) * _DAY_S).astype(np.int64)
    estimated_days = np.maximum(rng.normal(23.4, 8.7, count), 3.0)
    estimated = (purchased + (estimated_days * _DAY_S).astype(np.int64)) // _DAY_S * _DAY_S
    fate = rng.random(count)
    approved[fate < _UNPAID_SHARE] = NEVER
    handed[fate < _NEVER_HANDED_SHARE] = NEVER
    delivered[fate < _NEVER_DELIVERED_SHARE] = NEVER
    ids = [rng.bytes(16).hex() for _ in range(count)]
    return Orders(ids, purchased, approved, handed, delivered, estimated).first(count)


def build_trace(orders: Orders, seconds: float) -> Trace:
    """All timers of these orders, played within `seconds`."""
    timers = _timers(orders)
    whole_ms = seconds * 1_000
    first, last = int(orders.purchased.min()), int(orders.purchased.max())
    calendar_ms = whole_ms * _CALENDAR_SHARE
    starts = (orders.purchased - first) * (calendar_ms / max(last - first, 1))
    ages = [timers[name] - orders.purchased[timers["order"]] for name in ("publish", "due")]
    longest = max(float(np.log1p(age.max(initial=1) / _LOG_UNIT_S)) for age in ages)
    scale_ms = (whole_ms - calendar_ms) / longest

    def played(name: str) -> I64:
        age = np.maximum(timers[name] - orders.purchased[timers["order"]], 0)
        at = starts[timers["order"]] + scale_ms * np.log1p(age / _LOG_UNIT_S)
        rounded: I64 = np.rint(at).astype(np.int64)
        return rounded

    publish_ms = played("publish")
    cancel_ms = np.where(timers["cancel"] == NEVER, NEVER, played("cancel"))
    chosen = np.lexsort((timers["kind"], timers["order"], publish_ms))
    return Trace(
        orders=orders,
        order=timers["order"][chosen],
        kind=timers["kind"][chosen].astype(np.uint8),
        publish_ms=publish_ms[chosen],
        due_ms=(played("due")[chosen] + _GRID_MS - 1) // _GRID_MS * _GRID_MS,
        cancel_ms=cancel_ms[chosen],
        calendar_ms=round(calendar_ms),
    )


def _timers(orders: Orders) -> dict[str, I64]:
    """Columns order, kind, publish, due, cancel (seconds or NEVER) of all timers, in real time."""
    minute, day = _MINUTE_S, _DAY_S
    rules = (
        (Kind.CLOSE_UNPAID, orders.purchased, orders.purchased + 30 * minute, orders.approved),
        (Kind.CHASE_HANDOVER, orders.approved, orders.approved + 3 * day, orders.handed),
        (Kind.REMIND_SELLER, orders.approved, orders.estimated - day, orders.delivered),
        (Kind.APOLOGISE, orders.handed, orders.estimated + day, orders.delivered),
        (Kind.ASK_REVIEW, orders.delivered, orders.delivered + 3 * day, None),
    )
    parts: dict[str, list[I64]] = {
        name: [] for name in ("order", "kind", "publish", "due", "cancel")
    }
    for kind, publish, due, until in rules:
        cancel = np.full(len(publish), NEVER) if until is None else until
        # What is due at once or not wanted any more when it would be set is not set.
        is_set = (publish != NEVER) & (due > publish) & ((cancel == NEVER) | (cancel > publish))
        order = np.flatnonzero(is_set)
        parts["order"].append(order)
        parts["kind"].append(np.full(len(order), int(kind)))
        parts["publish"].append(publish[order])
        parts["due"].append(due[order])
        in_time = (cancel != NEVER) & (cancel < due)
        parts["cancel"].append(np.where(in_time, cancel, NEVER)[order])
    return {name: np.concatenate(columns) for name, columns in parts.items()}
