import json
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from hourwheel import errors
from hourwheel.cli import cluster as overseeing
from hourwheel.cli.cluster import format_bytes_count, state_of
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.output import Output
from hourwheel.client.cluster_status import (
    ClusterStatus,
    ControlStatus,
    DeliveryStatus,
    FollowerStatus,
    Mastership,
    NodeStatus,
    Phase,
    Role,
    ShardStatus,
)
from hourwheel.client.node_probe import NodeProbe
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_node import EPOCH, SHARD
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli

Shown = Callable[[ClusterStatus], str]

NODE = NodeStatus("n1", "h:1", 1, 2, "", is_alive=True, is_ready=True, is_heard=True)
ALONE = ShardStatus(0, 4, "n1", 0, 2_000, 2_000, 2_000, 0, 10, 1, 7, 3, 0, 0, 0, 0, 4_096)
FOLLOWERS = (
    FollowerStatus("n2", Phase.REPLICATING, 1_900, 100, 1_800, 12, -0.25, is_full=False),
    FollowerStatus("n3", Phase.ABSENT, 0, 5_000_000, 0, None, None, is_full=True),
)
SHARD_OF_MANY = replace(
    ALONE,
    in_sync=("n1", "n2"),
    version=9,
    role=Role.MASTER,
    may_act=True,
    lease_left_ms=550,
    followers=FOLLOWERS,
    append_cursor_ms=1_700_000_000_000,
    append_cursor_sequence=4,
)
MANY = ClusterStatus(
    "c0ffee",
    "0.1.0",
    (
        NODE,
        replace(NODE, node_id="n2", started_ms=0, heard_ms_ago=31, version="0.2.0"),
        replace(NODE, node_id="n3", started_ms=0, is_alive=False),
    ),
    (SHARD_OF_MANY,),
    "n1",
    ControlStatus("n2", 7, True, 40),
)


def test_status_when_people_and_scripts_ask(cli: Cli, fake: FakeNodeThread) -> None:
    status = json.loads(cli("status", "--json").stdout)
    assert status["cluster_id"] == "c0ffee"
    assert [shard["epoch"] for shard in status["shards"]] == [EPOCH]
    shown = cli("status").stdout
    for text in ("c0ffee", "node n1", f"shard {SHARD}", "2023-11-14 22:13:20.000Z", "accepts"):
        assert text in shown
    assert "majority" not in shown
    assert "nodes" not in shown


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """What people see of a status."""
    monkeypatch.setenv("COLUMNS", "140")

    def show(status: ClusterStatus) -> str:
        overseeing.show(Output(is_json=False), status)
        return capsys.readouterr().out

    return show


def test_status_when_there_are_several_nodes(shown: Shown) -> None:
    text = shown(MANY)
    lines = text.splitlines()
    assert "n2 (term 7)" in text
    (answered_by,) = (line for line in lines if "answered by" in line)
    assert "node n1" in answered_by
    (third,) = (line for line in lines if "dead or cut off" in line)
    assert "n3" in third
    (first,) = (line for line in lines if "ready, master" in line)
    assert "yes" in first
    (near,) = (line for line in lines if "replicating" in line)
    assert all(part in near for part in ("1,900", "100 B", "12ms ago", "-0.2 ms"))
    (away,) = (line for line in lines if "absent, disk full" in line)
    assert all(part in away for part in ("4.8 MiB", "never"))
    for part in ("n1, n2 (version 9)", "550 ms", "2023-11-14 22:13:20.000Z / 4", "none yet"):
        assert part in text


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((0, 0, 0), "nothing released yet"),
        ((99, 1, 0), "99% within 1 ms"),
        ((98, 2, 0), "99% within 2.5 ms"),
        ((0, 0, 7), "more than 1% beyond 2.5 ms"),
    ],
)
def test_status_says_what_was_delivered_and_how_late(
    counts: tuple[int, ...], words: str, shown: Shown
) -> None:
    delivery = DeliveryStatus(1_200, 1_100, 50, 3, 0, (1.0, 2.5), counts)
    lines = shown(replace(MANY, shards=(replace(SHARD_OF_MANY, delivery=delivery),))).splitlines()
    for name, value in (
        ("delivered count", "1,200"),
        ("of them again", "50"),
        ("acknowledged count", "1,100"),
        ("dead lettered count", "3"),
        ("released early", "0"),
        ("lateness", words),
    ):
        (line,) = (line for line in lines if name in line)
        assert value in line


def test_status_when_there_is_no_majority_and_no_master(shown: Shown) -> None:
    shard = replace(SHARD_OF_MANY, master="", role=Role.FOLLOWER, may_act=False, followers=())
    text = shown(replace(MANY, shards=(shard,), control=ControlStatus("", 7, False, 40)))
    for part in ("NO: no master can be elected", "none that is known", "NONE"):
        assert part in text
    (may_act,) = (line for line in text.splitlines() if "may act" in line)
    assert "no" in may_act


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ready"),
        ({"is_ready": False}, "not ready"),
        ({"is_alive": False}, "dead or cut off"),
        ({"is_heard": False, "is_alive": False}, "not heard of"),
    ],
)
def test_node_is_told_in_a_word_or_two(changes: dict[str, bool], state: str) -> None:
    assert state_of(replace(NODE, **changes)) == state  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (5 << 40, "5.0 TiB")]
)
def test_bytes_are_shown_in_a_fitting_unit(count: int, text: str) -> None:
    assert format_bytes_count(count) == text


async def test_master_is_asked_when_another_node_answers() -> None:
    async with FakeCluster(2) as cluster:
        named = replace(
            MANY,
            nodes=(replace(NODE, address=cluster.nodes[0].address),),
            answered_by="n2",
        )
        assert (await overseeing.ask_master(named)).cluster_id == "c0ffee"
        assert cluster.count("GetStatus") == [1, 0]
        for known in (replace(named, answered_by="n1"), replace(named, answered_by="")):
            assert await overseeing.ask_master(known) is known
        await cluster.nodes[0].stop()
        assert await overseeing.ask_master(named) is named


def test_transfer_when_it_is_done_and_refused(cli: Cli, fake: FakeNodeThread) -> None:
    done = cli("transfer", "--to", "n3")
    assert done.exit_code == ExitCode.OK
    assert done.stdout == f"node n3 is the master, in epoch {EPOCH + 1}\n"
    assert json.loads(cli("transfer", "--json").stdout) == {"master": "n2", "epoch": EPOCH + 1}
    fake.fail_next("TransferMaster", errors.FailedPrecondition("node n4 is not in sync"))
    refused = cli("transfer", "--to", "n4")
    assert refused.exit_code == ExitCode.REFUSED
    assert "n4 is not in sync" in refused.stderr


class OneNode:
    """What `drain` asks: a node that knows of `masters`, one after the other."""

    def __init__(self, *masters: str, refusal: errors.HourwheelError | None = None) -> None:
        self._masters, self._refusal = list(masters), refusal
        self.transfers = 0

    async def status(self, timeout_ms: float) -> ClusterStatus:
        return replace(MANY, shards=(replace(SHARD_OF_MANY, master=self._masters.pop(0)),))

    async def transfer_master(self, timeout_ms: float) -> Mastership:
        self.transfers += 1
        if self._refusal is not None:
            raise self._refusal
        return Mastership("n2", 5)


async def hand_over(node: OneNode) -> str:
    return await overseeing.hand_over(cast("NodeProbe", node))


async def test_drain_hands_over_when_the_node_is_the_master() -> None:
    node = OneNode("n1")
    assert (await hand_over(node), node.transfers) == ("n2", 1)


@pytest.mark.parametrize("master", ["n2", ""])
async def test_drain_leaves_mastership_alone_when_another_node_has_it(master: str) -> None:
    node = OneNode(master)
    assert (await hand_over(node), node.transfers) == (master, 0)


async def test_drain_is_done_when_mastership_moved_meanwhile() -> None:
    assert await hand_over(OneNode("n1", "n3", refusal=errors.NotMaster())) == "n3"


async def test_drain_says_so_when_nobody_can_take_over() -> None:
    with pytest.raises(errors.FailedPrecondition, match="in sync"):
        await hand_over(OneNode("n1", refusal=errors.FailedPrecondition("no other is in sync")))


def test_drain_asks_one_node_and_waits_no_longer_than_told(cli: Cli, fake: FakeNodeThread) -> None:
    assert cli("drain").stdout.strip() == "the master is node n1"
    assert json.loads(cli("drain", "--linger", "1ms", "--json").stdout) == {"master": "n1"}
    assert cli("drain", "--server", "a:1,b:1").exit_code == ExitCode.USAGE
