"""Clients over TLS: real sockets, real certificates, the public client and plain gRPC."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from hourwheel import errors
from hourwheel.cli.app import app
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Access, Tls
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2
from tests.support.addresses import free_address
from tests.support.api_world import ApiWorld
from tests.support.certificates import Authority, Files, self_signed, server_only, tls_section
from tests.support.eventually import until


def world_of(authority: Authority, node: Files, **more: Any) -> ApiWorld:
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    return ApiWorld({"tls": tls_section(node, **more)}, credentials=credentials)


def mutual(authority: Authority) -> dict[str, str]:
    return {"client_certificates": "required", "client_authority_file": str(authority.file)}


async def refusal_of(address: str, tls: Tls | bool | None) -> errors.TlsFailed:
    """The error of a client that would try for an hour."""
    channel = Channel(address, tls=tls, call_timeout_ms=3_600_000.0)
    async with AsyncAdmin(channel) as admin, asyncio.timeout(60):
        with pytest.raises(errors.TlsFailed) as caught:
            await admin.topics()
        return caught.value


async def cause_of(address: str, tls: Tls | bool | None) -> str:
    return (await refusal_of(address, tls)).params["cause"]


async def test_our_client_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world_of(authority, authority.issue("node", "127.0.0.1")) as world:
        await world.publish(b"plain gRPC clients, too")
        async with AsyncAdmin(world.address, tls=Tls(ca=authority.file)) as admin:
            await admin.topics()


PAST, FUTURE = datetime(2001, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)


async def test_nodes_that_a_client_does_not_accept(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    known = Tls(ca=authority.file)
    good = authority.issue("good", "127.0.0.1")
    cases: list[tuple[Files | None, Tls | bool | None, str]] = [
        (authority.issue("over", "127.0.0.1", ends=PAST), known, "certificate_expired"),
        (
            authority.issue("early", "127.0.0.1", begins=FUTURE, ends=FUTURE + timedelta(days=1)),
            known,
            "certificate_not_yet_valid",
        ),
        (foreign.issue("other", "127.0.0.1"), known, "certificate_untrusted"),
        (good, True, "certificate_untrusted"),
        (good, Tls(ca=foreign.file), "certificate_untrusted"),
        (self_signed(tmp_path), known, "certificate_self_signed"),
        (authority.issue("name", "broker.example"), known, "certificate_name"),
        (good, None, "tls_wanted"),
        (None, known, "tls_not_spoken"),
    ]
    for files, tls, cause in cases:
        world = ApiWorld() if files is None else world_of(authority, files)
        async with world:
            refusal = await refusal_of(world.address, tls)
            assert refusal.params["cause"] == cause
            assert world.address in refusal.message


async def test_node_whose_certificate_is_for_another_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world_of(authority, authority.issue("node", "broker.example")) as world:
        named = Tls(ca=authority.file, name="broker.example")
        async with AsyncAdmin(world.address, tls=named) as admin:
            await admin.topics()


async def test_clients_without_a_certificate_that_counts(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    node = authority.issue("node", "127.0.0.1")
    bad = [
        foreign.issue("stranger", "client.example"),
        authority.issue("ended", "client.example", ends=PAST),
        authority.issue("early", "client.example", begins=FUTURE, ends=FUTURE + timedelta(days=1)),
        self_signed(tmp_path),
        server_only(authority),
    ]
    good = authority.issue("client", "client.example")
    async with world_of(authority, node, **mutual(authority)) as world:
        for files in bad:
            tls = Tls(ca=authority.file, cert=files.certificate, key=files.key)
            assert await cause_of(world.address, tls) == "client_certificate_refused"
        assert await cause_of(world.address, Tls(ca=authority.file)) == "client_certificate_wanted"
        assert await cause_of(world.address, None) == "tls_wanted"
        tls = Tls(ca=authority.file, cert=good.certificate, key=good.key)
        async with AsyncAdmin(world.address, tls=tls) as admin:
            await admin.topics()


async def test_producer_and_command_are_told_at_once(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    async with world_of(authority, authority.issue("node", "127.0.0.1")) as world:
        producer = AsyncProducer(world.address, tls=Tls(ca=foreign.file))
        async with producer, asyncio.timeout(60):
            with pytest.raises(errors.TlsFailed):
                await producer.publish("orders", Message(b"x"))
        options = ["--server", world.address, "--tls-ca", str(foreign.file)]
        told = await asyncio.to_thread(CliRunner().invoke, app, [*options, "status"])
        assert told.exit_code == ExitCode.UNAVAILABLE
        assert "of no authority that is trusted here" in told.output


async def test_client_that_was_connected_goes_on_until_the_node_is_right_again(
    tmp_path: Path,
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    address = free_address()
    good, bad = authority.issue("good", "127.0.0.1"), foreign.issue("bad", "127.0.0.1")

    def at_address(files: Files) -> ApiWorld:
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        return ApiWorld({"tls": tls_section(files)}, credentials=credentials, listen=address)

    channel = Channel(address, tls=Tls(ca=authority.file), call_timeout_ms=3_600_000.0)
    async with channel, AsyncAdmin(channel) as admin, asyncio.timeout(60):
        async with at_address(good):
            await admin.topics()
        async with at_address(bad):
            waiting = asyncio.ensure_future(admin.topics())
            await until(lambda: "no authority" in channel.unreached or waiting.done())
            assert not waiting.done()
        async with at_address(good):
            await waiting


async def test_rotation_that_goes_wrong_changes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """What a producer has sent is accepted, over old connections and new ones."""
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    node = authority.issue("node", "127.0.0.1")
    old = [path.read_bytes() for path in node]
    other = foreign.issue("other", "127.0.0.1")
    async with world_of(authority, node) as world:
        assert world.tls is not None
        access = {"tls": Tls(ca=authority.file)}
        accepted = 0
        async with AsyncProducer(world.address, **access) as producer:  # type: ignore[arg-type]

            async def publish() -> None:
                nonlocal accepted
                await producer.publish("orders", Message(b"x"))
                async with AsyncProducer(Channel(world.address, **access)) as newcomer:  # type: ignore[arg-type]
                    await newcomer.publish("orders", Message(b"x"))
                accepted += 2

            async def goes_wrong() -> None:
                world.tls.look()  # type: ignore[union-attr]
                assert world.stats.tls_files_refused
                assert world.tls.version == version  # type: ignore[union-attr]
                await publish()

            await publish()
            version = world.tls.version
            node.key.unlink()
            await goes_wrong()
            node.key.write_bytes(other.key.read_bytes())
            node.key.chmod(0o600)
            await goes_wrong()
            authority.issue("node", "127.0.0.1", ends=PAST)
            await goes_wrong()
            authority.issue("node", "127.0.0.1", begins=FUTURE, ends=FUTURE + timedelta(days=1))
            await goes_wrong()
            node.certificate.write_text("nonsense")
            await goes_wrong()
            authority.issue("node", "127.0.0.1")
            world.tls.look()
            assert not world.stats.tls_files_refused
            assert world.tls.version == version + 1
            assert [path.read_bytes() for path in node] != old
            await publish()
        assert len(world.engine.stored) == accepted == 14


async def test_plain_port_on_loopback_beside(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", "127.0.0.1")
    with_port = {"plain_listen": free_address()}
    async with world_of(authority, node, **with_port) as world:
        await world.publish(b"over TLS")
        async with AsyncAdmin(with_port["plain_listen"]) as admin:
            await admin.topics()


async def test_certificates_change_under_load_without_a_lost_call(tmp_path: Path) -> None:
    authority, following = Authority(tmp_path), Authority(tmp_path, "following")
    both = tmp_path / "both.pem"
    both.write_bytes(authority.file.read_bytes() + following.file.read_bytes())
    node = authority.issue("node", "127.0.0.1")
    async with world_of(authority, node) as world:
        assert world.tls is not None
        is_over = asyncio.Event()
        calls = 0

        async def call_on_and_on() -> None:
            nonlocal calls
            access = Access(Tls(ca=both))
            while not is_over.is_set():
                # Connections of their own: each shakes hands anew.
                credentials = access.channel_credentials()
                assert credentials is not None
                options = [("grpc.use_local_subchannel_pool", 1)]
                async with grpc.aio.secure_channel(
                    world.address, credentials, options=options
                ) as channel:
                    call: Any = channel.unary_unary(
                        "/hourwheel.v1.AdminService/ListTopics",
                        request_serializer=admin_pb2.ListTopicsRequest.SerializeToString,
                        response_deserializer=admin_pb2.ListTopicsResponse.FromString,
                    )
                    await call(admin_pb2.ListTopicsRequest(), timeout=60.0)
                calls += 1

        tasks = [asyncio.create_task(call_on_and_on()) for _ in range(4)]
        for issuer in (following, authority, following):
            enough = calls + 12
            assert issuer.issue("node", "127.0.0.1") == node
            world.tls.look()
            await until(lambda: calls >= enough or any(task.done() for task in tasks))  # noqa: B023
        is_over.set()
        await asyncio.gather(*tasks)
        # Only the last authority is still good for a new connection.
        async with AsyncAdmin(world.address, tls=Tls(ca=following.file)) as admin:
            await admin.topics()
        cause = await cause_of(world.address, Tls(ca=authority.file))
        assert cause in {"certificate_untrusted", "certificate_self_signed"}


async def test_handshakes_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("node", "127.0.0.1")
    values = {"tls": tls_section(node), "limits": {"request_wait_ms": 500}}
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    async with ApiWorld(values, credentials=credentials) as world:
        host, port = world.address.rsplit(":", 1)
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        for _, writer in slow[:150]:  # half a hello each
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        await world.publish(b"served meanwhile")
        # Each is thrown out: its end comes by itself.
        for reader, _ in slow:
            async with asyncio.timeout(30):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1 << 20)
        for _, writer in slow:
            writer.close()
        await world.publish(b"and behind")
