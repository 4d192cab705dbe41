"""Who calls, over real sockets: tokens, secrets, certificates; in calls, streams and sessions."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from hourwheel import errors, watched_files
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Columns, build, draft_columns
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.transport.access import Tls
from hourwheel.transport.channel import Channel
from hourwheel.v1 import (
    broker_pb2,
    consumer_pb2,
    consumer_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from node.access.authentication import Authenticator
from node.access.tokens import Tokens
from node.access.user_secrets import UserSecrets, hash_of
from node.config.model import NodeConfig
from node.contracts.access import AccessPolicy
from tests.support.api_world import ApiWorld, refused
from tests.support.certificates import Authority, tls_section
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until, until_told
from tests.support.tokens import AUDIENCE, ISSUER, Signer

SIGNER = Signer.new()
FAR_S = 4_000_000_000
ONLY_ROOT = AccessPolicy(is_on=True, version=1, administrators=frozenset({"root"}))


def authenticator_of(tmp_path: Path, **more: Any) -> Authenticator:
    keys = tmp_path / "keys.pem"
    keys.write_bytes(SIGNER.public_pem)
    section = {
        "token_keys_file": str(keys),
        "token_issuer": ISSUER,
        "token_audience": AUDIENCE,
        "token_leeway_ms": 0,
    }
    tokens = Tokens(NodeConfig.of({"authentication": section}).authentication)
    return Authenticator(now_ms=SystemClock().wall_ms, tokens=tokens, **more)


def token(name: str = "root", **claims: Any) -> str:
    return SIGNER.token(name, **{"exp": FAR_S, **claims})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    secrets = UserSecrets(
        {"root": "right"}.get, SystemClock().monotonic_ms, lambda hashed, given: hashed == given
    )
    authenticator = authenticator_of(tmp_path, secrets=secrets)
    async with ApiWorld(identify=authenticator.identify) as world:
        world.access.replace(ONLY_ROOT)
        yield world
    secrets.close()


def one_batch() -> broker_pb2.PublishStreamRequest:
    raw = build(draft_columns(Columns(bodies=[b"x"])), 0, 0)
    return broker_pb2.PublishStreamRequest(topic="orders", record_batch=raw)


async def ask(world: ApiWorld, **access: Any) -> None:
    async with AsyncAdmin(Channel(world.address, call_timeout_ms=5_000.0, **access)) as admin:
        await admin.topics()


@pytest.mark.parametrize(
    "access", [{"token": token()}, {"token": token}, {"user": ("root", "right")}]
)
async def test_clients_that_show_who_they_are(world: ApiWorld, access: dict[str, Any]) -> None:
    await ask(world, **access)
    async with AsyncProducer(world.address, **access) as producer:
        await producer.publish("orders", Message(b"x"))
    async with AsyncConsumer(world.address, group="g", topic="orders", **access) as consumer:
        await consumer.receive(wait_ms=1)


@pytest.mark.parametrize(
    ("access", "error"),
    [
        ({}, errors.PermissionDenied),
        ({"token": token("alice")}, None),
        ({"token": token(exp=1)}, errors.Unauthenticated),
        ({"token": token(aud="other")}, errors.Unauthenticated),
        ({"token": Signer.new().token("root", exp=FAR_S)}, errors.Unauthenticated),
        ({"token": token()[:-3]}, errors.Unauthenticated),
        ({"user": ("root", "wrong")}, errors.Unauthenticated),
        ({"user": ("nobody", "right")}, errors.Unauthenticated),
    ],
)
async def test_clients_that_do_not(
    world: ApiWorld, access: dict[str, Any], error: type[errors.HourwheelError] | None
) -> None:
    if error is not None:
        with pytest.raises(error):
            await ask(world, **access)
    async with AsyncProducer(world.address, **access) as producer:
        # Who writes to a stream that is being refused may not learn why: gRPC loses the status.
        with pytest.raises((error or errors.PermissionDenied, errors.Timeout)):
            await producer.publish("orders", Message(b"x"))
    async with AsyncConsumer(world.address, group="g", topic="orders", **access) as consumer:
        with pytest.raises(error or errors.PermissionDenied):
            await consumer.receive(wait_ms=60_000)


async def test_refused_login_is_audited_with_the_name_that_was_claimed(
    world: ApiWorld, caplog: pytest.LogCaptureFixture
) -> None:
    claims: tuple[dict[str, Any], ...] = (
        {"user": ("eve", "guess")},
        {"token": token("bob", exp=1)},
    )
    for access in claims:
        with pytest.raises(errors.Unauthenticated):
            await ask(world, **access)
    found: list[Any] = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    audited = {(one["claimed"], one["principal"]) for one in found if "claimed" in one}
    assert audited == {("eve", ""), ("bob", "")}
    assert "guess" not in caplog.text


async def test_function_that_gives_no_token(world: ApiWorld) -> None:
    def fail() -> str:
        raise OSError("no such file")

    with pytest.raises(errors.Unauthenticated, match="its function has failed"):
        await ask(world, token=fail)


async def test_request_is_not_read_before_its_caller_is_known(world: ApiWorld) -> None:
    metadata = [("authorization", "Bearer forged")]
    call: Any = world.channel.stream_unary("/hourwheel.v1.ProducerService/Publish")
    refusal = await refused(call(endless(), metadata=metadata))
    assert refusal.reason == "UNAUTHENTICATED"
    assert not refusal.params


async def endless() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_session_ends_with_its_token_and_the_next_one_goes_on(world: ApiWorld) -> None:
    ends_s = SystemClock().wall_ms() / 1_000 + 3.0
    call = world.sessions.Session(metadata=[("authorization", f"Bearer {token(exp=ends_s)}")])
    assert not (await call.read()).answers
    refusal = await refused(call.read())
    assert refusal.reason == "LOGIN_ENDED"
    assert SystemClock().wall_ms() / 1_000 >= ends_s


async def test_publishing_goes_on_over_tokens_that_end(world: ApiWorld) -> None:
    made = 0

    def next_token() -> str:
        nonlocal made
        made += 1
        return token(exp=SystemClock().wall_ms() / 1_000 + 0.7, jti=str(made))

    async with AsyncProducer(world.address, token=next_token) as producer:
        end_ms = SystemClock().monotonic_ms() + 2_500
        count = 0
        while SystemClock().monotonic_ms() < end_ms:
            await producer.publish("orders", Message(b"x"))
            count += 1
    assert made > 1
    assert count > 2


async def test_much_metadata_is_refused_and_others_are_served(world: ApiWorld) -> None:
    much = [("authorization", "Bearer " + "x" * 1_000_000)]
    call: Any = world.channel.unary_unary("/hourwheel.v1.AdminService/GetStatus")
    for _ in range(5):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"", metadata=much)
    await ask(world, token=token())


async def test_certificate_is_who_calls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", "127.0.0.1")
    required = {"client_certificates": "required", "client_authority_file": str(authority.file)}
    authenticator = authenticator_of(tmp_path, asks_certificates=True)
    values = {"tls": tls_section(node, **required)}
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    async with ApiWorld(values, identify=authenticator.identify, credentials=credentials) as world:
        world.access.replace(ONLY_ROOT)
        for name, error in (("root", None), ("alice", errors.PermissionDenied)):
            files = authority.issue(name, "client.example", common_name=name)
            tls = Tls(ca=authority.file, cert=files.certificate, key=files.key)
            async with AsyncProducer(world.address, tls=tls) as producer:
                if error is None:
                    await producer.publish("orders", Message(b"x"))
                else:
                    with pytest.raises(error):
                        await producer.publish("orders", Message(b"x"))
        # A token that does not hold is not made good by a certificate.
        with pytest.raises(errors.Unauthenticated):
            await ask(world, tls=tls, token="forged")


async def test_streams_of_a_user_who_is_gone_or_has_another_secret_are_refused(
    tmp_path: Path,
) -> None:
    users = {"root": "right"}
    secrets = UserSecrets(
        users.get, SystemClock().monotonic_ms, lambda hashed, given: hashed == given
    )
    authenticator = authenticator_of(tmp_path, secrets=secrets)
    async with ApiWorld(identify=authenticator.identify) as world:
        world.access.replace(ONLY_ROOT)
        by_secret = (("authorization", "Basic " + b64encode(b"root:right").decode()),)
        stream = world.producer.PublishStream(metadata=by_secret)
        await stream.write(one_batch())
        assert (await stream.read()).published.count == 1
        session = world.sessions.Session(metadata=by_secret)
        poll = consumer_pb2.ReceiveRequest(group="g", topic="orders", wait_ms=60_000)
        world.engine.gates["receive"] = asyncio.Event()
        await session.write(
            session_pb2.SessionRequest(calls=[session_pb2.SessionCall(call_id=1, receive=poll)])
        )
        await until(lambda: world.stats.long_polls == 1)
        for change in ({"root": "another"}, {}):
            users.clear()
            users.update(change)
            world.access.replace(ONLY_ROOT)  # as when the control state changes
            await stream.write(one_batch())
            assert (await stream.read()).error.reason == "UNAUTHENTICATED"
        answers: list[Any] = []
        while not answers:
            answers += (await session.read()).answers
        assert answers[0].error.reason == "UNAUTHENTICATED"
        users["root"] = "right"
        await stream.write(one_batch())
        assert (await stream.read()).published.count == 1
        stream.cancel()
        session.cancel()
    secrets.close()


Take = Callable[[Path], None]


async def are_waiting(node: EmbeddedNode, count: int) -> bool:
    """Whether so many polls and receive streams wait, as the node's metrics say it."""

    def read() -> str:
        with urlopen(f"http://{node.metrics_address}/metrics") as page:
            return str(page.read(), "utf-8")

    return f"\nhourwheel_long_polls {count}" in await asyncio.to_thread(read)


def _without_alice(directory: Path) -> None:
    users = directory / "users"
    kept = [one for one in users.read_text().splitlines(keepends=True) if "alice" not in one]
    users.write_text("".join(kept))


def _without_her_key(directory: Path) -> None:
    (directory / "keys.pem").write_bytes(Signer.new().public_pem)


@pytest.mark.parametrize(
    ("scheme", "take"),
    [("basic", _without_alice), ("bearer", _without_her_key)],
)
async def test_what_is_open_ends_when_a_file_has_its_login_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, take: Take
) -> None:
    monkeypatch.setattr(watched_files, "LOOK_S", 0.05)
    given = b64encode(b"alice:secret").decode() if scheme == "basic" else token("alice")
    metadata = [("authorization", f"{scheme} {given}")]
    hashed = hash_of("secret")
    (tmp_path / "users").write_text(f"alice:{hashed}\nbob:{hashed}\n")
    (tmp_path / "keys.pem").write_bytes(SIGNER.public_pem)
    values = {
        "access": {"is_on": True, "administrators": "alice bob", "metrics": False},
        "authentication": {
            "users_file": str(tmp_path / "users"),
            "token_keys_file": str(tmp_path / "keys.pem"),
            "token_issuer": ISSUER,
            "token_audience": AUDIENCE,
        },
        "disk": {"free_bytes_min": 0},
    }
    asked = consumer_pb2.ReceiveRequest(group="g", topic="orders")
    opened = session_pb2.ReceiveStreamRequest(receive=asked, credits=10)
    async with EmbeddedNode(tmp_path / "data", values) as node:
        async with AsyncAdmin(node.address, user=("bob", "secret")) as admin:
            await admin.create_topic("orders")
            await admin.put_group("g")
        async with grpc.aio.insecure_channel(node.address) as channel:
            session = session_pb2_grpc.SessionServiceStub(channel).Session(metadata=metadata)
            call = session_pb2.SessionCall(call_id=1, receive_stream=opened)
            await session.write(session_pb2.SessionRequest(calls=[call]))
            consumer = consumer_pb2_grpc.ConsumerServiceStub(channel)
            asked.wait_ms = 60_000
            poll = asyncio.ensure_future(refused(consumer.Receive(asked, metadata=metadata)))
            await until_told(lambda: are_waiting(node, 2))
            take(tmp_path)
            assert (await asyncio.wait_for(poll, 30)).reason == "UNAUTHENTICATED"
            while not (answers := (await asyncio.wait_for(session.read(), 30)).answers):
                pass
            assert answers[0].error.reason == "UNAUTHENTICATED"
