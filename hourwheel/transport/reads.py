"""Reads from a gRPC call that their caller may give up.

gRPC's coroutine frees what it has read when it goes on. One that is cancelled does not go on: the
message, which gRPC takes in all the same, is never freed (https://github.com/grpc/grpc/issues/43360
tells of the operation's own part). A crowd of refused requests took 1.6 GB for ever that way. So a
task of its own reads, and is never cancelled: it ends with the call at the latest.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol


class Readable(Protocol):
    """A call, or the context of one."""

    def read(self) -> Coroutine[Any, Any, object]:
        """The next message, or gRPC's EOF."""
        ...


def begin_read(call: Readable) -> "asyncio.Future[object]":
    """The outcome of `call.read()`.

    The future may be cancelled, or get another outcome: then the message is dropped. A call of
    which a read was given up has no next message.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[object] = loop.create_future()
    loop.create_task(call.read()).add_done_callback(partial(_tell, outcome))
    return outcome


def _tell(outcome: "asyncio.Future[object]", reading: "asyncio.Task[object]") -> None:
    if reading.cancelled():
        outcome.cancel()
        return
    error = reading.exception()  # read in any case: else asyncio logs it
    if outcome.done():
        return
    if error is None:
        outcome.set_result(reading.result())
    else:
        outcome.set_exception(error)
