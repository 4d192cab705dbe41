"""The console and /metrics of a real node with access control on, over TLS and in the clear."""

import asyncio
import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import watched_files
from node.access.user_secrets import hash_of
from node.console.gate import TOKEN_HEADER
from tests.support.certificates import Authority, tls_section
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until_told

ROOT: Final = "Basic " + b64encode(b"root:of root").decode()
EVE: Final = "Basic " + b64encode(b"eve:of eve").decode()
WRONG: Final = "Basic " + b64encode(b"root:guessed").decode()


@cache
def users() -> str:
    return f"root:{hash_of('of root')}\neve:{hash_of('of eve')}\n"


def values_of(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "users"
    file.write_text(users())
    return {
        "access": {"is_on": True, "administrators": "root"},
        "authentication": {"users_file": str(file)},
        "console": {"listen": "127.0.0.1:0"},
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    }


@pytest.fixture(params=["TLS", "in the clear"])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[EmbeddedNode, ssl.SSLContext | None]]:
    values, context = values_of(tmp_path), None
    if request.param == "TLS":
        authority = Authority(tmp_path)
        node_files = authority.issue("node", "127.0.0.1", "localhost")
        values["tls"] = tls_section(node_files, authority_file=str(authority.file))
        context = ssl.create_default_context(cafile=str(authority.file))
    async with EmbeddedNode(tmp_path / "data", values) as node:
        yield node, context


async def ask(
    address: str,
    context: ssl.SSLContext | None,
    path: str,
    login: str = "",
    change: dict[str, Any] | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""

    def run() -> tuple[int, dict[str, str], bytes]:
        connection = (
            http.client.HTTPConnection(address, timeout=60)
            if context is None
            else http.client.HTTPSConnection(address, timeout=60, context=context)
        )
        try:
            given = {**headers, **({"Authorization": login} if login else {})}
            body = None if change is None else json.dumps(change)
            connection.request("GET" if change is None else "POST", path, body, given)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(run)


async def test_numbers_are_for_those_who_may_look_at_the_cluster(served: Any) -> None:
    node, context = served
    for path in ("/metrics", "/stalls"):
        for login, status in (("", 401), (WRONG, 401), ("Basic x", 401), (EVE, 403), (ROOT, 200)):
            found, headers, body = await ask(node.metrics_address, context, path, login)
            assert (found, bool(body)) == (status, status == 200)
            assert ("WWW-Authenticate" in headers) == (status != 200)
    numbers = (await ask(node.metrics_address, context, "/metrics", ROOT))[2].decode()
    for reason in ("UNAUTHENTICATED", "PERMISSION_DENIED"):  # two times two of each
        assert f'hourwheel_rejected_total{{reason="{reason}"}} 4' in numbers
    for probe in ("/live", "/startup", "/ready"):
        assert (await ask(node.metrics_address, context, probe))[0] == 200


def put(file: Path, text: str) -> None:
    file.write_text(text)


async def test_users_that_are_refused_show_in_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "LOOK_S", 0.05)
    values = values_of(tmp_path)
    file = Path(values["authentication"]["users_file"])
    async with EmbeddedNode(tmp_path / "data", values) as node:

        async def shows(value: int) -> bool:
            numbers = (await ask(node.metrics_address, None, "/metrics", ROOT))[2].decode()
            assert "hourwheel_login_files_refused" in numbers
            return f'hourwheel_login_files_refused{{file="users"}} {value}' in numbers

        assert await shows(0)
        put(file, "nonsense\n")
        await until_told(lambda: shows(1))
        put(file, users())
        await until_told(lambda: shows(0))


async def test_console_shows_and_changes_what_its_user_may(served: Any) -> None:
    node, context = served
    console = node.console_address
    for path in ("/", "/api/session", "/api/cluster?since_ms=0", "/no-such-page"):
        status, headers, _ = await ask(console, context, path)
        assert (status, headers["WWW-Authenticate"][:5]) == (401, "Basic")
    for login in (WRONG, "Bearer no-token", "Digest x", "Basic ???"):
        status, headers, _ = await ask(console, context, "/api/cluster?since_ms=0", login)
        assert (status, "WWW-Authenticate" in headers) == (401, True)
    assert (await ask(console, context, "/", ROOT))[0] == 200
    token = json.loads((await ask(console, context, "/api/session", ROOT))[2])["token"]
    scheme = "http" if context is None else "https"
    own = {
        "Origin": f"{scheme}://{console}",
        "Content-Type": "application/json",
        TOKEN_HEADER: token,
    }

    async def publish(login: str) -> int:
        message = {"topic": "orders", "delay_ms": 3_600_000, "body": "x"}
        return (await ask(console, context, "/api/publish", login, message, **own))[0]

    async def topics(login: str) -> list[str]:
        status, _, body = await ask(console, context, "/api/topics", login)
        assert status == 200, body
        return [one["name"] for one in json.loads(body)["topics"]]

    assert [await publish(login) for login in (EVE, WRONG, "", ROOT)] == [403, 401, 401, 200]
    # What one has seen is not shown to another.
    assert [await topics(login) for login in (ROOT, EVE, ROOT)] == [["orders"], [], ["orders"]]
