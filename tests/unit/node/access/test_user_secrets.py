import asyncio
import threading
from collections.abc import Iterator

import argon2
import pytest

from hourwheel import errors
from node.access.user_secrets import (
    PLACES,
    PLACES_A_SOURCE,
    RIGHT_MS,
    WRONG_MS,
    UserSecrets,
    hash_of,
    is_affordable,
    verify,
)
from tests.support.eventually import until


class World:
    """Hashes are `hash:` and the secret; checks wait while `gate` is closed."""

    def __init__(self) -> None:
        self.users = {"alice": "hash:a", "bob": "hash:b"}
        self.now_ms = 0.0
        self.checked: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.secrets = UserSecrets(self.users.get, lambda: self.now_ms, self._verify)

    def _verify(self, hashed: str, secret: str) -> bool:
        self.gate.wait()
        self.checked.append((hashed, secret))
        return hashed == f"hash:{secret}"

    async def check(self, name: str, secret: str, source: str = "ipv4:1") -> bool:
        return await self.secrets.check(name, secret, source)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.gate.set()
    world.secrets.close()


async def test_right_and_wrong_are_remembered_for_a_time(world: World) -> None:
    for _ in range(3):
        assert await world.check("alice", "a")
        assert not await world.check("alice", "b")
        assert not await world.check("nobody", "a")
    assert len(world.checked) == 3
    world.now_ms += WRONG_MS
    assert not await world.check("alice", "b")
    assert len(world.checked) == 4
    world.now_ms += RIGHT_MS
    assert await world.check("alice", "a")
    assert len(world.checked) == 5


async def test_user_who_is_not_there_costs_a_check(world: World) -> None:
    assert not await world.check("nobody", "a")
    (hashed, secret) = world.checked[0]
    assert hashed.startswith("$argon2id$")
    assert secret == "a"


async def test_new_hash_ends_what_is_remembered_at_once(world: World) -> None:
    assert await world.check("alice", "a")
    world.users["alice"] = "hash:new"
    assert not await world.check("alice", "a")
    assert await world.check("alice", "new")
    del world.users["alice"]
    assert not await world.check("alice", "new")


async def test_users_are_not_confused(world: World) -> None:
    world.users |= {"a": "hash:b:c", "a:b": "hash:x"}
    assert await world.check("a", "b:c")
    assert not await world.check("a:b", "c")


async def test_equal_logins_are_one_check(world: World) -> None:
    world.gate.clear()
    tasks = [asyncio.ensure_future(world.check("alice", "a")) for _ in range(100)]
    await asyncio.sleep(0)
    world.gate.set()
    assert all(await asyncio.gather(*tasks))
    assert len(world.checked) == 1


async def test_who_waits_may_go_away(world: World) -> None:
    world.gate.clear()
    first, second = (asyncio.ensure_future(world.check("alice", "a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    world.gate.set()
    assert await second


async def test_flood_of_wrong_secrets_has_its_own_places_only(world: World) -> None:
    assert await world.check("bob", "b", "ipv4:2")
    world.gate.clear()
    flood = [
        asyncio.ensure_future(world.check("alice", f"wrong {number}", "ipv4:1"))
        for number in range(1_000)
    ]
    await until(lambda: sum(one.done() for one in flood) == 1_000 - PLACES_A_SOURCE)
    refused = [one.exception() for one in flood if one.done()]
    assert all(isinstance(one, errors.Overloaded) for one in refused)
    assert await world.check("bob", "b", "ipv4:2")  # remembered: he waits for nobody
    other = asyncio.ensure_future(world.check("alice", "a", "ipv4:2"))
    await asyncio.sleep(0)
    world.gate.set()
    assert await other
    assert not any(
        await asyncio.gather(*(one for one in flood if not one.cancelled() and not one.done()))
    )


async def test_places_are_bounded_over_all_sources(world: World) -> None:
    world.gate.clear()
    tasks = [
        asyncio.ensure_future(world.check("alice", str(number), f"ipv4:{number}"))
        for number in range(PLACES + 5)
    ]
    await until(lambda: sum(one.done() for one in tasks) == 5)
    world.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(one, errors.Overloaded) for one in found) == 5
    assert not await world.check("alice", "again")  # all places are free


async def test_secret_that_is_too_long_is_not_looked_at(world: World) -> None:
    assert not await world.check("alice", "x" * 1_025)
    assert not world.checked


def test_hashes_are_argon2() -> None:
    hashed = hash_of("secret")
    assert hashed.startswith("$argon2id$")
    assert verify(hashed, "secret")
    assert not verify(hashed, "other")
    assert not verify("nonsense", "secret")


def test_hash_that_costs_too_much_is_nobodys() -> None:
    hashed = argon2.PasswordHasher().hash("open sesame")  # not the cheap one of tests
    assert is_affordable(hashed)
    for old, new in (("m=65536", "m=4194304"), ("t=3", "t=1000"), ("p=4", "p=100")):
        assert old in hashed
        dear = hashed.replace(old, new)
        assert not is_affordable(dear)
        assert not verify(dear, "open sesame")  # and that at once
    assert not is_affordable("no hash")
