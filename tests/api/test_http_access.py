"""The HTTP API with access control on: each call needs what its gRPC twins need."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourwheel.client.access import Limits
from hourwheel.client.admin import AsyncAdmin
from hourwheel.gateway.routes import ROUTES, Route
from hourwheel.transport.access import Tls
from node.access.permissions import RULES
from node.contracts.access import Operation
from tests.support.certificates import Authority, tls_section
from tests.support.eventually import until_told
from tests.support.http_access import administered, basic, values_of
from tests.support.http_world import Answer, HttpWorld
from tests.support.tokens import Signer

NAMES = [f"{kind}-{operation}" for kind in ("only", "not") for operation in Operation]
SIGNER = Signer.new()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HttpWorld]:
    async with HttpWorld(
        tmp_path, values_of(tmp_path, SIGNER, *NAMES), call_timeout_ms=3_000
    ) as found:
        yield found


async def call(world: HttpWorld, route: Route, **headers: str) -> Answer:
    """As its example says."""
    path = route.path.format(topic="orders", group="billing", id="0" * 48)
    if route.query:
        return await world.get(f"{path}?key=order-17", **headers)
    if route.body is None:
        return await world.get(path, **headers)
    return await world.post(path, route.example, **headers)


async def grant_each(admin: AsyncAdmin) -> None:
    await admin.create_topic("orders")
    on_groups = {Operation.RECEIVE, Operation.LOOK, Operation.ADMINISTER}
    for one in Operation:
        for name, wanted in ((f"only-{one}", {one}), (f"not-{one}", set(Operation) - {one})):
            await admin.grant(name, sorted(wanted), "topic", "*")
            if wanted & on_groups:
                await admin.grant(name, sorted(wanted & on_groups), "group", "*")


async def test_each_call_needs_what_its_grpc_twins_need(world: HttpWorld) -> None:
    await administered(world, grant_each)
    for route in ROUTES:
        nobody = await call(world, route)
        assert (nobody.status, nobody.reason) == (401, "UNAUTHENTICATED"), route.name
        assert "Basic" in nobody.headers["www-authenticate"]
        refused = await call(world, route, authorization=basic("eve"))
        assert (refused.status, refused.reason) == (403, "PERMISSION_DENIED"), route.name
        needed = {RULES[twin.strip("/").replace("/", ".")].operation for twin in route.twins}
        (operation,) = needed
        without = await call(world, route, authorization=basic(f"not-{operation}"))
        assert (without.status, without.reason) == (403, "PERMISSION_DENIED"), route.name
        alone = f"only-{operation}"
        if route.name == "reset":  # which asks for look on the topic, too
            refused = await call(world, route, authorization=basic(alone))
            assert refused.json["params"]["operation"] == "look"
            alone = "not-publish"
        allowed = await call(world, route, authorization=basic(alone))
        assert allowed.status not in {401, 403, 404, 405, 500}, (route.name, allowed.raw)


async def test_what_shows_nobody_is_refused_before_the_body_is_read(world: HttpWorld) -> None:
    path = "/v1/topics/orders/messages"
    token = SIGNER.token("root", exp=4_000_000_000)
    assert (await world.post(path, {"text": "x"}, authorization=f"Bearer {token}")).status == 201
    for wrong in (
        basic("root", "guessed"),
        basic("nobody-there"),
        "Basic !!",
        "Bearer",
        "Bearer forged",
        f"Bearer {SIGNER.token('root', exp=1)}",
        "Digest x",
    ):
        answer = await world.post(path, "no message", authorization=wrong)
        assert (answer.status, answer.reason) == (401, "UNAUTHENTICATED"), wrong
    assert (await world.post(path, {"text": "x"}, authorization=basic("root"))).status == 201


async def test_two_callers_with_one_idempotency_key_are_two(world: HttpWorld) -> None:
    async def change(admin: AsyncAdmin) -> None:
        await admin.grant("eve", ["publish"], "topic", "*")

    await administered(world, change)
    path, body = "/v1/topics/orders/messages", {"text": "x", "delay": "1h"}
    found = [
        await world.post(path, body, authorization=basic(name), idempotency_key="k")
        for name in ("root", "eve", "root")
    ]
    ids = [one.json["messages"][0]["id"] for one in found]
    assert ids[0] == ids[2] != ids[1]


async def test_a_quota_says_when_to_come_back(world: HttpWorld) -> None:
    async def change(admin: AsyncAdmin) -> None:
        await admin.grant("eve", ["publish"], "topic", "*")
        await admin.put_quota("eve", Limits(messages_per_s=1))

    await administered(world, change)
    path, many = "/v1/topics/orders/messages", [{"text": "x"}] * 30
    refused: list[Answer] = []

    async def is_refused() -> bool:
        answer = await world.post(path, many, authorization=basic("eve"))
        if answer.status == 429:
            refused.append(answer)
        return bool(refused)

    await until_told(is_refused)
    assert refused[0].reason == "QUOTA_EXCEEDED"
    assert int(refused[0].headers["retry-after"]) > 1


async def test_a_certificate_stands_for_the_credentials_of_its_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", "127.0.0.1", "localhost")
    (tmp_path / "login").write_text("root:secret\n")
    values = {**values_of(tmp_path, SIGNER, *NAMES), "tls": tls_section(own)}
    settings = {
        "cert": str(own.certificate),
        "key": str(own.key),
        "client_ca": str(authority.file),
        "certificates": {"shop": {"login_file": str(tmp_path / "login")}},
    }
    context = ssl.create_default_context(cafile=str(authority.file))
    path, body = "/v1/topics/orders/messages", {"text": "x"}
    nodes = Tls(ca=authority.file, cert=own.certificate, key=own.key)
    async with HttpWorld(tmp_path, values, tls=nodes, caller_tls=context, **settings) as world:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await world.post(path, body)  # without a certificate there is no connection
        for name, status in (("shop", 201), ("thief", 401)):
            files = authority.issue(name, "client.example", common_name=name)
            context.load_cert_chain(files.certificate, files.key)
            assert (await world.post(path, body)).status == status
        other = await world.post(path, body, authorization=basic("eve"))
        assert other.status == 403


async def test_the_gateways_own_certificate_is_nobodys_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", "127.0.0.1", common_name="root")
    required = {"client_certificates": "required", "client_authority_file": str(authority.file)}
    values = {**values_of(tmp_path, SIGNER, *NAMES), "tls": tls_section(own, **required)}
    nodes = Tls(ca=authority.file, cert=own.certificate, key=own.key)
    async with HttpWorld(tmp_path, values, tls=nodes) as world:
        answer = await world.post("/v1/topics/orders/messages", {"text": "x"})
        assert (answer.status, answer.reason) == (401, "UNAUTHENTICATED")
        assert (await world.get("/readyz")).status == 200
        known = await world.post(
            "/v1/topics/orders/messages", {"text": "x"}, authorization=basic("root")
        )
        assert known.status == 201
