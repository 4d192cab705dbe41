"""What a node answers, as values."""

import json
from dataclasses import asdict, fields

import pytest

from hourwheel.client.cluster_status import (
    ControlStatus,
    DeliveryStatus,
    FollowerStatus,
    NodeStatus,
    Phase,
    Role,
    ShardStatus,
    cluster_status,
)
from hourwheel.v1 import admin_pb2, status_pb2


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NodeStatus, status_pb2.NodeStatus),
        (ShardStatus, status_pb2.ShardStatus),
        (FollowerStatus, status_pb2.FollowerStatus),
        (ControlStatus, status_pb2.ControlStatus),
        (DeliveryStatus, status_pb2.DeliveryStatus),
    ],
)
def test_values_have_every_field_of_the_api(kind: type, message: type) -> None:
    wanted = set(message.DESCRIPTOR.fields_by_name)  # type: ignore[attr-defined]
    assert {field.name for field in fields(kind)} == wanted


def test_answer_of_an_older_node_leaves_the_new_things_unknown() -> None:
    node = status_pb2.NodeStatus(node_id="n1", address="h:1")
    answer = admin_pb2.GetStatusResponse(nodes=[node], shards=[status_pb2.ShardStatus(epoch=3)])
    found = cluster_status(answer)
    assert (found.answered_by, found.control) == ("", None)
    assert found.address_of("n1") == "h:1"
    (shard,) = found.shards
    assert (shard.epoch, shard.role, shard.lease_left_ms) == (3, Role.UNKNOWN, None)
    assert (shard.in_sync, shard.followers) == ((), ())
    assert shard.delivery is None


def test_all_roles_and_phases_are_told_and_become_json() -> None:
    roles = [value.number for value in status_pb2.ShardRole.DESCRIPTOR.values]
    phases = [value.number for value in status_pb2.FollowerPhase.DESCRIPTOR.values]
    followers = [status_pb2.FollowerStatus(phase=phase) for phase in phases]  # type: ignore[arg-type]
    shards = [status_pb2.ShardStatus(role=role, followers=followers) for role in roles]  # type: ignore[arg-type]
    found = cluster_status(admin_pb2.GetStatusResponse(shards=shards))
    assert [shard.role for shard in found.shards] == list(Role)
    assert [one.phase for one in found.shards[0].followers] == list(Phase)
    assert json.loads(json.dumps(asdict(found)))["shards"][3]["role"] == "master"
