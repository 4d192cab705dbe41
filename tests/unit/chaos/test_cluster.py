import json
import tomllib
from pathlib import Path

from chaos.cluster import Cluster, Mastership
from chaos.network import Loopback


def a_cluster(folder: Path, *nodes: str) -> Cluster:
    cluster = Cluster(folder, Loopback(nodes), nodes, values={"node": {"drain_ms": 5}})
    cluster.write()
    return cluster


def test_configurations_name_all_nodes_when_there_are_several(tmp_path: Path) -> None:
    cluster = a_cluster(tmp_path, "n1", "n2")
    first, second = (tomllib.loads(node.config_file.read_text()) for node in cluster.nodes.values())
    assert first["cluster"]["nodes"] == second["cluster"]["nodes"]
    assert first["cluster"]["nodes"].split()[1].startswith(f"n2={second['node']['listen']},")
    assert first["cluster"]["allow_faults"] is True
    assert first["node"]["id"] == "n1"
    assert first["node"]["drain_ms"] == 5
    assert cluster.servers == f"{first['node']['listen']},{second['node']['listen']}"


def test_node_is_no_cluster_when_it_is_alone(tmp_path: Path) -> None:
    cluster = a_cluster(tmp_path, "n1")
    assert "cluster" not in tomllib.loads(cluster.nodes["n1"].config_file.read_text())
    assert cluster.is_alone


def test_reigns_are_what_the_logs_tell_when_masters_change(tmp_path: Path) -> None:
    cluster = a_cluster(tmp_path, "n1", "n2")
    assert cluster.epoch() == 0
    for name, epoch in (("n2", 1), ("n1", 2), ("n2", 3)):
        with cluster.nodes[name].log.open("a") as log:
            log.write(json.dumps({"event": "mastership_started", "epoch": epoch}) + "\n")
    assert cluster.masterships() == [Mastership(1, "n2"), Mastership(2, "n1"), Mastership(3, "n2")]
    assert cluster.epoch() == 3
