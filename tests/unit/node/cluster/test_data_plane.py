"""Who may call a broker, and how brokers call each other."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import (
    FetchMessagesRequest,
    FetchMessagesResponse,
    FollowerHello,
    ReplicateRequest,
    ReplicateResponse,
)
from node.cluster.data_plane import (
    CONNECTION_COUNT_MAX,
    FETCH_MESSAGES,
    REPLICATE,
    SERVICE,
    DataServer,
    Dialer,
    Trust,
    check_loopback,
    read_trust,
)
from node.cluster.peer_names import names_of
from node.config.cluster import ClusterSection
from tests.support.engine_world import within

SECRET = Trust(secret="known to all of them")


def handlers() -> grpc.GenericRpcHandler:
    """Answers each request with a hello of its epoch."""

    async def replicate(requests: Any, context: Any) -> None:
        async for request in requests:
            hello = FollowerHello(epoch=request.hello.epoch)
            await context.write(ReplicateResponse(hello=hello))

    handler = grpc.stream_stream_rpc_method_handler(
        replicate,
        request_deserializer=ReplicateRequest.FromString,
        response_serializer=ReplicateResponse.SerializeToString,
    )

    async def fetch(_: Any, __: Any) -> FetchMessagesResponse:
        return FetchMessagesResponse()

    fetching = grpc.unary_unary_rpc_method_handler(
        fetch,
        request_deserializer=FetchMessagesRequest.FromString,
        response_serializer=FetchMessagesResponse.SerializeToString,
    )
    methods = {"Replicate": handler, "FetchMessages": fetching}
    return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)


async def ask(server: Trust, caller: Trust, *, is_welcome: bool = False) -> grpc.StatusCode:
    """How a call of `caller` ends at a server that trusts by `server`.

    Only who is welcome says anything: a write that comes after the refusal ends the call by itself.
    """
    listening = DataServer(server, "127.0.0.1:0")
    port = await listening.start(handlers())
    dialer = Dialer(caller, {"n1": f"localhost:{port}"})
    try:
        call = dialer.replicate("n1")
        if is_welcome:
            await call.write(ReplicateRequest(hello={"epoch": 7}))  # type: ignore[arg-type]
            assert (await within(call.read())).hello.epoch == 7
            await call.done_writing()
        code: grpc.StatusCode = await within(call.code())
        return code
    finally:
        await dialer.close()
        await listening.stop()


def certified(authority: trustme.CA, *names: str, common_name: str | None = None) -> Trust:
    issued = authority.issue_cert("localhost", *names, common_name=common_name)
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    return Trust(
        certificate=chain,
        key=issued.private_key_pem.bytes(),
        authority=authority.cert_pem.bytes(),
    )


@pytest.mark.parametrize(
    ("caller", "code"),
    [
        (SECRET, grpc.StatusCode.OK),
        (Trust(secret="a guess of somebody"), grpc.StatusCode.UNAUTHENTICATED),
        (Trust(), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_caller_must_know_the_secret(caller: Trust, code: grpc.StatusCode) -> None:
    assert await ask(SECRET, caller, is_welcome=code is grpc.StatusCode.OK) is code


async def test_caller_must_show_a_certificate_of_the_authority() -> None:
    authority, other = trustme.CA(), trustme.CA()
    server = certified(authority)
    assert server.is_tls
    assert await ask(server, certified(authority), is_welcome=True) is grpc.StatusCode.OK
    stranger = certified(other)
    for caller in (stranger, SECRET, Trust()):
        assert await ask(server, caller) is grpc.StatusCode.UNAVAILABLE
    mixed = Trust(certificate=stranger.certificate, key=stranger.key, authority=server.authority)
    assert await ask(server, mixed) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("method", [REPLICATE, FETCH_MESSAGES])
async def test_stranger_is_refused_before_his_request_is_read(method: str) -> None:
    server = DataServer(SECRET, "127.0.0.1:0")
    address = f"127.0.0.1:{await server.start(handlers())}"
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_unary(method)()  # whose request never comes
        assert await within(call.code()) is grpc.StatusCode.UNAUTHENTICATED
    await server.stop()


async def ended(reader: asyncio.StreamReader) -> None:
    """What a server says of itself first is passed over."""
    while await within(reader.read(1 << 16)):
        continue


async def test_strangers_have_a_number_of_connections() -> None:
    server = DataServer(SECRET, "127.0.0.1:0", handshake_ms=60_000)
    port = await server.start(handlers())
    ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTION_COUNT_MAX)]
    for reader, _ in ends:  # let in: the server has begun to talk
        assert await within(reader.read(1))
    late, late_end = await asyncio.open_connection("127.0.0.1", port)
    assert await within(late.read()) == b""
    for _, writer in (*ends, (late, late_end)):
        writer.transport.abort()
    await server.stop()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_stranger_is_cut_off_when_he_says_nothing(is_tls: bool) -> None:
    trust = certified(trustme.CA()) if is_tls else SECRET
    server = DataServer(trust, "127.0.0.1:0", handshake_ms=100)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start(handlers()))
    await ended(reader)
    writer.transport.abort()
    await server.stop()


async def test_node_without_an_address_is_not_called() -> None:
    with pytest.raises(errors.NotFollowed, match="no address of n2"):
        Dialer(SECRET, {"n1": "127.0.0.1:1"}).replicate("n2")  # type: ignore[arg-type]


async def test_one_connection_serves_all_calls_to_a_node() -> None:
    server = DataServer(SECRET, "127.0.0.1:0")
    port = await server.start(handlers())
    dialer = Dialer(SECRET, {"n1": f"127.0.0.1:{port}"})
    calls = [dialer.replicate("n1") for _ in range(2)]
    assert len(dialer._channels) == 1
    for call in calls:
        await call.done_writing()
        assert await within(call.code()) is grpc.StatusCode.OK
    await dialer.close()
    assert dialer._channels == {}
    await server.stop()


class Wire:
    """A proxy that can lose what goes over the connections that it has, and tells nobody."""

    def __init__(self, port: int) -> None:
        self.port, self.is_dead = port, asyncio.Event()
        self.accepted = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        self.accepted += 1
        far, far_end = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers += [near_end, far_end]
        for reader, writer in ((near, far_end), (far, near_end)):
            self._tasks.append(asyncio.ensure_future(self._pump(reader, writer, self.is_dead)))

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dead: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            if not is_dead.is_set():
                writer.write(data)

    def die(self) -> None:
        """What is connected now stays so, and nothing comes through; new connections work."""
        self.is_dead.set()
        self.is_dead = asyncio.Event()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


async def hello_again(dialer: Dialer) -> ReplicateResponse:
    """As a follower's stream, that tries again: the first call may still be on its way out."""
    while True:
        call = dialer.replicate("n1")
        try:
            await call.write(ReplicateRequest(hello={"epoch": 2}))  # type: ignore[arg-type]
            answer: ReplicateResponse = await call.read()
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0)
        else:
            return answer


async def test_connection_is_made_anew_when_nothing_comes_through_it_any_more() -> None:
    """As after a partition: nobody is told that it has ended."""
    server = DataServer(SECRET, "127.0.0.1:0")
    wire = Wire(await server.start(handlers()))
    dialer = Dialer(SECRET, {"n1": f"127.0.0.1:{await wire.listen()}"}, ping_ms=1_000)
    try:
        call = dialer.replicate("n1")
        await call.write(ReplicateRequest(hello={"epoch": 1}))  # type: ignore[arg-type]
        await within(call.read())
        wire.die()
        assert await within(call.code()) is grpc.StatusCode.UNAVAILABLE
        assert (await within(hello_again(dialer))).hello.epoch == 2
        assert wire.accepted == 2
    finally:
        await dialer.close()
        await wire.close()
        await server.stop()


async def test_server_does_not_listen_where_it_must_not_or_cannot() -> None:
    with pytest.raises(errors.ConfigError, match="loopback"):
        await DataServer(SECRET, "0.0.0.0:0").start(handlers())
    first = DataServer(SECRET, "127.0.0.1:0")
    port = await first.start(handlers())
    with pytest.raises(errors.ConfigError, match="cannot listen"):
        await DataServer(SECRET, f"127.0.0.1:{port}").start(handlers())
    await first.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.9.1:1"])
def test_loopback_is_known(address: str) -> None:
    check_loopback("key", address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "broker.example:1"])
def test_what_others_may_reach_is_no_loopback(address: str) -> None:
    with pytest.raises(errors.ConfigError, match="loopback"):
        check_loopback("key", address)


def test_secret_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  sixteen characters \n")
    assert read_trust(ClusterSection(secret_file=str(file))) == Trust(secret="sixteen characters")


@pytest.mark.parametrize(
    "content", [b"", b"too short", b"\xff" * 30, b"not printable \x00\x01\x02"]
)
def test_secret_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=r"cluster\.secret_file"):
        read_trust(ClusterSection(secret_file=str(file)))


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(errors.ConfigError, match=r"cluster\.secret_file = .*missing"):
        read_trust(ClusterSection(secret_file=missing))
    with pytest.raises(errors.ConfigError, match=r"cluster\.tls_certificate_file"):
        read_trust(
            ClusterSection(
                tls_certificate_file=missing, tls_key_file=missing, tls_authority_file=missing
            )
        )


def test_certificates_are_read_from_their_files(tmp_path: Path) -> None:
    names = ("tls_certificate_file", "tls_key_file", "tls_authority_file")
    for name in names:
        (tmp_path / name).write_text(name)
    found = read_trust(ClusterSection(**{name: str(tmp_path / name) for name in names}))
    assert found == Trust("", *(name.encode() for name in names))


def test_certificates_tell_until_when_they_are_valid() -> None:
    authority, end_s = trustme.CA(), 4_000_000_000
    issued = authority.issue_cert("localhost", not_after=datetime.fromtimestamp(end_s, UTC))
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    pem = authority.cert_pem.bytes()
    ends = Trust(certificate=chain + pem, authority=pem).read_certificate_ends()
    assert ends is not None
    assert ends.node_s == end_s, "the first to end of the chain"
    assert ends.authority_s > end_s


def test_new_authority_beside_the_old_one_counts() -> None:
    old, new = trustme.CA(), trustme.CA()
    issued = new.issue_cert("localhost").cert_chain_pems[0].bytes()
    pems = old.cert_pem.bytes(), new.cert_pem.bytes()
    ends = [
        Trust(certificate=issued, authority=authority).read_certificate_ends()
        for authority in (pems[0], pems[1], b"".join(pems))
    ]
    alone = [one.authority_s for one in ends if one is not None]
    assert alone[2] == max(alone)


def test_secret_never_ends() -> None:
    assert SECRET.read_certificate_ends() is None


def test_file_without_a_certificate_is_named() -> None:
    with pytest.raises(errors.ConfigError, match=r"cluster\.tls_certificate_file"):
        Trust(certificate=b"nothing of that kind", authority=b"").read_certificate_ends()


async def test_certificate_must_name_a_node_of_the_cluster() -> None:
    authority = trustme.CA()
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids=["n1", "n2"])
    port = await server.start(handlers())
    callers = {
        certified(authority, "n2"): grpc.StatusCode.OK,
        certified(authority, "n3"): grpc.StatusCode.UNAUTHENTICATED,
        # A common name counts only where there are no other names, as in the control plane.
        certified(authority, common_name="n2"): grpc.StatusCode.UNAUTHENTICATED,
    }
    for caller, code in callers.items():
        dialer = Dialer(caller, {"n1": f"localhost:{port}"})
        stream = dialer.replicate("n1")
        fetching = dialer.fetch_messages("n1", FetchMessagesRequest())
        if code is grpc.StatusCode.OK:
            await stream.write(ReplicateRequest(hello={"epoch": 7}))  # type: ignore[arg-type]
            assert (await within(stream.read())).hello.epoch == 7
            await stream.done_writing()
        assert await within(stream.code()) is code
        assert await within(fetching.code()) is code
        await dialer.close()
    await server.stop()


async def test_certificates_of_members_count_from_when_they_come_until_they_leave() -> None:
    authority, node_ids = trustme.CA(), {"n1": "", "n2": ""}
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids=node_ids)
    addresses = {"n1": f"localhost:{await server.start(handlers())}"}
    dialers = [Dialer(certified(authority, name), addresses) for name in ("n2", "n3")]

    async def codes() -> list[grpc.StatusCode]:
        calls = [one.fetch_messages("n1", FetchMessagesRequest()) for one in dialers]
        return [await within(call.code()) for call in calls]

    welcome, refused = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED
    assert await codes() == [welcome, refused]
    node_ids["n3"] = ""
    del node_ids["n2"]
    assert await codes() == [refused, welcome]
    for dialer in dialers:
        await dialer.close()
    await server.stop()


def test_names_of_a_certificate_without_names_of_hosts_are_its_common_names() -> None:
    issued = trustme.CA().issue_cert("10.0.0.1", common_name="n7")
    assert names_of(issued.cert_chain_pems[0].bytes()) == {"n7"}
    assert names_of(b"no certificate") == frozenset()
