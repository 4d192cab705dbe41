"""What the nodes say of the cluster, put together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hourwheel.client.cluster_status import (
    ClusterStatus,
    ControlStatus,
    DeliveryStatus,
    FollowerStatus,
    NodeStatus,
    Phase,
    Role,
    ShardStatus,
    find_master,
)
from node.console.history import SPAN_MS, History
from node.console.snapshot import read_only_because, snapshot

NODES = tuple(
    NodeStatus(f"n{number}", f"h:{number}", 0, 0, "", is_alive=True) for number in (1, 2, 3)
)
SHARD = ShardStatus(0, 4, "n2", *([0] * 14), in_sync=("n1", "n2", "n3"), role=Role.FOLLOWER)
DELIVERY = DeliveryStatus(5, 4, 3, 2, 0, (1.0, 2.0), (7, 8, 9))


def status(node_id: str, *, may_act: bool = False, epoch: int = 4, **more: Any) -> ClusterStatus:
    """What one node says."""
    has_majority = more.pop("has_majority", True)
    shard = replace(SHARD, epoch=epoch, may_act=may_act, **more)
    if may_act:
        shard = replace(shard, role=Role.MASTER, master=node_id)
    control = ControlStatus("n1", 7, has_majority, 9)
    nodes = tuple(replace(one, started_ms=5) if one.node_id == node_id else one for one in NODES)
    return ClusterStatus("c", "1.0", nodes, (shard,), node_id, control)


def follower(node_id: str, **more: Any) -> FollowerStatus:
    found = FollowerStatus(node_id, Phase.REPLICATING, 0, 10, 0, 0, 1.5, is_full=False)
    return replace(found, **more)


def whole(**more: Any) -> dict[str, ClusterStatus]:
    """Three nodes that are well; `more` of the master's shard."""
    followers = (follower("n1"), follower("n3"))
    master = status("n2", may_act=True, **{"followers": followers, "delivery": DELIVERY, **more})
    return {"n1": status("n1"), "n2": master, "n3": status("n3")}


def shown(statuses: Mapping[str, ClusterStatus], own: str = "n1") -> dict[str, Any]:
    known = statuses.get(own) or status(own)
    return snapshot(own, known, statuses, changes_allowed=True)


def test_followers_console_shows_what_the_master_knows() -> None:
    found = shown(whole())
    assert (found["master"], found["read_only_because"], found["problems"]) == ("n2", "", [])
    one, two, three = found["nodes"]
    assert [node["is_master"] for node in (one, two, three)] == [False, True, False]
    assert [node["lag_bytes"] for node in (one, two, three)] == [10, None, 10]
    assert [node["started_ms"] for node in (one, two, three)] == [5, 5, 5]
    assert found["shard"]["delivery"]["lateness_counts"] == (7, 8, 9)


def test_master_is_the_one_of_the_latest_epoch_when_two_say_they_are() -> None:
    statuses = {**whole(), "n3": status("n3", may_act=True, epoch=5)}
    found = find_master(statuses)
    assert found is not None
    assert (found[0], found[1].epoch) == ("n3", 5)


def test_node_that_does_not_answer_is_shown_as_it_was_known() -> None:
    statuses = whole(in_sync=("n1", "n2"))
    del statuses["n3"]
    found = shown(statuses)
    assert [node["answers"] for node in found["nodes"]] == [True, True, False]
    assert found["problems"] == [{"level": "bad", "text": "n3 does not answer."}]


def test_problems_are_told_the_worst_first() -> None:
    late = (follower("n1", clock_offset_ms=-250.0), follower("n3"))
    statuses = whole(
        in_sync=("n1", "n2"), followers=late, delivery=replace(DELIVERY, early_count=3)
    )
    full = tuple(replace(one, read_only_reason="DISK_FULL") for one in NODES)
    statuses["n3"] = replace(statuses["n3"], nodes=full)
    assert [one["text"] for one in shown(statuses)["problems"]] == [
        "3 messages were visible before they were due.",
        "n3 accepts no messages: DISK_FULL.",
        "The clock of n1 is -250 ms off the master's.",
        "n3 is not in sync.",
    ]


def test_console_is_read_only_and_says_why_when_it_cannot_change_anything() -> None:
    def why(statuses: dict[str, ClusterStatus], *, allowed: bool = True) -> str:
        return read_only_because("n1", statuses, changes_allowed=allowed)

    assert why(whole()) == ""
    assert "console.changes" in why(whole(), allowed=False)
    assert "majority" in why({"n1": status("n1", has_majority=False)})
    assert "No node is master" in why({"n1": status("n1"), "n3": status("n3")})
    assert "does not answer" in why({})


def test_cluster_without_a_master_is_shown_as_the_best_informed_node_has_it() -> None:
    statuses = {"n1": status("n1", applied_offset=5), "n3": status("n3", applied_offset=9)}
    found = shown(statuses)
    assert (found["master"], found["shard"]["applied_offset"]) == (None, 9)
    assert found["problems"][0]["text"].startswith("No node is master")
    assert shown({})["shard"]["applied_offset"] == 0


def test_history_has_what_the_master_counted_and_forgets_what_is_old() -> None:
    history = History()
    shard = replace(SHARD, published_count=1, delivery=DELIVERY)
    history.add(10_000, "n2", shard)
    history.add(10_500, "n2", replace(shard, published_count=2))  # too soon after the last one
    history.add(12_000, "n3", replace(shard, published_count=3, epoch=5, delivery=None))
    assert [(one["at_ms"], one["published"]) for one in history.since(0)] == [
        (10_000, 1),
        (12_000, 3),
    ]
    assert [one["master"] for one in history.since(0)] == ["n2/4", "n3/5"]
    assert [one["late"] for one in history.since(0)] == [[7, 8, 9], []]
    assert [one["at_ms"] for one in history.since(10_000)] == [12_000]
    history.add(12_000 + SPAN_MS, "n3", shard)
    assert [one["at_ms"] for one in history.since(0)] == [12_000, 12_000 + SPAN_MS]
