"""Logins of the console: each has its own API, few are kept, and none before it holds."""

import asyncio
from base64 import b64encode
from typing import Any, cast

import pytest

from hourwheel import errors
from hourwheel.transport.access import PLAIN, Access
from node.console import logins as module
from node.console.api import Api
from node.console.logins import Logins
from tests.support.eventually import until


class FakeApi:
    """Checks while `gate` is open; who is called `wrong` does not hold."""

    def __init__(self, access: Access) -> None:
        self.access, self.is_closed = access, False
        self.gate = asyncio.Event()
        self.gate.set()

    async def check(self) -> None:
        await self.gate.wait()
        if self.access.user == ("wrong", "x"):
            raise errors.Unauthenticated

    def has(self, name: str, *, is_change: bool) -> bool:
        return name == "cluster" and not is_change

    async def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self, *, needs_login: bool = True) -> None:
        self.made: list[FakeApi] = []
        self.is_slow = False
        self.logins = Logins(PLAIN, self._make, needs_login=needs_login)

    def _make(self, access: Access) -> Api:
        self.made.append(FakeApi(access))
        if self.is_slow:
            self.made[-1].gate.clear()
        return cast(Api, self.made[-1])

    async def find(self, name: str) -> Any:
        return await self.logins.find("Basic " + b64encode(f"{name}:x".encode()).decode())


async def test_each_login_has_its_own_and_keeps_it() -> None:
    world = World()
    alice, bob = await world.find("alice"), await world.find("bob")
    assert alice is not bob
    assert await world.find("alice") is alice
    assert alice.access.user == ("alice", "x")
    by_token = await world.logins.find("bearer abc")
    assert cast(Any, by_token).access.token == "abc"
    assert world.logins.has("cluster", is_change=False)
    await world.logins.close()
    assert all(one.is_closed for one in world.made)


async def test_everybody_is_the_node_itself_where_no_login_is_needed() -> None:
    world = World(needs_login=False)
    assert await world.logins.find("") is cast(Any, world.made[0])
    assert await world.find("alice") is cast(Any, world.made[0])


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!", "Basic bm9jb2xvbg==", "Digest a:b", "Basic OngK"]
)
async def test_header_that_names_nobody_is_refused(header: str) -> None:
    world = World()
    with pytest.raises(errors.Unauthenticated):
        await world.logins.find(header)
    assert len(world.made) == 1


async def test_login_that_does_not_hold_is_closed_and_not_kept() -> None:
    world = World()
    for _ in range(2):
        with pytest.raises(errors.Unauthenticated):
            await world.find("wrong")
    assert [one.is_closed for one in world.made] == [False, True, True]


async def test_oldest_login_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGINS_MAX", 2)
    world = World()
    first = await world.find("a")
    second = await world.find("b")
    assert await world.find("a") is first
    await world.find("c")
    assert (first.is_closed, second.is_closed) == (False, True)


async def test_few_logins_are_checked_at_one_time_and_equal_ones_become_one() -> None:
    world = World()
    world.is_slow = True
    names = ["a", "a", "b", "c"]
    assert len(names) == module.CHECKING_MAX
    tasks = [asyncio.ensure_future(world.find(name)) for name in names]
    await until(lambda: len(world.made) == 1 + len(names))
    with pytest.raises(errors.Overloaded):
        await world.find("d")
    for one in world.made:
        one.gate.set()
    found = await asyncio.gather(*tasks)
    assert found[0] is found[1]
    assert sum(one.is_closed for one in world.made) == 1
