"""Members whose files have rotted where nobody reads: repaired, or filled anew by others."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.errors import DataLoss
from node.cluster.log_repair import LogRepair
from node.repair.scrubber import Scrubber, ScrubSinks, ScrubSource
from node.shard.recovery import Opened, ShardConfig
from node.snapshot.install import reopen_shard
from storage.files.file_header import Identity
from storage.log.commit_log import LogConfig
from tests.support import member_world
from tests.support.damaging import Flip
from tests.support.eventually import until
from tests.support.member_snapshots import checkpoint
from tests.support.member_world import MemberNode, MemberWorld


async def no_sleep(_: float) -> None:
    """Scrub as fast as it goes."""
    await asyncio.sleep(0)


class Scrubbed:
    """A node with what the application gives it beside the member."""

    def __init__(self, node: MemberNode, *, is_mended: bool = False) -> None:
        """With `is_mended` it asks others for what is damaged; else nobody answers it."""
        self.renewed: list[DataLoss] = []
        files = node.engine.damage.files
        if not is_mended:
            files.peers = None
        self.repair = LogRepair(
            *(node.member, node.failure),
            min_in_sync=2,
            mend=files.mend_at,
            renew=self.renewed.append,
            sleep=no_sleep,
        )
        shard = node.shard
        self.scrubber = Scrubber(
            ScrubSource(
                node.disk,
                Identity(node.cluster_id, 0),
                shard.log,
                lambda: shard.high_watermark,
                directory="shard-0",
                manifest=lambda: node.engine.background.maintenance.manifest,
            ),
            node.engine.stats,
            node.failure,
            bytes_per_s=1 << 30,
            sinks=ScrubSinks(
                self.repair.on_damage,
                self.repair.give_up,
                lambda found: node.engine.damage.take_scrubbed(*found, node.engine.now_ms()),
            ),
            now_ms=node.engine.now_ms,
            first_s=0.0,
            sleep=no_sleep,
        )
        self.repair.on_mended = self.scrubber.on_mended

    async def close(self) -> None:
        await self.repair.close()
        await self.scrubber.close()


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> list[DataLoss]:
    """Segments are small. What is put here, the next node that opens its shard is told of."""
    told: list[DataLoss] = []

    def open_shard(place: Any, config: ShardConfig) -> Opened:
        return reopen_shard(place, config, told.pop() if told else None).opened

    log = LogConfig(segment_bytes=2_048, index_interval_bytes=512)
    config = member_world.shard_config(member_world.CONFIG)
    monkeypatch.setattr(member_world, "shard_config", lambda _: replace(config, log=log))
    monkeypatch.setattr(member_world, "open_shard", open_shard)
    return told


async def begin(world: MemberWorld) -> MemberNode:
    """n1 serves; there is some log."""
    n1 = await world.elect("n1")
    for _ in range(8):
        await n1.publish(*range(0, 60_000, 3_000))
    await world.agreed()
    return n1


def rot(node: MemberNode) -> str:
    """Flip a bit in old log; the file."""
    path: str = node.shard.log.segments()[1].path
    file = node.disk.open(path)
    (byte,) = file.pread(1, 700)
    file.pwrite((bytes((byte ^ 4,)),), 700)
    file.close()
    return path


@pytest.mark.parametrize("who", ["n1", "n3"])
async def test_I8_rotten_log_is_mended_by_others_whoever_it_is(  # noqa: N802
    tmp_path: Path, damage: list[DataLoss], who: str
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, node = await begin(world), world[who]
        path = rot(node)
        scrubbed, stats = Scrubbed(node, is_mended=True), node.engine.stats
        await until(lambda: stats.repaired_files == 1)
        await until(lambda: stats.scrub_passes > 2)
        assert (stats.scrub_damaged_segments, scrubbed.renewed) == (0, [])
        assert stats.crc_errors == 1
        assert node.member.is_ready
        assert n1.serves
        await scrubbed.close()
        others = [one.shard.log for one in world.nodes.values()]
        assert path in {one.path for one in others[0].segments()}
        end = others[0].segments()[-1].start_offset
        assert len({bytes(one.read(0, end)) for one in others}) == 1
        await n1.publish(0)
        await world.agreed()


async def test_I8_follower_with_rotten_log_is_not_elected_and_gets_a_good_copy(  # noqa: N802
    tmp_path: Path, damage: list[DataLoss]
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n3 = await begin(world), world["n3"]
        assert n3.member.is_ready
        path = rot(n3)
        scrubbed = Scrubbed(n3)
        await until(lambda: scrubbed.renewed)
        assert not n3.member.is_ready
        (error,) = scrubbed.renewed
        assert error.params["file"] == path
        await scrubbed.close()
        await n3.close()

        damage.append(error)
        await n3.open()
        assert n3.shard.log.end_offset == 0
        assert not n3.member.is_ready
        await world.pass_ms(1_000)  # what it may have promised before it stopped is over
        await world.agreed()
        scrubbed = Scrubbed(n3)
        stats = n3.engine.stats
        await until(lambda: stats.scrub_passes > 1)
        assert (stats.scrub_damaged_segments, scrubbed.renewed) == (0, [])
        await scrubbed.close()
        await n1.publish(0)
        await world.agreed()


async def test_I8_master_with_rotten_log_hands_over_first(  # noqa: N802
    tmp_path: Path, damage: list[DataLoss]
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await begin(world)
        rot(n1)
        scrubbed = Scrubbed(n1)
        reports = world.control.reports
        await until(lambda: reports["n1"].is_resigning)
        assert not reports["n1"].is_ready
        assert n1.serves  # as long as nobody else can
        await n1.publish(0)
        assert scrubbed.renewed == []
        n2 = await world.elect("n2")
        await until(lambda: scrubbed.renewed)
        await scrubbed.close()
        await n2.publish(0)
        await world.agreed()


async def test_rotten_log_is_kept_when_too_few_others_are_in_sync(
    tmp_path: Path, damage: list[DataLoss]
) -> None:
    async with MemberWorld(tmp_path) as world:
        await begin(world)
        n2, n3 = world["n2"], world["n3"]
        await n2.cut()
        world.control.dead.add("n2")
        await until(lambda: world.control.in_sync == {"n1", "n3"})
        rot(n3)
        scrubbed = Scrubbed(n3)
        stats = n3.engine.stats
        await until(lambda: stats.scrub_passes > 2)
        assert (stats.scrub_damaged_segments, scrubbed.renewed) == (1, [])
        await world["n1"].publish(0)  # it still counts
        world.control.dead.clear()
        await n2.listen()
        await until(lambda: scrubbed.renewed)
        assert isinstance(scrubbed.renewed[0], errors.CorruptLog)
        await scrubbed.close()


@pytest.mark.parametrize("who", ["n1", "n3"])
async def test_I8_delay_log_is_repaired_before_somebody_needs_it(  # noqa: N802
    tmp_path: Path, who: str
) -> None:
    """On whichever replica, and though no log has the messages any more."""
    async with MemberWorld(tmp_path) as world:
        n1, node = await world.elect("n1"), world[who]
        await n1.publish(*range(60_000, 60_100))
        await world.agreed()
        for one in world.nodes.values():
            checkpoint(one)
        flips = [Flip(node.folder, body, "shard-0/wheel/*.dlog") for body in (b"60003", b"60077")]
        stats = node.engine.stats
        scrubbed = Scrubbed(node, is_mended=True)
        await until(lambda: all(one.is_there(b"600") for one in flips))
        await until(lambda: stats.scrub_damaged_messages == 0 and not stats.damaged_messages)
        passes = stats.scrub_passes
        await until(lambda: stats.scrub_passes > passes + 1)
        assert (stats.scrub_damaged_views, scrubbed.renewed) == (0, [])
        assert stats.damaged_fetched == 2
        assert stats.repaired_files >= 1
        assert node.member.is_ready
        await scrubbed.close()


async def test_I8_master_with_a_rotten_run_hands_over_and_is_filled_anew(tmp_path: Path) -> None:  # noqa: N802
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(*range(60_000, 60_100))
        await world.agreed()
        checkpoint(n1)
        path = next((n1.folder / "shard-0/wheel").glob("*.run"))
        raw = bytearray(path.read_bytes())
        raw[200] ^= 1
        path.write_bytes(raw)
        scrubbed = Scrubbed(n1)
        await until(lambda: world.control.reports["n1"].is_resigning)
        assert n1.engine.stats.scrub_damaged_views == 1
        assert n1.serves
        await world.elect("n2")
        await until(lambda: scrubbed.renewed)
        assert str(path.name) in scrubbed.renewed[0].message
        await scrubbed.close()
