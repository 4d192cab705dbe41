"""What a node of several tells Prometheus, beside what a node alone does."""

from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.status_pb2 import (
    SHARD_ROLE_FOLLOWER,
    SHARD_ROLE_MASTER,
    ControlStatus,
    FollowerStatus,
    NodeStatus,
    ShardStatus,
)
from node.contracts.broker import ShardGauges
from node.metrics import cluster as cluster_metrics
from node.metrics.family import CertificateEnds, ClusterFacts, ControlFacts, NodeFacts, Scrape
from node.telemetry.epoch_stats import EpochStats
from node.telemetry.stats import ApiStats, EngineStats
from tests.support.changed import changed

NODES = tuple(NodeStatus(node_id=node, address=f"{node}:7400") for node in ("n1", "n2", "n3"))
MASTER = ShardStatus(
    epoch=5,
    master="n1",
    in_sync=("n1", "n2"),
    role=SHARD_ROLE_MASTER,
    may_act=True,
    lease_left_ms=400,
    followers=(
        FollowerStatus(node_id="n2", lag_bytes=10, heard_ms_ago=20, clock_offset_ms=-3.0),
        FollowerStatus(node_id="n3", lag_bytes=999),
    ),
    clock_offset_ms=1.5,
)
CONTROL = ControlStatus(leader_node_id="n2", term=4, has_majority=True)


def told(cluster: ClusterFacts | None) -> dict[str, dict[tuple[str, ...], object]]:
    status = ShardStatus(log_end_offset=900, high_watermark=700)
    facts = NodeFacts("1", "3", 0, 0.0, False)
    scrape = Scrape(
        EngineStats(), status, ShardGauges(), [], ApiStats(forwarded=12), facts, 0, cluster
    )
    return {family.name: dict(family.read(scrape)) for family in cluster_metrics.FAMILIES}


def facts(
    shard: ShardStatus, epoch_stats: EpochStats, *, heartbeat_age_ms: float = 0.0
) -> ClusterFacts:
    status = GetStatusResponse(nodes=NODES, shards=[shard], control=CONTROL)
    return ClusterFacts(
        status, epoch_stats, is_clock_unsure=False, heartbeat_age_ms=heartbeat_age_ms
    )


def test_node_alone_tells_nothing() -> None:
    assert all(samples == {} for samples in told(None).values())


def test_master_tells_how_its_followers_are() -> None:
    epoch_stats = EpochStats(
        heartbeats_sent=7,
        takeovers=2,
        step_down_requests=1,
        takeover_ms=650.0,
        catch_up_released=31,
    )
    samples = told(facts(MASTER, epoch_stats))
    shard = ("0",)
    assert samples["hourwheel_role"] == {
        ("0", "follower"): 0.0,
        ("0", "taking_over"): 0.0,
        ("0", "master"): 1.0,
    }
    assert samples["hourwheel_is_master"] == {shard: 1.0}
    assert samples["hourwheel_epoch"] == {shard: 5}
    assert samples["hourwheel_lease_left_seconds"] == {shard: 0.4}
    assert samples["hourwheel_in_sync_replicas"] == {shard: 2}
    assert samples["hourwheel_under_replicated"] == {shard: 1.0}
    assert samples["hourwheel_uncommitted_bytes"] == {shard: 200}
    assert samples["hourwheel_follower_lag_bytes"] == {("0", "n2"): 10, ("0", "n3"): 999}
    assert samples["hourwheel_follower_ack_age_seconds"] == {("0", "n2"): 0.02}
    assert samples["hourwheel_peer_clock_offset_seconds"] == {("0", "n2"): -0.003}
    assert samples["hourwheel_cluster_clock_offset_seconds"] == {shard: 0.0015}
    assert samples["hourwheel_heartbeats_sent_total"] == {shard: 7}
    assert samples["hourwheel_takeovers_total"] == {shard: 2}
    assert samples["hourwheel_step_downs_requested_total"] == {shard: 1}
    assert samples["hourwheel_takeover_duration_seconds"] == {shard: 0.65}
    assert samples["hourwheel_catch_up_released_messages_total"] == {shard: 31}
    assert samples["hourwheel_forwarded_calls_total"] == {(): 12}
    assert samples["hourwheel_raft_leader_known"] == {(): 1.0}
    assert samples["hourwheel_raft_term"] == {(): 4}
    assert samples["hourwheel_raft_has_majority"] == {(): 1.0}


def test_follower_counts_received_heartbeats() -> None:
    shard = changed(
        MASTER,
        role=SHARD_ROLE_FOLLOWER,
        may_act=False,
        lease_left_ms=None,
        followers=(),
        in_sync=("n1", "n2", "n3"),
    )
    samples = told(facts(shard, EpochStats(heartbeats_received=9), heartbeat_age_ms=55.0))
    assert samples["hourwheel_role"][("0", "follower")] == 1.0
    assert samples["hourwheel_is_master"] == {("0",): 0.0}
    assert samples["hourwheel_under_replicated"] == {("0",): 0.0}
    assert samples["hourwheel_lease_left_seconds"] == {("0",): 0.0}
    assert samples["hourwheel_heartbeats_received_total"] == {("0",): 9}
    assert samples["hourwheel_heartbeat_age_seconds"] == {("0",): 0.055}
    assert samples["hourwheel_follower_lag_bytes"] == {}


def test_age_is_negative_when_no_heartbeat_has_come_yet() -> None:
    samples = told(facts(MASTER, EpochStats(), heartbeat_age_ms=-1.0))
    assert samples["hourwheel_heartbeat_age_seconds"] == {("0",): -1.0}


def test_control_process_tells_how_it_does_and_how_it_has_ended() -> None:
    control = ControlFacts(stall_count=3, stall_ms_max=500.0, ends=2, last_exit_code=-9)
    samples = told(facts(MASTER, EpochStats())._replace(control=control))
    assert samples["hourwheel_control_restarts_total"] == {(): 2}
    assert samples["hourwheel_control_last_exit_code"] == {(): -9}
    assert samples["hourwheel_control_stalls_total"] == {(): 3}
    assert samples["hourwheel_control_stall_seconds_max"] == {(): 0.5}
    never = told(facts(MASTER, EpochStats()))
    assert never["hourwheel_control_restarts_total"] == {(): 0}
    assert never["hourwheel_control_last_exit_code"] == {(): 0}


def test_node_tells_until_when_its_certificates_are_valid() -> None:
    name = "hourwheel_tls_certificate_not_after_timestamp_seconds"
    certified = facts(MASTER, EpochStats())._replace(certificate_ends=CertificateEnds(70.0, 90.0))
    assert told(certified)[name] == {("node",): 70.0, ("authority",): 90.0}
    assert told(facts(MASTER, EpochStats()))[name] == {}, "with a secret there is none"


def test_node_tells_that_it_refused_certificates() -> None:
    name = "hourwheel_cluster_tls_files_refused"
    assert told(facts(MASTER, EpochStats()))[name] == {(): 0}
    refused = facts(MASTER, EpochStats())._replace(are_certificates_refused=True)
    assert told(refused)[name] == {(): 1}
