"""Publish streams that send as fast as they can and read no answer: a process of its own.

    python -m tests.support.hostile_streams ADDRESS STREAMS BODY_BYTES

Each stream has a connection of its own. It goes on until its standard input is closed.
"""

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from hourwheel.formats.record_batch import build_publish
from hourwheel.v1.broker_pb2 import PublishStreamRequest

_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
_METHOD = "/hourwheel.v1.ProducerService/PublishStream"
_DELAY_MS = 3_600_000


def run(address: str, streams: int, body_bytes: int) -> None:
    """Send until standard input ends."""
    raw = build_publish([_DELAY_MS], [os.urandom(body_bytes)], relative_due=True)
    request = PublishStreamRequest(topic="flood", record_batch=raw).SerializeToString()
    is_over = threading.Event()

    def requests() -> Iterator[bytes]:
        while not is_over.is_set():
            yield request

    channels = [grpc.insecure_channel(address, options=_OPTIONS) for _ in range(streams)]
    methods: list[Any] = [channel.stream_stream(_METHOD) for channel in channels]
    calls = [method(requests()) for method in methods]
    sys.stdin.read()
    is_over.set()
    for call, channel in zip(calls, channels, strict=True):
        call.cancel()
        channel.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
