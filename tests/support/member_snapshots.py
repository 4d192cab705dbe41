"""Members that need snapshots: logs that have lost their beginning, and who has taken one."""

from typing import Any

import pytest

from node.cluster.member import build_member
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from tests.support import member_world
from tests.support.log_world import delete_below
from tests.support.member_world import MemberNode


def fetch_snapshots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Members have small segments; in the list is who has received a snapshot."""
    found: list[str] = []

    def build(*args: Any, **kwargs: Any) -> Any:
        identity = args[2]
        return build_member(
            *args, **kwargs, on_snapshot_received=lambda: found.append(identity.node_id)
        )

    config = ShardConfig(log=LogConfig(segment_bytes=2_048, index_interval_bytes=512))
    monkeypatch.setattr(member_world, "shard_config", lambda _: config)
    monkeypatch.setattr(member_world, "build_member", build)
    return found


def checkpoint(node: MemberNode) -> int:
    """Make a node's views durable, as of where they stand; up to which offset that is."""
    maintenance = node.engine.background.maintenance
    job = maintenance.plan(node.engine.now_ms(), force_checkpoint=True)
    assert job is not None
    job.run(lambda: None)
    for remove in maintenance.finish(job, node.engine.now_ms()):
        remove()
    return int(maintenance.manifest.applied_offset)


def forget_the_beginning(node: MemberNode) -> int:
    """Delete the log up to a checkpoint; where it begins now."""
    delete_below(node.shard.log, checkpoint(node))
    return int(node.shard.log.start_offset)
