"""The files of a local cluster, and nodes that do not run. Running ones: tests/cluster."""

import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.client.cluster_status import FollowerStatus, Phase, ShardStatus
from node.config.checks import cluster_nodes
from node.config.sources import load
from node.tools.local_cluster.nodes import (
    LocalCluster,
    count_in_sync,
    find_free_ports,
    toml_of,
    write_cluster,
)

SHARD = ShardStatus(0, 4, "a", 0, 9, 9, 9, 0, 10, 1, 7, 3, 0, 0, 0, 0, 4, in_sync=("a", "b", "c"))
FOLLOWER = FollowerStatus("b", Phase.REPLICATING, 1, 2, 1, 3, 0.5, is_full=False)


def test_nodes_of_a_new_cluster_know_each_other_and_share_a_secret(tmp_path: Path) -> None:
    values = {"disk": {"reserve_bytes": 0}, "cluster": {"lease_ms": 700}}
    cluster = LocalCluster(tmp_path / "new", 3, base_port=21_000, values=values)
    assert cluster.servers == "127.0.0.1:21000,127.0.0.1:21010,127.0.0.1:21020"
    assert [node.node_id for node in cluster.nodes] == ["node-1", "node-2", "node-3"]
    configs = [load(node.config_file, {}) for node in cluster.nodes]
    assert len({config.cluster.nodes for config in configs}) == 1
    addresses = cluster_nodes(configs[0].cluster.nodes)
    assert addresses["node-2"] == ("127.0.0.1:21010", "127.0.0.1:21012", "127.0.0.1:21013")
    assert [config.node.metrics_listen for config in configs] == [
        *("127.0.0.1:21001", "127.0.0.1:21011"),
        "127.0.0.1:21021",
    ]
    assert {config.cluster.min_in_sync for config in configs} == {2}
    assert {config.cluster.lease_ms for config in configs} == {700}
    assert len({config.node.data_directory for config in configs}) == 3
    secret = tmp_path / "new" / "secret"
    assert len(secret.read_text()) > 24
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert {config.cluster.secret_file for config in configs} == {str(secret)}


def test_cluster_goes_on_when_it_is_made_again(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, 3)
    files = {node.config_file: node.config_file.read_text() for node in first.nodes}
    secret = (tmp_path / "secret").read_text()
    again = LocalCluster(tmp_path, 3, base_port=9_000, values={"log": {"segment_bytes": 1}})
    assert again.servers == first.servers
    assert {node.config_file: node.config_file.read_text() for node in again.nodes} == files
    assert (tmp_path / "secret").read_text() == secret
    with pytest.raises(errors.ConfigError, match="a cluster of 3 nodes, not 5"):
        LocalCluster(tmp_path, 5)


@pytest.mark.parametrize(("count", "base_port"), [(0, 0), (10, 0), (3, 65_520)])
def test_cluster_is_refused_when_it_cannot_be(tmp_path: Path, count: int, base_port: int) -> None:
    with pytest.raises(errors.ConfigError):
        write_cluster(tmp_path / "x", count, base_port, {})
    assert not (tmp_path / "x").exists()


def test_values_are_refused_when_a_node_would_refuse_them(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"wheel\.nonsense"):
        LocalCluster(tmp_path / "x", 3, values={"wheel": {"nonsense": 1}})
    assert list((tmp_path / "x").glob("*.toml")) == []


def test_free_ports_are_free_and_below_those_of_outgoing_connections() -> None:
    first = find_free_ports(30)
    assert 20_000 <= first <= 32_000 - 30
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 7))
        taken.listen()
        assert find_free_ports(30) != first


def test_busy_addresses_are_named(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1)
    assert cluster.busy_addresses() == []
    host, _, port = cluster.nodes[0].address.partition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        assert cluster.busy_addresses() == [cluster.nodes[0].address]


async def test_nobody_is_master_when_nothing_runs(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3)
    with pytest.raises(errors.Unavailable, match="no node is the master"):
        await cluster.find_master()
    with pytest.raises(errors.Unavailable, match="no master within"):
        await cluster.wait_for_master(timeout_s=0.05)
    await cluster.stop()
    with pytest.raises(errors.FailedPrecondition):
        await cluster.stop_node(0)


async def test_end_of_a_node_is_found_when_it_should_run(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3)
    cluster._down.discard(1)  # as if it had been started
    with pytest.raises(errors.Unavailable, match="node-2 has ended"):
        await cluster.watch()
    with pytest.raises(errors.Unavailable, match="node-2 has ended"):
        await cluster.wait_for_master()


async def test_node_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3)
    (tmp_path / "secret").write_text("short")
    with pytest.raises(errors.Unavailable, match=r"node node-\d: .*78; see .*node-\d.log"):
        await cluster.start()
    assert not any(node.is_running for node in cluster.nodes)
    assert "cluster.secret_file" in cluster.nodes[0].log_file.read_text()


@pytest.mark.parametrize(
    ("followers", "count"),
    [
        ((), 1),
        ((FOLLOWER,), 2),
        ((FOLLOWER, replace(FOLLOWER, node_id="c")), 3),
        ((FOLLOWER, replace(FOLLOWER, node_id="c", phase=Phase.BEGUN)), 2),
        ((FOLLOWER, replace(FOLLOWER, node_id="d")), 2),
    ],
)
def test_node_counts_as_in_sync_when_it_also_follows(
    followers: tuple[FollowerStatus, ...], count: int
) -> None:
    assert count_in_sync(replace(SHARD, followers=followers)) == count


def test_values_are_written_as_toml() -> None:
    text = toml_of({"node": {"id": 'a"b\\é'}, "disk": {"reserve_bytes": 0}, "x": {"on": True}})
    assert text.splitlines()[1:] == [
        *("", "[node]", 'id = "a\\"b\\\\\\u00e9"', "", "[disk]", "reserve_bytes = 0"),
        *("", "[x]", "on = true"),
    ]
