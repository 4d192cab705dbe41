"""Changes of the in-sync set, by members whose control_port is a fake."""

import asyncio
from pathlib import Path

from hourwheel import errors
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.member_world import MemberWorld


async def test_in_sync_change_is_asked_again_when_its_answer_is_lost(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        await world.elect_with_message("n1")
        world.control.errors.append(errors.Timeout("lost"))
        await world["n3"].cut()
        world.control.dead.add("n3")
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        assert world.control.errors == []
        world.control.dead.clear()
        await world["n3"].listen()
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})


async def test_node_ends_when_asking_meets_a_bug(tmp_path: Path) -> None:
    """Else the change would count as under way for as long as the mastership lasts."""
    async with MemberWorld(tmp_path) as world:
        world.expected.add("n1")
        n1 = await world.elect("n1")
        world.control.errors.append(ZeroDivisionError("a bug"))
        await world["n3"].cut()
        world.control.dead.add("n3")
        assert isinstance(await within(asyncio.shield(n1.failure.found)), errors.Internal)
