"""Three members in one process, one of which has lost its data: it gets a snapshot, and follows."""

from pathlib import Path

import pytest

from hourwheel.errors import NotFollowed
from node.replica.effects import Role
from node.snapshot.install import install_snapshot, set_aside_damaged
from storage.files.file_header import Identity
from tests.support.eventually import until
from tests.support.member_snapshots import fetch_snapshots, forget_the_beginning
from tests.support.member_world import LEASE_MS, MemberNode, MemberWorld


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return fetch_snapshots(monkeypatch)


async def test_member_that_lost_its_data_gets_a_snapshot(tmp_path: Path, taken: list[str]) -> None:
    async with MemberWorld(tmp_path) as world:
        identity = Identity(world.cluster_id, 0)
        n1, n3 = await world.elect("n1"), world["n3"]
        for _ in range(8):
            await n1.publish(*range(0, 60_000, 3_000))
        await world.agreed()
        await n3.close()
        seen = (n3.folder / "shard-0" / "epoch_seen").read_bytes()
        set_aside_damaged(n3.disk, "shard-0", identity)
        assert forget_the_beginning(n1) > 0

        await n3.open()
        await world.pass_ms(1_000)  # what it may have promised before it stopped is over
        assert not n3.member.is_ready
        await until(lambda: taken)
        assert taken == ["n3"]
        await n3.close()
        marker = install_snapshot(n3.disk, "shard-0", identity)
        assert marker is not None
        assert (n3.folder / "shard-0" / "epoch_seen").read_bytes() == seen

        await n3.open()
        await world.pass_ms(1_000)  # what it may have promised before it stopped is over
        assert n3.shard.log.start_offset == n1.shard.log.start_offset > 0
        await n1.publish(0, 100)
        await world.agreed()
        assert taken == ["n3"]
        await until(lambda: "n3" in world.control.in_sync)
        assert await world.elect("n3") is n3
        await n3.publish(0)
        await world.agreed()


async def test_member_that_is_behind_gets_a_snapshot_when_the_log_goes_meanwhile(
    tmp_path: Path, taken: list[str]
) -> None:
    async with MemberWorld(tmp_path) as world:
        identity = Identity(world.cluster_id, 0)
        n1, n3 = await world.elect("n1"), world["n3"]
        await n1.publish(0)
        await world.agreed()
        await n3.cut()
        await world.pass_ms(1_000)
        await until(lambda: "n3" not in world.control.in_sync)
        for _ in range(8):
            await n1.publish(*range(0, 60_000, 3_000))
        assert forget_the_beginning(n1) > n3.shard.log.end_offset
        await n3.listen()
        await until(lambda: taken)
        await n3.close()
        assert install_snapshot(n3.disk, "shard-0", identity) is not None
        await n3.open()
        await world.pass_ms(1_000)  # what it may have promised before it stopped is over
        await world.agreed()


async def lose_n3_and_what_it_needs(world: MemberWorld) -> MemberNode:
    """n1 serves; n3 is down, its data lost; no other node's log reaches back to the beginning."""
    n1, n3 = await world.elect("n1"), world["n3"]
    for _ in range(8):
        await n1.publish(*range(0, 60_000, 3_000))
    await world.agreed()
    await n3.close()
    world.control.dead.add("n3")
    set_aside_damaged(n3.disk, "shard-0", Identity(world.cluster_id, 0))
    for node in (n1, world["n2"]):
        assert forget_the_beginning(node) > 0
    await until(lambda: world.control.in_sync == {"n1", "n2"})
    await n1.publish(0)
    await world.agreed()
    return n1


async def bring_back_n3(world: MemberWorld, taken: list[str]) -> None:
    """It starts, is given a snapshot, and starts again with it."""
    n3 = world["n3"]
    await n3.open()
    world.control.dead.discard("n3")
    await world.pass_ms(1_000)  # what it may have promised before it stopped is over
    await until(lambda: taken)
    await n3.close()
    assert install_snapshot(n3.disk, "shard-0", Identity(world.cluster_id, 0)) is not None
    await n3.open()
    await world.pass_ms(1_000)


async def test_new_master_begins_its_reign_when_its_only_follower_needs_a_snapshot(
    tmp_path: Path, taken: list[str]
) -> None:
    """Without that follower nothing is committed, and so the new master cannot serve before."""
    async with MemberWorld(tmp_path) as world:
        n1 = await lose_n3_and_what_it_needs(world)
        n2 = await world.elect("n2")
        await n2.publish(0)
        await world.agreed()
        released = n1.shard.views.cursor.released_count
        await n2.close()
        world.control.dead.add("n2")
        world.control.elect("n1")
        await until(lambda: n1.replica.role is Role.TAKING_OVER)

        await bring_back_n3(world, taken)
        await world.serving("n1")
        assert world.control.in_sync == {"n1", "n3"}
        await n1.publish(0)
        await world.agreed()
        assert n1.shard.views.cursor.released_count >= released + 1
        assert taken == ["n3"]


async def test_master_that_has_lost_its_lease_is_named_again_and_gives_a_snapshot(
    tmp_path: Path, taken: list[str]
) -> None:
    """Only the one who needs it could grant the lease."""
    async with MemberWorld(tmp_path) as world:
        n1 = await lose_n3_and_what_it_needs(world)
        await world["n2"].close()
        world.control.dead.add("n2")
        world.jump_ms(LEASE_MS + 1_000)
        await until(lambda: world.control.reports["n1"].has_retired)
        world.control.elect("n1")
        await bring_back_n3(world, taken)
        await world.serving("n1")
        await n1.publish(0)
        assert world.control.in_sync == {"n1", "n3"}
        await world.agreed()


async def test_follower_whose_next_batch_is_deleted_is_asked_again(
    tmp_path: Path, taken: list[str]
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        for _ in range(8):
            await n1.publish(*range(0, 60_000, 3_000))
        await world.agreed()
        start = forget_the_beginning(n1)
        n1.shard.recent.truncate(0)
        progress = n1.replica.rules.followers["n3"]
        progress.sent_end = progress.acked_end = start - 8
        with pytest.raises(NotFollowed, match="deleted"):
            n1.replica.find_part("n3")
        assert taken == []
