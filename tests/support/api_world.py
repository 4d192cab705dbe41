"""A served API over loopback with a fake engine behind it, and a client that knows nothing of ours.

async with ApiWorld() as world:
    await world.producer.Publish(...)
    refusal = await refused(world.producer.Publish(...))
    assert refusal.reason == "INVALID_TOPIC"
"""

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from hourwheel.clock import SystemClock
from hourwheel.v1 import (
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    consumer_pb2_grpc,
    lookup_pb2_grpc,
    recurrence_pb2_grpc,
    session_pb2_grpc,
    transaction_pb2_grpc,
)
from node.access.administration import Administration
from node.access.control import AccessControl, Identify
from node.access.quotas import Quotas
from node.access.server_tls import ServerTls
from node.api.server import ApiServer, ServerParts
from node.config.model import NodeConfig
from node.telemetry.failure import Failure
from node.telemetry.stats import ApiStats
from tests.support.control_of_one import ControlOfOne
from tests.support.fake_engine import FakeEngine

STARTED_MS = 1_799_999_999_000


class Refusal(NamedTuple):
    """How a call failed, as a client of any language sees it."""

    code: grpc.StatusCode
    reason: str
    domain: str
    message: str
    params: dict[str, str]


async def refused(call: Awaitable[Any]) -> Refusal:
    """The typed error that the call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """The google.rpc.ErrorInfo of an error, by the rules that all gRPC clients follow."""
    details = dict(error.trailing_metadata() or ())
    raw = details["grpc-status-details-bin"]
    assert isinstance(raw, bytes)
    status = status_pb2.Status.FromString(raw)
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    assert len(status.details) == 1
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return Refusal(error.code(), info.reason, info.domain, status.message, dict(info.metadata))


class ApiWorld:
    """The server, its fake engine, and stubs for its services."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        engine: FakeEngine | None = None,
        identify: Identify | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        administration: Administration | None = None,
        quotas: Quotas | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        sections = {**(values or {}), "node": {"listen": listen, "id": "node-7"}}
        self.config = NodeConfig.of(sections)
        self.engine = FakeEngine() if engine is None else engine
        self.stats = ApiStats()
        self.failure = Failure()
        self.access = AccessControl()
        tls = self.config.tls
        told = self.stats.note_tls_files
        self.tls = ServerTls(tls, SystemClock().wall_ms, told) if tls.is_on else None
        self.server = ApiServer(
            ServerParts(
                *(self.config, self.engine, self.stats, SystemClock(), self.failure, STARTED_MS),
                access=self.access,
                administration=administration or ControlOfOne().administration,
                identify=identify,
                tls=self.tls,
                quotas=Quotas() if quotas is None else quotas,
            )
        )
        self._credentials = credentials
        self.address = ""

    async def __aenter__(self) -> Self:
        self.address = await self.server.start()
        options = [("grpc.max_receive_message_length", 32 << 20)]
        self.channel = (
            grpc.aio.insecure_channel(self.address, options=options)
            if self._credentials is None
            else grpc.aio.secure_channel(self.address, self._credentials, options=options)
        )
        self.producer = broker_pb2_grpc.ProducerServiceStub(self.channel)
        self.consumer = consumer_pb2_grpc.ConsumerServiceStub(self.channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        self.lookup = lookup_pb2_grpc.LookupServiceStub(self.channel)
        self.transactions = transaction_pb2_grpc.TransactionServiceStub(self.channel)
        self.recurring = recurrence_pb2_grpc.RecurrenceServiceStub(self.channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(self.channel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.channel.close()
        await self.server.stop(0)

    async def publish(self, *bodies: bytes, topic: str = "orders") -> Any:
        """Publish bodies, due at once."""
        messages = [broker_pb2.OutgoingMessage(body=body) for body in bodies]
        return await self.producer.Publish(
            broker_pb2.PublishRequest(topic=topic, messages=messages)
        )


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged; but not that gRPC heard of a call of an earlier test, after its loop."""
    told = [one.getMessage() for one in caplog.records]
    return [one for one in told if "PollerCompletionQueue._handle_events" not in one]
