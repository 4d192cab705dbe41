"""Clients over TLS: real sockets, real certificates, the public client and plain gRPC."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.access import Access, Tls
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2
from tests.support.addresses import free_address
from tests.support.api_world import ApiWorld
from tests.support.certificates import Authority, Files, tls_section
from tests.support.eventually import until


def world_of(authority: Authority, node: Files, **more: Any) -> ApiWorld:
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    return ApiWorld({"tls": tls_section(node, **more)}, credentials=credentials)


def mutual(authority: Authority) -> dict[str, str]:
    return {"client_certificates": "required", "client_authority_file": str(authority.file)}


async def why_refused(address: str, tls: Tls | bool | None) -> str:
    async with AsyncAdmin(Channel(address, tls=tls, call_timeout_ms=1_500.0)) as admin:
        with pytest.raises(errors.Unavailable) as caught:
            await admin.topics()
    return caught.value.message


async def test_our_client_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world_of(authority, authority.issue("node", "127.0.0.1")) as world:
        await world.publish(b"plain gRPC clients, too")
        async with AsyncAdmin(world.address, tls=Tls(ca=authority.file)) as admin:
            await admin.topics()


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (None, ""),
        (True, "no authority that is trusted"),
        ("foreign", "no authority that is trusted"),
    ],
)
async def test_nodes_that_a_client_does_not_know(
    tmp_path: Path, tls: str | bool | None, why: str
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    given = Tls(ca=foreign.file) if tls == "foreign" else tls
    async with world_of(authority, authority.issue("node", "127.0.0.1")) as world:
        assert why in await why_refused(world.address, given)  # type: ignore[arg-type]


async def test_node_whose_certificate_is_for_another_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world_of(authority, authority.issue("node", "broker.example")) as world:
        tls = Tls(ca=authority.file)
        assert "another name" in await why_refused(world.address, tls)
        named = Tls(ca=authority.file, name="broker.example")
        async with AsyncAdmin(world.address, tls=named) as admin:
            await admin.topics()


async def test_node_whose_certificate_is_over(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world_of(authority, authority.issue("node", "127.0.0.1", is_over=True)) as world:
        assert "no authority" in await why_refused(world.address, Tls(ca=authority.file))


async def test_clients_without_a_certificate_that_counts(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    node = authority.issue("node", "127.0.0.1")
    bad = [
        foreign.issue("stranger", "client.example"),
        authority.issue("ended", "client.example", is_over=True),
    ]
    good = authority.issue("client", "client.example")
    async with world_of(authority, node, **mutual(authority)) as world:
        for files in bad:
            tls = Tls(ca=authority.file, cert=files.certificate, key=files.key)
            await why_refused(world.address, tls)
        await why_refused(world.address, Tls(ca=authority.file))
        tls = Tls(ca=authority.file, cert=good.certificate, key=good.key)
        async with AsyncAdmin(world.address, tls=tls) as admin:
            await admin.topics()


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
        assert "no authority" in await why_refused(world.address, Tls(ca=authority.file))


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
