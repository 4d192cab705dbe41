"""Who may call a broker, and how brokers call each other."""

import asyncio
from collections.abc import AsyncIterator
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
    FETCH_SNAPSHOT,
    REPLICATE,
    SERVICE,
    DataServer,
    Dialer,
    check_loopback,
    names_of,
)
from node.cluster.peer_trust import Trust
from node.contracts.cluster import WAS_OPEN
from tests.support.api_world import Refusal, refusal_of
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until

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


class Waiting:
    """Handlers of each kind that answer nothing before `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.open: list[object] = []

    async def wait(self, call: object) -> None:
        self.open.append(call)
        try:
            await self.gate.wait()
        finally:
            self.open.remove(call)

    async def fetch(self, _: bytes, context: Any) -> bytes:
        await self.wait(context)
        return b""

    async def read_snapshot(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        await self.wait(context)
        yield b""

    async def replicate(self, _: Any, context: Any) -> None:
        await self.wait(context)
        await context.write(b"")

    def handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            "Replicate": grpc.stream_stream_rpc_method_handler(self.replicate),
            "FetchMessages": grpc.unary_unary_rpc_method_handler(self.fetch),
            "FetchSnapshot": grpc.unary_stream_rpc_method_handler(self.read_snapshot),
        }
        return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)


async def refusal_at_the_end(call: Any) -> Refusal:
    """How a call that answers nothing ends."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(call.read())
    return refusal_of(caught.value)


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
    channel = dialer.channel("n1")
    assert dialer.channel("n1") is channel
    for call in calls:
        await call.done_writing()
        assert await within(call.code()) is grpc.StatusCode.OK
    await dialer.close()
    with pytest.raises(grpc.aio.UsageError):  # it is closed
        await channel.unary_unary(FETCH_MESSAGES)(b"")
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


@pytest.mark.parametrize("method", [REPLICATE, FETCH_MESSAGES])
async def test_who_is_no_node_is_refused_before_his_request_is_read(method: str) -> None:
    authority = trustme.CA()
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids=["n1", "n2"])
    address = f"localhost:{await server.start(handlers())}"
    his = certified(authority, "client")
    credentials = grpc.ssl_channel_credentials(his.authority, his.key, his.certificate)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call: Any = channel.stream_unary(method)()  # whose request never comes
        assert await within(call.code()) is grpc.StatusCode.UNAUTHENTICATED
    await server.stop()


async def test_call_of_a_node_without_its_request_is_refused() -> None:
    authority = trustme.CA()
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids=["n1"])
    dialer = Dialer(
        certified(authority, "n1"), {"n1": f"localhost:{await server.start(handlers())}"}
    )
    channel: Any = dialer.channel("n1")  # type: ignore[arg-type]
    call = channel.stream_stream(FETCH_MESSAGES)()
    await call.done_writing()
    assert await within(call.code()) is grpc.StatusCode.INVALID_ARGUMENT
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


@pytest.mark.parametrize("method", [REPLICATE, FETCH_MESSAGES, FETCH_SNAPSHOT])
async def test_open_calls_of_a_member_that_leaves_end(method: str) -> None:
    """Whatever kind they are; those of members that stay go on."""
    authority, node_ids = trustme.CA(), {"n1": "", "n2": "", "n3": ""}
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids=node_ids)
    waiting = Waiting()
    addresses = {"n1": f"localhost:{await server.start(waiting.handlers())}"}
    dialers = [Dialer(certified(authority, name), addresses) for name in ("n2", "n3")]
    calls = []
    for number, dialer in enumerate(dialers):
        channel: Any = dialer.channel("n1")  # type: ignore[arg-type]
        calls.append(channel.stream_stream(method)())
        await calls[-1].write(b"")
        await until(lambda number=number: len(waiting.open) > number)

    server.end_calls_of_former()
    await let_others_run()
    assert len(waiting.open) == len(calls)
    del node_ids["n2"]
    server.end_calls_of_former()
    server.end_calls_of_former()  # as it may be while the first one's end is under way
    error = await refusal_at_the_end(calls[0])
    assert (error.reason, error.message) == ("PEER_REFUSED", "the node has left the cluster")
    assert error.params == {WAS_OPEN: "1"}
    await until(lambda: len(waiting.open) == 1)
    assert not calls[1].done()

    waiting.gate.set()
    assert await within(calls[1].read()) == b""
    await calls[1].done_writing()
    assert await within(calls[1].code()) is grpc.StatusCode.OK
    for dialer in dialers:
        await dialer.close()
    await server.stop()


async def test_call_that_its_node_gives_up_is_no_refusal() -> None:
    authority, waiting = trustme.CA(), Waiting()
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0", node_ids={"n1": ""})
    dialer = Dialer(
        certified(authority, "n1"), {"n1": f"localhost:{await server.start(waiting.handlers())}"}
    )
    fetching = dialer.fetch_messages("n1", FetchMessagesRequest())  # type: ignore[arg-type]
    await until(lambda: waiting.open)
    fetching.cancel()  # type: ignore[attr-defined]
    await until(lambda: not waiting.open)
    await dialer.close()
    await server.stop()


def test_names_of_a_certificate_without_names_of_hosts_are_its_common_names() -> None:
    issued = trustme.CA().issue_cert("10.0.0.1", common_name="n7")
    assert names_of(issued.cert_chain_pems[0].bytes()) == {"n7"}
    assert names_of(b"no certificate") == frozenset()


class Changing:
    """Trust that is replaced."""

    def __init__(self, now: Trust) -> None:
        self.now = now


async def hello(call: Any, epoch: int) -> None:
    """Say something on a stream, and hear the answer."""
    await call.write(ReplicateRequest(hello={"epoch": epoch}))  # type: ignore[arg-type]
    assert (await within(call.read())).hello.epoch == epoch


async def test_stream_goes_on_and_the_next_one_has_the_new_certificate() -> None:
    old, new = trustme.CA(), trustme.CA()
    serving, calling = Changing(certified(old, "n1")), Changing(certified(old, "n2"))
    server = DataServer(serving, "127.0.0.1:0", node_ids=["n1", "n2"])
    addresses = {"n1": f"localhost:{await server.start(handlers())}"}
    dialer = Dialer(calling, addresses)
    first = dialer.replicate("n1")  # type: ignore[arg-type]
    await hello(first, 1)
    before = dialer.channel("n1")  # type: ignore[arg-type]
    assert dialer.channel("n1") is before  # type: ignore[arg-type]

    serving.now = certified(new, "n1")  # the caller has not heard of it
    stale = Dialer(calling, addresses)
    refused = stale.fetch_messages("n1", FetchMessagesRequest())
    assert await within(refused.code()) is grpc.StatusCode.UNAVAILABLE
    await stale.close()
    calling.now = certified(new, "n2")
    second = dialer.replicate("n1")  # type: ignore[arg-type]
    await hello(second, 2)
    await hello(first, 3)  # on a connection that stands
    assert dialer.channel("n1") is not before  # type: ignore[arg-type]

    await first.done_writing()
    assert await within(first.code()) is grpc.StatusCode.OK
    await hello(second, 4)
    await dialer.close()
    await server.stop()


async def test_connections_of_before_are_closed_with_the_rest() -> None:
    authority = trustme.CA()
    calling = Changing(certified(authority, "n2"))
    server = DataServer(certified(authority, "n1"), "127.0.0.1:0")
    dialer = Dialer(calling, {"n1": f"localhost:{await server.start(handlers())}"})
    streams = []
    for epoch in range(3):
        calling.now = certified(authority, "n2")
        streams.append(dialer.replicate("n1"))  # type: ignore[arg-type]
        await hello(streams[-1], epoch)
    await dialer.close()
    for stream in streams:
        assert await within(stream.code()) is grpc.StatusCode.CANCELLED
    await server.stop()
