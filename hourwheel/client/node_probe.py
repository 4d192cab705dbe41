"""Asks one node, and no other, what it knows: where a `Channel` would go to the best one."""

import grpc
import grpc.aio

from hourwheel.client.cluster_status import ClusterStatus, Mastership, cluster_status
from hourwheel.transport.access import PLAIN, Access
from hourwheel.transport.connection import Connection
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.transport.methods import GET_STATUS, TRANSFER_MASTER
from hourwheel.v1 import admin_pb2


class NodeProbe:
    """The way to one node. Belongs to one event loop."""

    def __init__(self, address: str, access: Access = PLAIN) -> None:
        """`address`: host:port; `access`: how it shows who it is. Raises as `Connection`."""
        self.address = address
        self._connection = Connection(address, access)

    async def status(self, timeout_ms: float) -> ClusterStatus:
        """What the node says. Raises HourwheelError where it does not answer in time."""
        call = self._connection.unary(GET_STATUS)
        try:
            answer = await call(admin_pb2.GetStatusRequest(), timeout=timeout_ms / 1_000)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error).error from error
        return cluster_status(answer)

    async def transfer_master(self, timeout_ms: float) -> Mastership:
        """Have this node, as the master, let the best node take over; returns which that is.

        Raises:
            NotMaster: it is not the master.
            FailedPrecondition: no other node is in sync, or none took over.
            HourwheelError: it does not answer in time.
        """
        call = self._connection.unary(TRANSFER_MASTER)
        try:
            answer = await call(admin_pb2.TransferMasterRequest(), timeout=timeout_ms / 1_000)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error).error from error
        return Mastership(answer.master, answer.epoch)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()
