"""Bits that flip on members of a cluster while something else is under way.

A snapshot, a change of master, a lease, a listing. Whatever happens, nothing acknowledged is lost
and nothing wrong is served. Three members in one process, on disks of their own.
"""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from hourwheel.errors import DataLoss
from hourwheel.filter_language.inputs import Sql
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import as_filter
from node.cluster.log_repair import LogRepair
from node.contracts.pending_token import PendingQuery
from node.snapshot.install import install_snapshot, set_aside_damaged
from storage.files.file_header import FILE_HEADER_BYTES, Identity
from storage.queues.queue_chunk import ENTRIES_AT
from tests.support.damaging import Flip
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.member_snapshots import checkpoint, fetch_snapshots, forget_the_beginning
from tests.support.member_world import MemberNode, MemberWorld

SHARD: Final = "shard-0"
DELAY_LOGS: Final = "shard-0/wheel/*.dlog"
SOON_MS: Final = range(3_001, 3_011)
FAR_MS: Final = range(3_600_001, 3_600_081)
EVERYTHING: Final = FilterExpression.everything()
BODIES: Final = [b"%d" % one for one in SOON_MS]
PLACES: Final[dict[str, tuple[str, int]]] = {
    "delay log body": ("wheel/*.dlog", FILE_HEADER_BYTES + 2),
    "run header": ("wheel/*.run", 20),
    "run units": ("wheel/*.run", FILE_HEADER_BYTES + 100),
    "run footer": ("wheel/*.run", -1),
    "queue header": ("queues/*/*.cq", 20),
    "queue entry": ("queues/*/*.cq", ENTRIES_AT + 100),
    "sequences": ("sequences/*", FILE_HEADER_BYTES + 8),
    "checkpoint": ("checkpoint", 100),
    "epochs": ("epochs", 70),
    "log batch": ("log/*.log", FILE_HEADER_BYTES + 20),
    "log header": ("log/*.log", 20),
}
"""Pattern of files, and the byte in the last of them."""
REPAIRED: Final = {"delay log body", "log batch", "log header"}
"""What the master can mend piece by piece, or whoever reads it."""


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return fetch_snapshots(monkeypatch)


def flip_at(node: MemberNode, pattern: str, at: int) -> Path:
    path = max((node.folder / SHARD).glob(pattern))
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    with path.open("r+b") as file:
        file.seek(at if at >= 0 else len(raw) + at)
        file.write(raw[at : at + 1] if at >= 0 else raw[at:])
    return path


async def begin(world: MemberWorld) -> MemberNode:
    """n1 serves; what it has released lies in its delay logs, and there is more for later."""
    n1 = await world.elect("n1")
    await n1.publish(*SOON_MS)
    for low in range(0, len(FAR_MS), 10):
        await n1.publish(*FAR_MS[low : low + 10])
    await world.agreed()
    for node in world.nodes.values():
        checkpoint(node)
    await world.pass_ms(3_100)
    await until(lambda: n1.engine.status().released_count == len(SOON_MS))
    await world.agreed()
    return n1


async def received(node: MemberNode, count: int = len(BODIES)) -> list[bytes]:
    raw = await node.bodies(count)
    return sorted(raw[at : at + 4] for at in range(0, len(raw), 4))


async def listed(node: MemberNode) -> list[bytes]:
    """Bodies of all that is pending, listed until nothing is damaged any more."""
    query = PendingQuery("orders", EVERYTHING)
    async with asyncio.timeout(60):
        while True:
            page = await within(
                node.engine.list_pending(query, b"", count_max=100, with_bodies=True)
            )
            if not page.corrupt_count:
                return sorted(bytes(one.body) for part in page.parts for one in part.blobs)


def repairing(node: MemberNode, renewed: list[DataLoss]) -> LogRepair:
    """What the application gives a member beside: it repairs its log, or lets others lead."""
    files = node.engine.damage.files

    async def mend(offset: int) -> bool:
        is_sound = await files.mend_at(offset)
        if not is_sound:
            await until(lambda: files.find_closed(offset) is not None)
        return is_sound

    repair = LogRepair(
        *(node.member, node.failure),
        min_in_sync=2,
        mend=mend,
        renew=renewed.append,
        sleep=lambda _: asyncio.sleep(0),
    )
    node.member.on_log_damage = repair.on_damage
    node.member.on_view_damage = repair.give_up
    return repair


@pytest.mark.parametrize("place", PLACES)
async def test_I8_snapshot_has_no_damage_when_a_bit_has_flipped_under_the_master(  # noqa: N802
    tmp_path: Path, taken: list[str], place: str
) -> None:
    """The log is repaired before; for what cannot be, somebody else leads and gives it."""
    async with MemberWorld(tmp_path) as world:
        n1, n3 = await begin(world), world["n3"]
        await n3.close()
        world.control.dead.add("n3")
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        set_aside_damaged(n3.disk, SHARD, Identity(world.cluster_id, 0))
        for node in (n1, world["n2"]):
            assert forget_the_beginning(node) > 0
        flip_at(n1, *PLACES[place])
        renewed: list[DataLoss] = []
        repair = repairing(n1, renewed)
        await n3.open()
        world.control.dead.discard("n3")
        await world.pass_ms(1_000)  # what it may have promised before it stopped is over
        await until(lambda: taken or world.control.reports["n1"].is_resigning)
        assert bool(taken) == (place in REPAIRED)
        if not taken:
            await world.elect("n2")
            await until(lambda: taken)
        await n3.close()
        assert install_snapshot(n3.disk, SHARD, Identity(world.cluster_id, 0)) is not None
        await n3.open()
        await world.pass_ms(1_000)
        await until(lambda: "n3" in world.control.in_sync)
        if place not in REPAIRED:
            await until(lambda: renewed)
            await n1.close()
        await repair.close()
        await world.agreed()
        await world.elect("n3")
        assert await received(n3) == BODIES
        assert await listed(n3) == [b"%d" % one for one in FAR_MS]


async def forget_logs(world: MemberWorld) -> MemberNode:
    """As `begin`, and bodies lie in delay logs alone: each node's own, or another's."""
    n1 = await begin(world)
    for node in world.nodes.values():
        assert forget_the_beginning(node) > 0
    return n1


async def test_I8_next_master_and_who_it_asks_first_have_lost_the_same(tmp_path: Path) -> None:  # noqa: N802
    async with MemberWorld(tmp_path) as world:
        n1 = await forget_logs(world)
        n2 = world["n2"]
        for body in BODIES[2:5]:
            Flip(n1.folder, body, DELAY_LOGS)
            Flip(n2.folder, body, DELAY_LOGS)
        Flip(world["n3"].folder, BODIES[7], DELAY_LOGS)
        Flip(n2.folder, BODIES[8], DELAY_LOGS)
        world.control.elect("n2")
        Flip(n2.folder, BODIES[9], DELAY_LOGS)  # while it takes over
        await world.serving("n2")
        assert await received(n2) == BODIES
        await until(lambda: n2.engine.stats.repaired_files)
        await world.elect("n1")
        assert await listed(n1) == [b"%d" % one for one in FAR_MS]


async def test_I8_follower_catches_up_when_the_new_masters_log_is_damaged(tmp_path: Path) -> None:  # noqa: N802
    """What it needs is repaired from the one who led before."""
    async with MemberWorld(tmp_path) as world:
        n1, n2, n3 = await begin(world), world["n2"], world["n3"]
        await n3.cut()
        world.control.dead.add("n3")
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        await n1.publish(7_001, 7_002, 7_003)
        await until(lambda: n2.shard.log.end_offset == n1.shard.log.end_offset)
        flip = Flip(n2.folder, b"7002", "shard-0/log/*.log")
        n2.shard.recent.truncate(0)  # what is in memory is as sound as ever
        renewed: list[DataLoss] = []
        repair = repairing(n2, renewed)
        await world.elect("n2")
        world.control.dead.discard("n3")
        await n3.listen()
        await world.pass_ms(1_000)  # what it has promised to the former master is over
        await until(lambda: "n3" in world.control.in_sync)
        await world.agreed()
        assert flip.is_there(b"7002")
        assert n2.engine.stats.repaired_files == 1
        assert renewed == []
        await repair.close()


async def test_I8_message_comes_again_when_it_is_damaged_during_its_lease(tmp_path: Path) -> None:  # noqa: N802
    async with MemberWorld(tmp_path) as world:
        n1 = await forget_logs(world)
        delivery = await n1.receive(count=4, wait_ms=60_000)
        assert delivery is not None
        for body in BODIES[:6]:
            Flip(n1.folder, body, DELAY_LOGS)
        assert await received(n1, 6) == BODIES[4:]
        await world.pass_ms(30_000)
        await until(
            lambda: not n1.mastership.receiver.leases.count
        )  # they ended: that is in the log
        await world.pass_ms(1_000)  # the delay of a second delivery, after whenever that was
        again = []
        async with asyncio.timeout(60):
            while len(again) < len(BODIES):
                delivery = await n1.receive(count=1, wait_ms=60_000)
                assert delivery is not None
                assert delivery.units["attempt"].tolist() == [2]
                again.append(bytes(delivery.blobs))
        assert sorted(again) == BODIES
        assert n1.shard.views.counters.dead_lettered == 0


async def test_I8_damaged_messages_are_listed_and_cancelled_when_peers_have_them(  # noqa: N802
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await forget_logs(world)
        bodies = [b"%d" % one for one in FAR_MS]
        for body in bodies[10:30]:
            Flip(n1.folder, body, DELAY_LOGS)
        query = PendingQuery("orders", as_filter(Sql("p IS NULL")))
        page = await within(n1.engine.cancel_pending(query, b""))
        assert (page.changed_count, page.corrupt_count) == (len(bodies) - 20, 20)
        await until(lambda: n1.engine.stats.damaged_fetched == 20)
        assert await listed(n1) == bodies[10:30]
        page = await within(n1.engine.cancel_pending(query, b""))
        assert (page.changed_count, page.corrupt_count) == (20, 0)
        await world.agreed()
