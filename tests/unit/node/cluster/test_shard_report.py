"""What the control plane is told of a replica."""

from pathlib import Path

import pytest

from hourwheel.internal.v1.control_link_pb2 import ShardReport
from node.cluster.member import report_of
from tests.support.member_world import MemberNode, MemberWorld


def of(node: MemberNode, *, requests_step_down: bool = False) -> ShardReport:
    return report_of(node.replica, node.guard, requests_step_down=requests_step_down)


async def test_report_of_a_new_replica_is_empty(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        report = of(world["n1"])
        assert (report.epoch, report.last_epoch) == (0, 0)
        assert (report.log_end, report.high_watermark) == (0, 0)


async def test_report_tells_epoch_and_ends_of_the_log(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        await world.elect_with_message("n1")
        await world.elect("n2")
        await world.agreed()
        for node in world.nodes.values():
            report = of(node)
            assert (report.epoch, report.last_epoch) == (2, 2)
            assert report.log_end == report.high_watermark == node.shard.log.end_offset


async def test_report_tells_that_a_master_has_stepped_down_and_whether_it_may_lead_again(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        assert not of(n1).has_retired
        assert of(n1, requests_step_down=True).is_resigning
        n1.replica.on_stalled()
        n1.member.perform()
        assert of(n1).has_retired
        assert not of(n2).has_retired
        assert not of(n1, requests_step_down=True).is_resigning, "its reserve has made room"
        n1.guard.on_disk_full(0)
        n1.guard.on_disk_full(0)
        assert of(n1, requests_step_down=True).is_resigning


@pytest.mark.parametrize("free_bytes_min", [0, 1 << 60])
async def test_report_tells_of_a_disk_that_is_low(tmp_path: Path, free_bytes_min: int) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = world["n1"]
        n1.guard.free_bytes_min = free_bytes_min
        n1.guard.check(0)
        assert of(n1).is_low == bool(free_bytes_min)
        assert n1.member.is_ready
