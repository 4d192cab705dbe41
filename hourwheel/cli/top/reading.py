"""What two looks at a cluster say together: values to show, and rates between the two. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from hourwheel.cli.cluster import state_of
from hourwheel.cli.top.look import DUE_WITHIN_S, Look
from hourwheel.client.cluster_status import ClusterStatus, NodeStatus, ShardStatus, find_master

_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One node."""

    node_id: str
    address: str
    state: str
    is_master: bool
    is_in_sync: bool
    epoch: int
    lag_bytes: int | None
    """Of the master's log; None: this is the master, or it is not known."""
    disk_bytes: int | None
    """None: it does not answer."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second, between two looks."""

    published: float
    released: float
    delivered: float
    acknowledged: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late messages became visible that were released between two looks."""

    message_count: int
    p50_ms: float | None
    """At most so late was every second message; None: above all bounds that the node counts by."""
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class DueReading:
    """Pending messages that are due within a time, and not within a shorter one."""

    within_s: int | None
    """None: later than all others."""
    message_count: int


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One group in one topic."""

    group: str
    topic: str
    unresolved_count: int
    leased_count: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster as it is now."""

    cluster_id: str
    clock_ms: int
    """Of the master, in milliseconds since the Unix epoch; 0: there is none."""
    master: str
    """Empty: no node may act as master."""
    epoch: int
    trouble: str
    """Why there is no master, or why it does not tell all; empty: all is well."""
    nodes: tuple[NodeReading, ...]
    pending_count: int | None
    overdue_count: int | None
    due: tuple[DueReading, ...]
    rates: Rates | None
    """None: there is no earlier look at the same master."""
    lateness: Lateness | None
    """None: as `rates`, or nothing was released."""
    group_count: int | None
    groups_read_count: int | None
    """Large catalogs are asked about in turn: of so many groups the lag is known."""
    groups: tuple[GroupReading, ...]
    """Those most behind first."""


def read(look: Look, before: Look | None, group_rows: int) -> Reading:
    """What to show of `look`, with rates since `before`; at most `group_rows` groups."""
    found = find_master(look.statuses)
    shard = found[1] if found else None
    master = found[0] if found else ""
    status = look.statuses[master] if found else next(iter(look.statuses.values()), None)
    shown = shard or (status.shards[0] if status and status.shards else None)
    own = _own(look, master)
    rates, lateness = _since(look, before, master) if found else (None, None)
    groups = look.groups
    return Reading(
        cluster_id=status.cluster_id if status else "",
        clock_ms=own.clock_ms if own else 0,
        master=master,
        epoch=shown.epoch if shown else 0,
        trouble=_trouble(look, master),
        nodes=tuple(_nodes(look, status, shown, master)),
        pending_count=look.wheel.pending_count if look.wheel else None,
        overdue_count=look.wheel.earlier_count if look.wheel else None,
        due=_due(look),
        rates=rates,
        lateness=lateness,
        group_count=groups.group_count if groups else None,
        groups_read_count=len(groups.lags) if groups else None,
        groups=_most_behind(look)[:group_rows],
    )


def _trouble(look: Look, master: str) -> str:
    if not look.statuses:
        address, error = next(iter(look.silent.items()))
        return f"no node answers; {address}: {error.message}"
    if not master:
        controls = [one.control for one in look.statuses.values() if one.control is not None]
        if controls and not any(one.has_majority for one in controls):
            return "no majority: no node that answers hears enough of the others to have a master"
        return "no master; the next one takes over within seconds, as a rule"
    if look.trouble is not None:
        return f"wheel and groups are not known: {look.trouble.message}"
    return ""


def _own(look: Look, node_id: str) -> NodeStatus | None:
    """What a node says of itself."""
    status = look.statuses.get(node_id)
    return _entry(status, node_id) if status else None


def _entry(status: ClusterStatus, node_id: str) -> NodeStatus | None:
    return next((one for one in status.nodes if one.node_id == node_id), None)


def _nodes(
    look: Look, status: ClusterStatus | None, shard: ShardStatus | None, master: str
) -> list[NodeReading]:
    lags = {one.node_id: one.lag_bytes for one in shard.followers} if shard else {}
    rows = []
    for reported in status.nodes if status else ():
        own = _own(look, reported.node_id)
        said = look.statuses.get(reported.node_id)
        rows.append(
            NodeReading(
                node_id=reported.node_id,
                address=reported.address,
                state=state_of(own) if own else "does not answer",
                is_master=reported.node_id == master,
                is_in_sync=bool(shard and reported.node_id in shard.in_sync),
                epoch=(own or reported).epoch,
                lag_bytes=None if reported.node_id == master else lags.get(reported.node_id),
                disk_bytes=said.shards[0].disk_bytes if said and said.shards else None,
            )
        )
    return rows


def _due(look: Look) -> tuple[DueReading, ...]:
    if look.wheel is None:
        return ()
    counts = [one.count for one in look.wheel.ranges]
    ranges = map(DueReading, DUE_WITHIN_S, counts)
    return (*ranges, DueReading(None, look.wheel.later_count))


def _since(look: Look, before: Look | None, master: str) -> tuple[Rates | None, Lateness | None]:
    """What the master did since the look before; nothing, if it was not the master then."""
    own, own_before = _own(look, master), _own(before, master) if before else None
    if before is None or own is None or own_before is None:
        return None, None
    now, then = look.statuses[master].shards[0], before.statuses[master].shards[0]
    seconds = (look.at_ms - before.at_ms) / _MS
    is_same = own.started_ms == own_before.started_ms and now.epoch == then.epoch
    if not is_same or seconds <= 0 or now.delivery is None or then.delivery is None:
        return None, None
    rates = Rates(
        published=(now.published_count - then.published_count) / seconds,
        released=(now.released_count - then.released_count) / seconds,
        delivered=(now.delivery.delivered_count - then.delivery.delivered_count) / seconds,
        acknowledged=(now.delivery.acknowledged_count - then.delivery.acknowledged_count) / seconds,
    )
    counts = [
        after - earlier
        for after, earlier in zip(
            now.delivery.lateness_counts, then.delivery.lateness_counts, strict=True
        )
    ]
    bounds = now.delivery.lateness_bounds_ms
    total = sum(counts)
    if not total:
        return rates, None
    return rates, Lateness(total, _quantile(bounds, counts, 0.5), _quantile(bounds, counts, 0.99))


def _quantile(bounds: Sequence[float], counts: Sequence[int], ratio: float) -> float | None:
    """The first bound that so large a part of the counts lies under; None: none does."""
    wanted = sum(counts) * ratio
    for bound, up_to in zip(bounds, accumulate(counts), strict=False):
        if up_to >= wanted:
            return bound
    return None


def _most_behind(look: Look) -> tuple[GroupReading, ...]:
    if look.groups is None:
        return ()
    rows = [
        GroupReading(group, lag.topic, lag.unresolved_count, lag.leased_count)
        for group, lags in look.groups.lags.items()
        for lag in lags
    ]
    return tuple(sorted(rows, key=lambda one: (-one.unresolved_count, one.group, one.topic)))
