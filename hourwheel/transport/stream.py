"""One open stream of requests and answers to a node, which ends with a `StreamBroken`."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeAlias

import grpc
import grpc.aio

from hourwheel import errors
from hourwheel.transport.endpoints import Move
from hourwheel.transport.grpc_errors import failure_of
from hourwheel.transport.methods import Request, Response
from hourwheel.transport.retry import Failure

OnFailure: TypeAlias = Callable[[errors.HourwheelError, float], Move]
"""Takes a failure and for how many milliseconds there was no answer; says where to go next."""


class StreamBroken(Exception):
    """A stream is over; carries an error of ours, and never reaches a user itself."""

    def __init__(self, failure: Failure, move: Move = Move.STAY) -> None:
        """`failure` says why, `move` where the next stream goes."""
        super().__init__(failure.error.message)
        self.failure = failure
        self.move = move


def _stay(_error: errors.HourwheelError, _waited_ms: float) -> Move:
    return Move.STAY


class Stream(Generic[Request, Response]):
    """A stream to one endpoint.

    The choice of endpoints hears how it ends, once: the next stream goes to the right one.
    """

    def __init__(self, call: Any, *, address: str = "", on_failure: OnFailure = _stay) -> None:
        """Wrap a call of grpc.aio.

        Args:
            call: the call.
            address: the endpoint that it goes to.
            on_failure: decides, at the first failure, what becomes of the connection.
        """
        self._call = call
        self._on_failure = on_failure
        self._move: Move | None = None
        self.address = address

    @property
    def is_over(self) -> bool:
        """Whether it takes no more requests, as far as is known without trying."""
        return False

    @property
    def has_failed(self) -> bool:
        """Whether something speaks against this stream's endpoint."""
        return self._move is not None

    def on_failure(self, error: errors.HourwheelError, waited_ms: float = 0.0) -> Move:
        """Where to go after `error`; only the first one of a stream counts.

        Args:
            error: what the node answered, or why the stream is given up.
            waited_ms: for a `Timeout`: how long there was no answer.
        """
        if self._move is None:
            self._move = self._on_failure(error, waited_ms)
        return self._move

    async def write(self, request: Request) -> None:
        """Send one request; waits while the connection takes no more. Raises as `read`."""
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._broken(failure_of(error, is_stream=True)) from error
        except asyncio.InvalidStateError as error:
            raise self._broken(await self._failure()) from error

    async def read(self) -> Response:
        """The next answer.

        Raises:
            StreamBroken: the stream is over, for whatever reason.
        """
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._broken(failure_of(error, is_stream=True)) from error
        if answer is grpc.aio.EOF:
            raise self._broken(await self._failure())
        response: Response = answer
        return response

    def cancel(self) -> None:
        """End the stream at once."""
        self._call.cancel()

    def _broken(self, failure: Failure) -> StreamBroken:
        return StreamBroken(failure, self.on_failure(failure.error))

    async def _failure(self) -> Failure:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return Failure(errors.Unavailable("the node ended the stream"), is_definite=False)
        message = await self._call.details() or ""
        status = grpc.aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            details=message,
        )
        return failure_of(status, is_stream=True)
