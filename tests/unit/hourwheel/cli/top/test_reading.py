"""What two looks at a cluster say together."""

from dataclasses import replace

from hourwheel.cli.top.look import DUE_WITHIN_S, GroupsLook, Look
from hourwheel.cli.top.reading import Lateness, Rates, read
from hourwheel.client.catalog import GroupLag
from hourwheel.client.cluster_status import (
    ClusterStatus,
    ControlStatus,
    DeliveryStatus,
    FollowerStatus,
    NodeStatus,
    Phase,
    Role,
    ShardStatus,
)
from hourwheel.client.wheel import DueRange, WheelDescription
from hourwheel.errors import Timeout, Unavailable

NOW_MS = 1_700_000_000_000
BOUNDS_MS = (1.0, 10.0, 100.0)
DELIVERY = DeliveryStatus(100, 90, 0, 0, 0, BOUNDS_MS, (50, 40, 10, 0))
SHARD = ShardStatus(
    *(0, 4, "n1", 0, 2_000, 2_000, 2_000, 0, 1_000, 7, 500, 3, 0, 0, 0, 0, 4_096),
    in_sync=("n1", "n2"),
    role=Role.MASTER,
    may_act=True,
    followers=(
        FollowerStatus("n2", Phase.REPLICATING, 1_900, 100, 1_800, 12, -0.25, is_full=False),
        FollowerStatus("n3", Phase.ABSENT, 0, 2_000, 0, None, None, is_full=False),
    ),
    delivery=DELIVERY,
)
FOLLOWING = replace(SHARD, role=Role.FOLLOWER, may_act=False, followers=(), delivery=None)
CONTROL = ControlStatus("n2", 7, has_majority=True, revision=40)
NODES = tuple(
    NodeStatus(name, f"{name}:7400", 1, NOW_MS, "", is_alive=True, is_ready=True, is_heard=True)
    for name in ("n1", "n2", "n3")
)
STATUSES = {
    "n1": ClusterStatus("c0ffee", "1", NODES, (SHARD,), "n1", CONTROL),
    "n2": ClusterStatus("c0ffee", "1", NODES, (FOLLOWING,), "n2", CONTROL),
}
SILENT = {"n3:7400": Unavailable("connection refused")}
WHEEL = WheelDescription(
    NOW_MS,
    tuple(DueRange(0, 1, count, is_estimate=False) for count in range(len(DUE_WITHIN_S))),
    earlier_count=2,
    later_count=40,
    pending_count=70,
    cancelled_count=0,
)
GROUPS = GroupsLook(
    3, {"a": (GroupLag("t", 5, 1), GroupLag("u", 50, 0)), "b": (GroupLag("t", 5, 0),)}
)
LOOK = Look(10_000.0, STATUSES, SILENT, WHEEL, GROUPS)


def later(published: int, delivered: int, acknowledged: int, counts: tuple[int, ...]) -> Look:
    """Two seconds after LOOK."""
    delivery = replace(
        DELIVERY,
        delivered_count=100 + delivered,
        acknowledged_count=90 + acknowledged,
        lateness_counts=tuple(map(sum, zip(DELIVERY.lateness_counts, counts, strict=True))),
    )
    shard = replace(
        SHARD,
        published_count=1_000 + published,
        released_count=500 + sum(counts),
        delivery=delivery,
    )
    master = replace(STATUSES["n1"], shards=(shard,))
    return replace(LOOK, at_ms=12_000.0, statuses=STATUSES | {"n1": master})


def test_cluster_in_order_is_told_whole() -> None:
    found = read(LOOK, None, group_rows=2)
    assert (found.cluster_id, found.master, found.epoch) == ("c0ffee", "n1", 4)
    assert (found.clock_ms, found.trouble) == (NOW_MS, "")
    states = [(one.node_id, one.state, one.is_master, one.is_in_sync) for one in found.nodes]
    assert states == [
        ("n1", "ready", True, True),
        ("n2", "ready", False, True),
        ("n3", "does not answer", False, False),
    ]
    assert [one.lag_bytes for one in found.nodes] == [None, 100, 2_000]
    assert [one.disk_bytes for one in found.nodes] == [4_096, 4_096, None]
    assert (found.pending_count, found.overdue_count) == (70, 2)
    within = [(one.within_s, one.message_count) for one in found.due]
    assert within == [*zip(DUE_WITHIN_S, range(8), strict=True), (None, 40)]
    assert (found.group_count, found.groups_read_count) == (3, 2)
    lags = [(one.group, one.topic, one.unresolved_count) for one in found.groups]
    assert lags == [("a", "u", 50), ("a", "t", 5)], "those most behind, at most two"


def test_rates_are_those_between_two_looks() -> None:
    assert read(LOOK, None, 0).rates is None, "there is no look before"
    found = read(later(200, 40, 20, (80, 17, 3, 0)), LOOK, 0)
    assert found.rates == Rates(published=100, released=50, delivered=20, acknowledged=10)
    assert found.lateness == Lateness(100, p50_ms=1.0, p99_ms=100.0)


def test_lateness_above_all_bounds_has_none() -> None:
    found = read(later(0, 0, 0, (0, 0, 0, 5)), LOOK, 0)
    assert found.lateness == Lateness(5, None, None)
    quiet = read(later(0, 0, 0, (0, 0, 0, 0)), LOOK, 0)
    assert (quiet.lateness, quiet.rates) == (None, Rates(0, 0, 0, 0))


def test_rates_begin_anew_when_the_master_is_another_one_or_has_restarted() -> None:
    look = later(200, 40, 20, (1, 0, 0, 0))
    restarted = replace(STATUSES["n1"], nodes=(replace(NODES[0], started_ms=2), *NODES[1:]))
    assert read(look, replace(LOOK, statuses={"n1": restarted}), 0).rates is None
    assert read(look, replace(LOOK, statuses={"n2": STATUSES["n2"]}), 0).rates is None
    elected = replace(STATUSES["n1"], shards=(replace(SHARD, epoch=3),))
    assert read(look, replace(LOOK, statuses={"n1": elected}), 0).rates is None


def test_follower_alone_says_what_it_knows_and_why_there_is_no_master() -> None:
    look = Look(10_000.0, {"n2": STATUSES["n2"]}, SILENT)
    found = read(look, LOOK, 5)
    assert (found.master, found.epoch, found.clock_ms) == ("", 4, 0)
    assert found.trouble.startswith("no master")
    assert [one.state for one in found.nodes] == ["does not answer", "ready", "does not answer"]
    assert (found.pending_count, found.due, found.group_count, found.rates) == (
        None,
        (),
        None,
        None,
    )
    cut_off = replace(STATUSES["n2"], control=replace(CONTROL, has_majority=False))
    assert read(replace(look, statuses={"n2": cut_off}), None, 5).trouble.startswith("no majority")


def test_trouble_of_the_master_is_told() -> None:
    look = replace(LOOK, wheel=None, groups=None, trouble=Timeout("no answer"))
    found = read(look, None, 5)
    assert found.trouble == "wheel and groups are not known: no answer"
    assert found.master == "n1"


def test_no_node_at_all_is_told() -> None:
    found = read(Look(0.0, {}, SILENT), None, 5)
    assert found.trouble == "no node answers; n3:7400: connection refused"
    assert (found.nodes, found.cluster_id) == ((), "")
