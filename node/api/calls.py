"""Around each call of the API: admission, metrics, errors. Few steps: Publish is a hot path.

The handlers take and give bytes: the size is known before anything is parsed, so a request over the
limits costs no objects, and one that is no protobuf message gets a typed error. Interceptors of
grpc.aio would do the same with more coroutines a call.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError

from hourwheel import errors
from hourwheel.clock import Clock
from node.api.admission import Admission
from node.contracts import grpc_status
from node.contracts.broker import Failure
from node.telemetry import logs
from node.telemetry.spans import in_steps

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
UnaryHandler: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]
RequestT = TypeVar("RequestT")


class Encodable(Protocol):
    """A message, or what already is in bytes."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf names it
        """Its bytes."""
        ...


ResponseT = TypeVar("ResponseT", bound=Encodable)

FATAL: Final = (errors.InvariantViolated, errors.FsyncFailed, errors.DiskFailed)
"""After these the process must not go on: what it holds in memory or on disk cannot be trusted."""
_LOCAL: Final = (errors.DataLoss, errors.FsyncFailed, errors.DiskFailed)
"""What is wrong with this node, not with the request."""

_SECONDS: Final = 0.001
_log = logs.get(__name__)


class Calls:
    """What all calls of one server share."""

    def __init__(self, admission: Admission, clock: Clock, failure: Failure) -> None:
        """`failure` is told of what must end the process."""
        self.admission = admission
        self.stats = admission.stats
        self.clock = clock
        self._failure = failure

    def unary(
        self,
        method: str,
        parse: Callable[[bytes], RequestT],
        implement: Callable[[RequestT, Context], Coroutine[Any, Any, ResponseT]],
    ) -> UnaryHandler:
        """The handler of one unary method, from bytes to bytes."""
        admission, stats = self.admission, self.stats.method(method)
        span = self.stats.spans.span(method)
        monotonic_ms = self.clock.monotonic_ms

        async def handle(raw: bytes, context: Context) -> bytes:
            started_ms = monotonic_ms()
            code = "CANCELLED"
            try:
                size = len(raw)
                admission.enter(size)
                try:
                    with span:
                        work = implement(parse(raw), context)
                    response = await in_steps(work, span)
                finally:
                    admission.leave(size)
                code = "OK"
                with span:
                    return response.SerializeToString()
            except grpc_status.PassedOn as passed:
                code, refusal = passed.status.code.name, passed.status
            except Exception as error:  # noqa: BLE001 - a bug of ours must not look like the network
                code, refusal = self.refuse(method, error, context)
            finally:
                stats.count(code, (monotonic_ms() - started_ms) * _SECONDS)
            # Behind `except`, and without the request: what is aborted stays in memory for long, in
            # a circle of the context and gRPC's error with its traceback and its cause.
            del raw
            return await context.abort_with_status(refusal)

        return handle

    def refuse(self, method: str, error: Exception, context: Context) -> tuple[str, grpc.Status]:
        """(name of the code, status to end the call with): see `public_error`.

        A handler must not keep the error in a variable of its own: its traceback leads back to the
        handler's frame, so that the request would stay in memory until cycles are looked for.
        """
        public = self.public_error(method, error, context)
        return public.code, grpc_status.to_status(public)

    def public_error(
        self, method: str, error: Exception, context: Context
    ) -> errors.HourwheelError:
        """What the caller is told of `error`. Counts refusals; faults of ours are logged."""
        if isinstance(error, DecodeError):
            error = errors.InvalidArgument(f"this is no request of {method}")
        if not isinstance(error, errors.HourwheelError):
            _log.error("call_failed", method=method, peer=context.peer(), exc_info=error)
        elif isinstance(error, errors.Internal | errors.DataLoss):
            _log.error("call_failed", method=method, **logs.fields_of(error))
        public = grpc_status.public(error)
        if isinstance(public, FATAL):
            self._failure.report(public)
        if self._failure.found.done() and isinstance(public, _LOCAL):
            # Another node has what is lost here, or this one after a start: trying again helps.
            public = errors.Timeout("the node stops, its disk is not well: the outcome is unknown")
        self.stats.reject(public.reason)
        return public
