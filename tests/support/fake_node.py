"""A node that is a script: real sockets and the real API, no disk, no wheel, no clock of its own.

Messages are delivered as soon as they are published, whatever their due time. A test says
beforehand what goes wrong:

    node.fail_next("Receive", errors.Overloaded())      the next call ends with this error
    node.fail_next("PublishStream", errors.DiskFull())  the next batch is refused
    node.break_stream(after_batches=2, is_taken=True)   the stream dies instead of the 3rd answer
    with node.hold("PublishStream"):                    nothing is answered in this block
"""

from typing import Self

import grpc
import grpc.aio

from hourwheel import limits
from hourwheel.v1 import (
    admin_pb2_grpc,
    broker_pb2_grpc,
    consumer_pb2_grpc,
    lookup_pb2_grpc,
    recurrence_pb2_grpc,
)
from tests.support.fake_broker import EPOCH, SHARD, STORE_MS, FakeBroker
from tests.support.fake_lookup import LookupService
from tests.support.fake_recurring import FakeRecurring, RecurrenceService
from tests.support.fake_services import AdminService, ConsumerService, ProducerService

__all__ = ["EPOCH", "SHARD", "STORE_MS", "FakeNode"]


class FakeNode(FakeBroker):
    """The node on a port of the loopback interface."""

    def __init__(self) -> None:
        super().__init__()
        self.recurring = FakeRecurring()
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve; on the same port as before, if there was one."""
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
                ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
                ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
            ]
        )
        broker_pb2_grpc.add_ProducerServiceServicer_to_server(ProducerService(self), self._server)
        consumer_pb2_grpc.add_ConsumerServiceServicer_to_server(ConsumerService(self), self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(self), self._server)
        recurrence_pb2_grpc.add_RecurrenceServiceServicer_to_server(
            RecurrenceService(self), self._server
        )
        lookup_pb2_grpc.add_LookupServiceServicer_to_server(LookupService(self), self._server)
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def stop(self) -> None:
        """Break all connections and stop serving."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
