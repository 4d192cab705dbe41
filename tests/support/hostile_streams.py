"""Streams that send as fast as they can and read no answer: a process of its own.

    python -m tests.support.hostile_streams ADDRESS STREAMS CALLS BODY_BYTES

Each stream has a connection of its own; every second one is a session. Beside them so many unary
calls are under way at any time, spread over four connections. It goes on until its standard input
is closed.
"""

import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc

from hourwheel.formats.record_batch import build_publish
from hourwheel.v1.broker_pb2 import OutgoingMessage, PublishRequest, PublishStreamRequest
from hourwheel.v1.session_pb2 import SessionCall, SessionRequest

_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
_METHOD = "/hourwheel.v1.ProducerService/PublishStream"
_SESSION = "/hourwheel.v1.SessionService/Session"
_UNARY = "/hourwheel.v1.ProducerService/Publish"
_CONNECTIONS = 4
_DELAY_MS = 3_600_000
_TIMEOUT_S = 30.0


def run(address: str, streams: int, calls_at_once: int, body_bytes: int) -> None:
    """Send until standard input ends."""
    raw = build_publish([_DELAY_MS], [os.urandom(body_bytes)], relative_due=True)
    publish = PublishStreamRequest(topic="flood", record_batch=raw)
    request = publish.SerializeToString()
    is_over = threading.Event()

    def requests() -> Iterator[bytes]:
        while not is_over.is_set():
            yield request

    def frames() -> Iterator[bytes]:
        for call_id in itertools.count(1):
            if is_over.is_set():
                return
            call = SessionCall(call_id=call_id, publish=publish)
            yield SessionRequest(calls=[call]).SerializeToString()

    channels = [grpc.insecure_channel(address, options=_OPTIONS) for _ in range(streams)]
    calls: list[Any] = []
    for number, channel in enumerate(channels):
        method: Any = channel.stream_stream(_SESSION if number % 2 else _METHOD)
        calls.append(method(frames() if number % 2 else requests()))
    unary_channels = [grpc.insecure_channel(address, options=_OPTIONS) for _ in range(_CONNECTIONS)]
    message = OutgoingMessage(body=os.urandom(body_bytes), delay_ms=_DELAY_MS)
    unary = PublishRequest(topic="flood", messages=[message]).SerializeToString()

    def call_on(channel: grpc.Channel) -> None:
        ask: Any = channel.unary_unary(_UNARY)
        while not is_over.is_set():
            with suppress(grpc.RpcError, ValueError):  # refused; or the channel is closed
                ask(unary, timeout=_TIMEOUT_S)

    callers = [
        threading.Thread(target=call_on, args=(unary_channels[at % _CONNECTIONS],), daemon=True)
        for at in range(calls_at_once)
    ]
    for caller in callers:
        caller.start()
    sys.stdin.read()
    is_over.set()
    for call, channel in zip(calls, channels, strict=True):
        call.cancel()
        channel.close()
    for channel in unary_channels:
        channel.close()


if __name__ == "__main__":
    run(sys.argv[1], *map(int, sys.argv[2:5]))
