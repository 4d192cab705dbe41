"""Three members of which some have lost bytes: who gives what to whom, and what stays damaged."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from tests.support.damaging import Flip
from tests.support.eventually import until
from tests.support.member_world import MemberNode, MemberWorld

LOG = "shard-0/log/*.log"


async def begin(world: MemberWorld) -> MemberNode:
    """n1 serves; messages with bodies 1001 to 1005 are due in their milliseconds."""
    n1 = await world.elect("n1")
    await n1.publish(*range(1_001, 1_006))
    await world.agreed()
    await world.pass_ms(1_100)
    await until(lambda: n1.engine.status().released_count == 5)
    await world.agreed()
    return n1


def flip(node: MemberNode, body: bytes) -> Flip:
    return Flip(node.folder, body, LOG)


async def received(node: MemberNode, count: int) -> list[bytes]:
    raw = await node.bodies(count)
    return sorted(raw[at : at + 4] for at in range(0, len(raw), 4))


async def test_I8_each_has_what_another_has_lost(tmp_path: Path) -> None:  # noqa: N802
    async with MemberWorld(tmp_path) as world:
        n1 = await begin(world)
        flips = [
            flip(n1, b"1001"),
            flip(n1, b"1002"),
            flip(world["n2"], b"1001"),
            flip(world["n3"], b"1002"),
        ]
        assert await received(n1, 5) == [b"1001", b"1002", b"1003", b"1004", b"1005"]
        assert n1.engine.stats.damaged_fetched == 2
        assert n1.serves
        # The batch as a whole is intact nowhere; each of its messages is, somewhere.
        await until(lambda: n1.engine.stats.repaired_files == 1)
        assert flips[0].is_there(b"1001")
        assert flips[1].is_there(b"1002")
        for node in (world["n2"], world["n3"]):
            files = node.engine.damage.files
            await files.mend_at(0)
            await until(lambda files=files: files.find_closed(0) is not None)  # type: ignore[misc]
            assert await files.mend_at(0)
        assert flips[2].is_there(b"1001")
        assert flips[3].is_there(b"1002")
        await n1.publish(0)
        await world.agreed()


async def test_I8_batch_is_put_together_of_what_others_have(tmp_path: Path) -> None:  # noqa: N802
    """Nobody has it whole, and nobody has read it: what the scrubber comes by."""
    async with MemberWorld(tmp_path) as world:
        await begin(world)
        n1, n2, n3 = (world[name] for name in ("n1", "n2", "n3"))
        flips = [flip(n3, b"1001"), flip(n3, b"1004"), flip(n1, b"1004"), flip(n2, b"1001")]
        files = n3.engine.damage.files
        assert not await files.mend_at(0), "it is closed first"
        await until(lambda: files.find_closed(0) is not None)
        assert await files.mend_at(0)
        assert flips[0].is_there(b"1001")
        assert flips[1].is_there(b"1004")


async def test_I8_nothing_is_lost_when_all_have_lost_it(tmp_path: Path) -> None:  # noqa: N802
    async with MemberWorld(tmp_path) as world:
        n1 = await begin(world)
        flips = [flip(node, b"1003") for node in world.nodes.values()]
        assert await received(n1, 4) == [b"1001", b"1002", b"1004", b"1005"]
        polled = asyncio.ensure_future(n1.receive(wait_ms=60_000))
        (one,) = (await n1.engine.list_damaged("", "", b"", count_max=9)).messages
        assert n1.engine.describe(one.message_id).is_damaged
        (lag,) = n1.engine.group("billing", 0, 9).lags
        assert lag.damaged_count == 1
        flips[2].flip()  # one of them is restored
        delivery = await polled
        assert delivery is not None
        assert bytes(delivery.blobs) == b"1003"
        assert n1.engine.shard.views.counters.dead_lettered == 0


async def test_I8_who_waits_is_told_once_when_the_master_steps_down(tmp_path: Path) -> None:  # noqa: N802
    """And the next master, whose file is sound, delivers what the last one withheld."""
    async with MemberWorld(tmp_path) as world:
        n1 = await begin(world)
        flip(n1, b"1001")
        n1.engine.damage.files.peers = None
        assert await received(n1, 4) == [b"1002", b"1003", b"1004", b"1005"]
        polled = asyncio.ensure_future(n1.receive(wait_ms=60_000))
        await until(lambda: n1.service.receive_service.waiting_count)
        n2 = await world.elect("n2")
        with pytest.raises(errors.HourwheelError):
            await polled
        assert n1.engine.stats.damaged_messages == 0
        assert await received(n2, 1) == [b"1001"]
        assert n2.engine.stats.crc_errors == 0
        with pytest.raises(errors.NotMaster):
            await n1.engine.list_damaged("", "", b"", count_max=9)
