"""The standard services of gRPC: health (grpc.health.v1) and reflection (grpc.reflection.v1alpha).

Health is SERVING while calls are taken, else NOT_SERVING. A node whose disk is full is SERVING: it
still delivers, and refuses publishes with a typed error. Both read a bounded number of requests.
"""

from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from hourwheel import errors
from hourwheel.transport import grpc_status as status
from hourwheel.transport.reads import begin_read
from node.api.request_gate import RequestGate

HEALTH_SERVICE: Final = health.SERVICE_NAME
PLACES: Final = 8
"""Requests that are read at one time, and as many that are slow. Apart from the API's own: a
probe does not wait behind a crowd of publishers."""
WAITING_MAX: Final = 64
REQUEST_BYTES_MAX: Final = 4 * 1024
"""A name, of a service or a file."""
WATCHES_MAX: Final = 64
"""At one time; `server._SPARE_CALLS` has places for them, so that they take no others'."""
REFLECTION_SERVICE: Final = reflection.SERVICE_NAME
STREAMS_MAX: Final = 16
"""At one time: of each gRPC reads one request, as large as any may be. `server._SPARE_CALLS` has
places for them, so that they take none of another call's."""
_END: Final = object()


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
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(HEALTH_SERVICE, handlers),)
        )

    async def _check(self, _requests: object, context: Any) -> Any:
        return await self._servicer.Check(await self._read(context), context)

    async def _read(self, context: Any) -> Any:
        """The request; gRPC itself would read all that anybody begins to send."""
        refusal: grpc.Status
        try:
            request = _parse_check(await self._gate.read(context))
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


def _parse_check(raw: bytes) -> Any:
    """The request, or None where it is none.

    gRPC's own parsing tells the caller, and the log, of exceptions in Python.
    """
    if len(raw) > REQUEST_BYTES_MAX:
        return None
    try:
        return health_pb2.HealthCheckRequest.FromString(raw)
    except DecodeError:
        return None


class Reflection:
    """Tells what services there are, and their schemas."""

    def __init__(self, services: Seq[str]) -> None:
        """Full names of the services."""
        self._servicer: Any = reflection.aio.ReflectionServicer(services)
        self._stream_count = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer reflection calls on `server`."""
        answer = reflection_pb2.ServerReflectionResponse.SerializeToString
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                self._answer, response_serializer=answer
            )
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(REFLECTION_SERVICE, handlers),)
        )

    async def _answer(self, _requests: object, context: Any) -> AsyncIterator[Any]:
        if self._stream_count >= STREAMS_MAX:
            why = "too many reflection streams are open"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        self._stream_count += 1
        try:
            async for one in self._servicer.ServerReflectionInfo(
                _reflection_requests(context), context
            ):
                yield one
        finally:
            self._stream_count -= 1


async def _reflection_requests(context: Any) -> AsyncIterator[Any]:
    """The requests. gRPC's own parsing tells the caller, and the log, of exceptions in Python.

    No frame keeps the bytes: that of one that is aborted lies in a circle with its error.
    """
    while (request := _parse_reflection(await begin_read(context))) is not _END:
        if request is None:
            why = "this is no ServerReflectionRequest"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        yield request


def _parse_reflection(raw: object) -> Any:
    """A request; None where it is none; `_END`."""
    if not isinstance(raw, bytes):  # grpc.aio.EOF
        return _END
    if len(raw) > REQUEST_BYTES_MAX:
        return None
    try:
        return reflection_pb2.ServerReflectionRequest.FromString(raw)
    except DecodeError:
        return None
