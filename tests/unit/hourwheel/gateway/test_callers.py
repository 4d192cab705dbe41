import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.gateway.callers import CHECKS_A_SOURCE, Callers, name_of, read_authorization
from hourwheel.gateway.calls import producer_id_of
from hourwheel.gateway.problems import KeyReused
from hourwheel.gateway.recent_keys import RecentKeys
from hourwheel.transport.access import Tls
from tests.support.engine_world import let_others_run


def test_authorizations() -> None:
    pair = base64.b64encode(b"shop:a:b").decode()
    name, access = read_authorization(f"Basic {pair}", Tls())
    assert (name, access.user, access.tls) == ("shop", ("shop", "a:b"), Tls())
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "bob"}).encode()).decode().rstrip("=")
    name, access = read_authorization(f"bearer x.{claims}.y", None)
    assert (name, access.token) == ("bob", f"x.{claims}.y")
    assert read_authorization("Bearer opaque", None)[0] == "opaque"
    assert read_authorization("Bearer a.!.c", None)[0] == "a.!.c"
    assert read_authorization("", None)[0] == ""


@pytest.mark.parametrize(
    "text",
    [
        "Basic",
        "Basic !",
        "Basic YQ==",
        "Basic OmE=",
        "Bearer",
        "Digest a",
        "x",
        "Bearer \xff",
        "Bearer " + "x" * 9_000,
        "Basic " + base64.b64encode(b"\xff:a").decode(),
    ],
)
def test_authorizations_that_are_none(text: str) -> None:
    with pytest.raises(errors.Unauthenticated):
        read_authorization(text, None)


async def test_checks_are_counted_by_the_network_of_an_ipv6_caller() -> None:
    """With each address beside its own an IPv6 caller would have places of its own."""
    async with silent_node() as address:
        callers = Callers(address, None, call_timeout_ms=60_000.0, certificates={})

        def enter(host: str) -> "asyncio.Task[object]":
            guess = base64.b64encode(f"alice:for {host}".encode()).decode()
            return asyncio.ensure_future(callers.enter(f"Basic {guess}", host))

        begun = [enter(f"2001:db8:1:2::{number}") for number in range(1, CHECKS_A_SOURCE + 1)]
        try:
            with pytest.raises(errors.Overloaded):
                await enter("2001:db8:1:2:ffff::9")
            begun.append(enter("2001:db8:1:3::1"))
            await let_others_run()
            assert not any(one.done() for one in begun)
        finally:
            await callers.close()
            await asyncio.gather(*begun, return_exceptions=True)


@asynccontextmanager
async def silent_node() -> AsyncIterator[str]:
    """Takes connections, and says nothing: a check of credentials lasts."""
    writers = list[asyncio.StreamWriter]()

    async def take(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in writers:
            writer.close()
        server.close()


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": ((("commonName", "shop"),),)}, "shop"),
        (
            {
                "subject": ((("commonName", "shop"),),),
                "subjectAltName": (("URI", "urn:a"), ("DNS", "b")),
            },
            "urn:a",
        ),
        ({"subjectAltName": (("DNS", "b"),)}, "b"),
        ({"subjectAltName": (("URI", "urn:a"), ("URI", "urn:b"))}, ""),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, ""),
    ],
)
def test_whom_a_certificate_names(certificate: dict[str, Any] | None, name: str) -> None:
    assert name_of(certificate) == name


def test_an_idempotency_key_belongs_to_a_caller_and_a_topic() -> None:
    parts = [("a", "t", "k"), ("b", "t", "k"), ("a", "u", "k"), ("a", "t", "l"), ("at", "", "k")]
    numbers = [producer_id_of(*one) for one in parts]
    assert len(set(numbers)) == len(parts)
    assert all(0 < number < 1 << 64 for number in numbers)
    frozen = 0xF24D_A569_0DDD_9B08  # other gateways count on it
    assert numbers[0] == producer_id_of("a", "t", "k") == frozen
    for wrong in ("", "ä", "a b", "x" * 256):
        with pytest.raises(errors.InvalidArgument):
            producer_id_of("a", "t", wrong)


def test_recent_keys_forget_the_oldest() -> None:
    keys = RecentKeys(2)
    keys.check("a", b"1")
    keys.check("b", b"1")
    keys.check("a", b"1")
    keys.check("c", b"1")
    keys.check("b", b"2")  # it was forgotten
    with pytest.raises(KeyReused):
        keys.check("c", b"2")
