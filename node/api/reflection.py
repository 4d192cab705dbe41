"""The standard reflection service (grpc.reflection.v1alpha), on a bounded number of streams."""

from collections.abc import AsyncIterator
from collections.abc import Sequence as Seq
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2

from hourwheel.transport.reads import begin_read

SERVICE: Final = reflection.SERVICE_NAME
STREAMS_MAX: Final = 16
"""At one time: of each gRPC reads one request, as large as any may be. `server._SPARE_CALLS` has
places for them, so that they take nobody else's."""
REQUEST_BYTES_MAX: Final = 4 * 1024
"""A name, of a service or a file."""
_END: Final = object()


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
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def _answer(self, _requests: object, context: Any) -> AsyncIterator[Any]:
        if self._stream_count >= STREAMS_MAX:
            why = "too many reflection streams are open"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        self._stream_count += 1
        try:
            async for one in self._servicer.ServerReflectionInfo(_requests_of(context), context):
                yield one
        finally:
            self._stream_count -= 1


async def _requests_of(context: Any) -> AsyncIterator[Any]:
    """The requests. gRPC's own parsing tells the caller, and the log, of exceptions in Python.

    No frame keeps the bytes: that of one that is aborted lies in a circle with its error.
    """
    while (request := _parse(await begin_read(context))) is not _END:
        if request is None:
            why = "this is no ServerReflectionRequest"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        yield request


def _parse(raw: object) -> Any:
    """A request; None where it is none; `_END`."""
    if not isinstance(raw, bytes):  # grpc.aio.EOF
        return _END
    if len(raw) > REQUEST_BYTES_MAX:
        return None
    try:
        return reflection_pb2.ServerReflectionRequest.FromString(raw)
    except DecodeError:
        return None
