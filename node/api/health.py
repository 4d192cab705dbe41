"""The standard health service (grpc.health.v1): SERVING while calls are taken, else NOT_SERVING.

A node whose disk is full is SERVING: it still delivers, and refuses publishes with a typed error.
"""

from collections.abc import Sequence as Seq
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from hourwheel import errors
from hourwheel.transport import grpc_status as status
from node.api.request_gate import RequestGate

SERVICE: Final = health.SERVICE_NAME
PLACES: Final = 8
"""Requests that are read at one time, and as many that are slow. Apart from the API's own: a
probe does not wait behind a crowd of publishers."""
WAITING_MAX: Final = 64
REQUEST_BYTES_MAX: Final = 4 * 1024
"""The name of a service."""
WATCHES_MAX: Final = 64
"""At one time; `server._SPARE_CALLS` has places for them, so that they take nobody else's."""


class Health:
    """The state of our services as the health service tells it."""

    def __init__(self, services: Seq[str], request_wait_ms: int) -> None:
        """Nothing serves yet.

        Args:
            services: their full names; "" (all together) is added.
            request_wait_ms: how long a request may be on its way.
        """
        self._gate = RequestGate(request_wait_ms, places=PLACES, waiting_max=WAITING_MAX)
        self._services = ("", *services)
        self._servicer = health.aio.HealthServicer()
        self._watch_count = 0

    async def add_to(self, server: grpc.aio.Server) -> None:
        """Answer health calls on `server`."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)
        answer = health_pb2.HealthCheckResponse.SerializeToString
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=answer),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=answer),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def _check(self, _requests: object, context: Any) -> Any:
        return await self._servicer.Check(await self._read(context), context)

    async def _read(self, context: Any) -> Any:
        """The request; gRPC itself would read all that anybody begins to send."""
        refusal: grpc.Status
        try:
            request = _parse(await self._gate.read(context))
        except errors.HourwheelError as error:
            refusal = status.to_status(error)
        else:
            if request is not None:
                return request
            # Not among the locals here: the frame of a call that is aborted lies in a circle with
            # its error, and would keep the bytes.
            why = "this is no HealthCheckRequest"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        return await context.abort_with_status(refusal)

    async def _watch(self, _requests: object, context: Any) -> None:
        request = await self._read(context)
        if self._watch_count >= WATCHES_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch already")
        self._watch_count += 1
        try:
            await self._servicer.Watch(request, context)
        finally:
            self._watch_count -= 1

    async def serve(self) -> None:
        """From now on everything is SERVING."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Answer NOT_SERVING from now on, for ever, and send it to those who watch."""
        await self._servicer.enter_graceful_shutdown()

    async def _set(self, status: int) -> None:
        for service in self._services:
            await self._servicer.set(service, status)


def _parse(raw: bytes) -> Any:
    """The request, or None where it is none.

    gRPC's own parsing tells the caller, and the log, of exceptions in Python.
    """
    if len(raw) > REQUEST_BYTES_MAX:
        return None
    try:
        return health_pb2.HealthCheckRequest.FromString(raw)
    except DecodeError:
        return None
