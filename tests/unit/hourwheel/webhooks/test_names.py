"""Names that are found, are not there, and are asked of name servers that never answer."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hourwheel.webhooks import names
from hourwheel.webhooks.names import Names, Unresolved
from hourwheel.webhooks.post import Poster, PostFailed
from hourwheel.webhooks.settings import target_of
from tests.support.eventually import until, until_told
from tests.support.webhook_target import OK, WebhookTarget

MANY = 40
"""More than the threads that an event loop has for such things."""


class Servers:
    """Stands for the name servers of `getaddrinfo`; those of `dead.` names do not answer."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.go = threading.Event()
        self.shown: dict[str, list[str]] = {}

    def getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked[host] += 1
        if host.startswith("dead"):
            self.go.wait()
        if host not in self.shown:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", (one, 0)) for one in self.shown[host]]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    found = Servers()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.go.set()


def poster(url: str, found: Names, **more: Any) -> Poster:
    settings = {"timeout_ms": 60_000, "allow_private": True, **more}
    return Poster(target_of(url, allow_http=True), names=found, **settings)


async def why_not(work: Callable[[], Any]) -> str:
    with pytest.raises(Unresolved) as caught:
        await work()
    return str(caught.value)


async def test_a_dead_name_server_delays_no_other_target(servers: Servers) -> None:
    found = Names()
    async with WebhookTarget(lambda _: OK) as target:
        servers.shown["live.example"] = ["127.0.0.1"]
        dead = [poster(f"http://dead{one}.example:1/", found) for one in range(MANY)]
        waiting = [asyncio.ensure_future(one.post({}, b"x")) for one in dead for _ in range(2)]
        await until(lambda: len(servers.asked) == MANY)
        live = poster(f"http://live.example:{target.port}/", found)
        async with asyncio.timeout(30):
            assert (await live.post({}, b"x")).status == 200
        assert not any(one.done() for one in waiting)
        assert set(servers.asked.values()) == {1}, "those who wait for a name share the look-up"
        servers.go.set()
        for failure in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failure, PostFailed)
            assert failure.result == "unresolved"


async def test_a_look_up_has_a_time_and_goes_on_for_those_who_come_later(servers: Servers) -> None:
    found = Names(wait_ms=50)
    servers.shown["dead.example"] = ["127.0.0.1"]
    for _ in range(3):
        assert "within 50 ms" in await why_not(lambda: found.addresses_of("dead.example"))
    assert servers.asked["dead.example"] == 1, "it is not asked once more while it is under way"
    servers.go.set()

    async def is_known() -> bool:
        try:
            return await found.addresses_of("dead.example") == ("127.0.0.1",)
        except Unresolved:
            return False

    await until_told(is_known)
    assert servers.asked["dead.example"] == 1


async def test_one_who_gives_up_takes_the_answer_from_no_other(servers: Servers) -> None:
    found = Names()
    servers.shown["dead.example"] = ["127.0.0.1"]
    first, second = (asyncio.ensure_future(found.addresses_of("dead.example")) for _ in range(2))
    await until(lambda: servers.asked["dead.example"])
    first.cancel()
    await asyncio.wait([first])
    servers.go.set()
    assert await second == ("127.0.0.1",)


async def test_answers_are_kept_for_a_moment_and_that_there_is_none_too(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Names()
    servers.shown["live.example"] = ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    for _ in range(3):
        assert await found.addresses_of("live.example") == ("10.0.0.1", "10.0.0.2")
        assert "unknown" in await why_not(lambda: found.addresses_of("none.example"))
    assert servers.asked == {"live.example": 1, "none.example": 1}
    monkeypatch.setattr(names, "KEPT_MS", 0)
    monkeypatch.setattr(names, "FAILURE_KEPT_MS", 0)
    again = Names()
    for _ in range(3):
        await again.addresses_of("live.example")
        await why_not(lambda: again.addresses_of("none.example"))
    assert servers.asked == {"live.example": 4, "none.example": 4}


async def test_no_more_are_under_way_than_are_allowed(servers: Servers) -> None:
    found = Names(under_way_max=2)
    servers.shown["live.example"] = ["10.0.0.1"]
    waiting = [asyncio.ensure_future(found.addresses_of(f"dead{one}.example")) for one in range(2)]
    await until(lambda: len(servers.asked) == 2)
    assert "too many" in await why_not(lambda: found.addresses_of("live.example"))
    servers.go.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await found.addresses_of("live.example") == ("10.0.0.1",)


async def test_what_is_no_name(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise UnicodeError("label too long")

    monkeypatch.setattr(socket, "getaddrinfo", wrong)
    assert "label too long" in await why_not(lambda: Names().addresses_of("x" * 70))
    assert servers.asked == {}
