"""How long a principal may go on after its grant was revoked, at each node of a cluster."""

import asyncio
import time
from base64 import b64encode
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.v1 import broker_pb2_grpc, consumer_pb2_grpc, session_pb2_grpc
from hourwheel.v1.broker_pb2 import OutgoingMessage, PublishRequest
from hourwheel.v1.consumer_pb2 import ReceiveRequest
from hourwheel.v1.session_pb2 import ReceiveStreamRequest, SessionCall, SessionRequest
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size

TARGET = at_most(1_000)
NODES: Final = 3
_HANG_S: Final = 60.0
_PAUSE_S: Final = 0.002
"""Between two publishes of one node."""
_WAKE_S: Final = 0.05
_POLL_MS: Final = 30_000
_SETTLE_S: Final = 0.3
"""Then the polls wait, and nothing more comes."""
_NAME, _SECRET = "alice", "for this measurement only"
_METADATA: Final = (
    ("authorization", "Basic " + b64encode(f"{_NAME}:{_SECRET}".encode()).decode()),
)
_NOT_YET: Final = (errors.FailedPrecondition, errors.Unavailable)
_DENIED: Final = errors.PermissionDenied.reason


async def run(size: Size, folder: Path) -> Report:
    """Granted and revoked again and again; a stream and a publisher at each node."""
    trials = size.pick(2, 20, 20)
    report = Report(
        [
            f"{NODES} nodes with TLS and access control, and all clients, on one machine",
            "at the master: a receive stream that has brought a message and waits for more",
            "at each node: a poll that waits; the master's answer is passed on by the others",
            f"at each node: publishes of one message, one by one, {_PAUSE_S * 1e3:.0f} ms apart",
            f"{trials} revocations; time from the answer of `revoke` at the client, 0 where it was",
            "refused before that; a publish counts when its refusal is there",
        ]
    )
    values = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "access": {"is_on": True, "administrators": security.ADMIN},
    }
    ended_ms: dict[str, list[float]] = {}
    async with LocalCluster(folder / "cluster", NODES, values=values, is_secure=True) as cluster:
        master = await cluster.wait_for_master(in_sync=NODES)
        authority = (cluster.security_directory / security.AUTHORITY).read_bytes()
        root: Any = {"tls": cluster.access.tls, "user": cluster.access.user}
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(AsyncAdmin(cluster.servers, **root))
            await admin.create_topic(load.TOPIC)
            await _soon(lambda: admin.put_user(_NAME, _SECRET))
            await _soon(lambda: admin.grant(_NAME, ["receive"], "group", "*"))
            clients = []
            for number, node in enumerate(cluster.nodes):
                channel = grpc.aio.secure_channel(
                    node.address, grpc.ssl_channel_credentials(authority)
                )
                await stack.enter_async_context(channel)
                clients.append(_Client(channel, f"g-{number}", is_master=number == master))
            for trial in range(trials):
                for what, took_ms in await _revoke_once(admin, clients, trial):
                    ended_ms.setdefault(what, []).append(took_ms)
    for what, all_ms in sorted(ended_ms.items()):
        report.add_median(f"{what}: median", all_ms, "ms")
        report.add(f"{what}: max", max(all_ms), "ms", TARGET)
    return report


class _Client:
    """The principal at one node, which passes its calls on unless it is the master."""

    def __init__(self, channel: grpc.aio.Channel, group: str, *, is_master: bool) -> None:
        self.group, self.is_master = group, is_master
        self.place = "the master" if is_master else "the other nodes"
        self._receive = consumer_pb2_grpc.ConsumerServiceStub(channel).Receive
        self._session = session_pb2_grpc.SessionServiceStub(channel).Session
        self._publish = broker_pb2_grpc.ProducerServiceStub(channel).Publish

    async def publish(self, delay_ms: int) -> None:
        message = OutgoingMessage(body=b"x" * load.BODY_BYTES, delay_ms=delay_ms)
        request = PublishRequest(topic=load.TOPIC, messages=[message])
        await self._publish(request, metadata=_METADATA, timeout=_HANG_S)

    async def publish_until_denied(self) -> float:
        """When it was, by `time.perf_counter`. Waits for the grant first."""
        has_begun = False
        while True:
            try:
                await self.publish(load.HOUR_MS)
                has_begun = True
            except grpc.aio.AioRpcError as error:
                if failure_of(error).error.reason != _DENIED:
                    raise
                if has_begun:
                    return time.perf_counter()
            await asyncio.sleep(_PAUSE_S)

    async def poll_until_denied(self) -> float:
        """When it was. The group has nothing to receive."""
        request = ReceiveRequest(group=f"poll-{self.group}", topic=load.TOPIC, wait_ms=_POLL_MS)
        while True:
            try:
                await self._receive(request, metadata=_METADATA, timeout=_HANG_S)
            except grpc.aio.AioRpcError as error:
                if failure_of(error).error.reason != _DENIED:
                    raise
                return time.perf_counter()

    async def begin_stream(self, stream_id: int) -> Any:
        """A receive stream in a session of its own."""
        session = self._session(metadata=_METADATA)
        receive = ReceiveRequest(group=self.group, topic=load.TOPIC, max_messages=1)
        request = ReceiveStreamRequest(receive=receive, credits=1_000, stream_id=stream_id)
        call = SessionCall(call_id=1, receive_stream=request)
        await session.write(SessionRequest(calls=[call]))
        return session

    @staticmethod
    async def read_message(session: Any) -> None:
        """The first one: then the stream is open."""
        while not [one for one in await _answers(session) if one.receive.messages]:
            pass

    @staticmethod
    async def read_to_denial(session: Any) -> float:
        """When the stream ended, by `time.perf_counter`."""
        while True:
            for one in await _answers(session):
                if one.HasField("error"):
                    assert one.error.reason == _DENIED, one.error
                    return time.perf_counter()


async def _answers(session: Any) -> Any:
    frame = await session.read()
    assert frame is not grpc.aio.EOF, "a session outlives its streams"
    return frame.answers


async def _revoke_once(
    admin: AsyncAdmin, clients: list[_Client], trial: int
) -> list[tuple[str, float]]:
    """(what ended, how long after the answer in ms), of each client."""
    await admin.grant(_NAME, ["publish", "receive"], "topic", load.TOPIC)
    async with asyncio.timeout(_HANG_S), asyncio.TaskGroup() as group:
        publishing = [group.create_task(one.publish_until_denied()) for one in clients]
        for one in clients:
            await _soon_granted(one)
        (master,) = (one for one in clients if one.is_master)
        session = await master.begin_stream(1 + trial)
        waking = group.create_task(_wake(master))
        await _Client.read_message(session)
        waking.cancel()
        reading = [group.create_task(_Client.read_to_denial(session))]
        polling = [group.create_task(one.poll_until_denied()) for one in clients]
        await asyncio.sleep(_SETTLE_S)
        await admin.revoke(_NAME, "topic", load.TOPIC)
        answered_s = time.perf_counter()
    session.cancel()
    ends = []
    kinds = (
        *(("receive stream", [master], reading), ("poll", clients, polling)),
        ("publish", clients, publishing),
    )
    for what, whose, tasks in kinds:
        for one, task in zip(whose, tasks, strict=True):
            took_ms = max(0.0, 1e3 * (task.result() - answered_s))
            ends.append((f"{what} at {one.place}", took_ms))
    return ends


async def _wake(client: _Client) -> None:
    """Publish for groups that begin with what comes from now on."""
    while True:
        await client.publish(0)
        await asyncio.sleep(_WAKE_S)


async def _soon_granted(client: _Client) -> None:
    """Publish a message, when its node has heard of the grant."""
    while True:
        try:
            return await client.publish(0)
        except grpc.aio.AioRpcError as error:
            if failure_of(error).error.reason != _DENIED:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _soon(ask: Any) -> None:
    """Until the cluster follows the rules that it needs."""
    async with asyncio.timeout(_HANG_S):
        while True:
            try:
                await ask()
            except _NOT_YET:
                await asyncio.sleep(0.05)
            else:
                return
