"""What the control plane is told of a replica."""

from pathlib import Path

from node.shard_report import report_of
from tests.support.member_world import MemberWorld


async def test_report_of_a_new_replica_is_empty(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        report = report_of(world["n1"].replica)
        assert (report.epoch, report.last_epoch) == (0, 0)
        assert (report.log_end, report.high_watermark) == (0, 0)


async def test_report_tells_epoch_and_ends_of_the_log(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        await world.agreed()
        await world.elect("n2")
        await world.agreed()
        for node in world.nodes.values():
            report = report_of(node.replica)
            assert (report.epoch, report.last_epoch) == (2, 2)
            assert report.log_end == report.high_watermark == node.shard.log.end_offset
