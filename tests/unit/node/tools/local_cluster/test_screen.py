"""The view of a local cluster: who is master, what lags, how fast it goes."""

from dataclasses import replace

import pytest
from rich.console import Console

from hourwheel.client.cluster_status import (
    ClusterStatus,
    FollowerStatus,
    Phase,
    Role,
    ShardStatus,
)
from node.tools.local_cluster.screen import Rates, Seat, Seen, live_view, plain_line, rates_of

SEATS = [
    Seat(f"node-{one}", f"127.0.0.1:74{one}0", f"/c/node-{one}.toml", 4_200 * (one < 3))
    for one in (1, 2, 3)
]
SHARD = ShardStatus(0, 4, "node-1", 0, 9, 9, 1_234, 0, 1_000, 55, 400, 2, 9, 8, 0, 0, 4)
FOLLOWER = FollowerStatus("node-2", Phase.REPLICATING, 1, 2_048, 1, 3, 0.5, is_full=False)
MASTER = replace(
    SHARD,
    in_sync=("node-1", "node-2"),
    role=Role.MASTER,
    may_act=True,
    followers=(FOLLOWER, replace(FOLLOWER, node_id="node-3", phase=Phase.ABSENT)),
)


def seen(monotonic_ms: float = 0.0, **shards: ShardStatus) -> Seen:
    answers = {
        name.replace("_", "-"): ClusterStatus("c", "1", (), (shard,), name)
        for name, shard in shards.items()
    }
    return Seen(monotonic_ms, answers)


def text_of(now: Seen) -> str:
    console = Console(width=90, color_system=None)
    with console.capture() as captured:
        console.print(live_view(SEATS, now, Rates(12.0, 34.0)))
    return captured.get()


def test_view_tells_master_lag_and_rates() -> None:
    now = seen(node_1=MASTER, node_2=replace(SHARD, role=Role.FOLLOWER))
    text = text_of(now)
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("│")}
    assert all(part in lines["node-1"] for part in ("MASTER", "4200"))
    assert "4200" not in lines["node-3"]
    assert all(part in lines["node-2"] for part in ("follower", "2.0 KiB", "+0.5 ms", "yes"))
    assert all(part in lines["node-3"] for part in ("does not answer", "no"))
    for part in ("master node-1", "epoch 4", "1,000 (12/s)", "400 (34/s)", "pending 55"):
        assert part in text
    assert "hourwheel node --config /c/node-3.toml" in text
    assert "node-2.toml" not in text


def test_view_tells_when_there_is_no_master_or_nobody_answers() -> None:
    assert "NO MASTER" in text_of(seen(node_2=replace(SHARD, role=Role.TAKING_OVER)))
    assert "taking over" in text_of(seen(node_2=replace(SHARD, role=Role.TAKING_OVER)))
    assert "no node answers" in text_of(seen())
    assert plain_line(seen(), Rates()) == "no node answers"


def test_line_tells_the_same() -> None:
    line = plain_line(seen(node_1=MASTER), Rates(1_000.0, 2.0))
    for part in ("master node-1", "epoch 4", "node-1,node-2", "published 1,000/s", "pending 55"):
        assert part in line
    assert "NONE" in plain_line(seen(node_2=SHARD), Rates())


def test_best_is_who_may_act_else_who_knows_of_the_latest_epoch() -> None:
    later = replace(SHARD, epoch=5)
    assert seen(node_2=later, node_1=MASTER).best is not None
    assert seen(node_2=later, node_1=MASTER).best.may_act  # type: ignore[union-attr]
    assert seen(node_2=later, node_1=SHARD).best == later
    assert (seen(node_1=SHARD).master, seen(node_1=MASTER).master) == ("", "node-1")


@pytest.mark.parametrize(
    ("before", "rates"),
    [
        (seen(1_000.0, node_1=replace(MASTER, published_count=500)), Rates(1_000.0, 0.0)),
        (seen(1_000.0, node_1=replace(MASTER, released_count=500)), Rates(0.0, 0.0)),
        (seen(1_500.0, node_1=MASTER), Rates()),
        (seen(1_000.0), Rates()),
        (None, Rates()),
    ],
)
def test_rates_are_those_between_two_moments(before: Seen | None, rates: Rates) -> None:
    assert rates_of(before, seen(1_500.0, node_1=MASTER)) == rates
