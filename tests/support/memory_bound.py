"""The formula of docs/LIMITS.md, "Memory": what clients can make a node hold; and what it holds."""

from pathlib import Path
from typing import Final

from node.api.request_gate import PLACES
from node.api.server import LOOKAHEAD_BYTES, calls_max, pending_max, request_bytes_max
from node.api.session import UNWRITTEN_BYTES
from node.config.model import LimitsSection

BASE_BYTES: Final = 512 << 20
"""What a node needs for itself at most while it publishes as fast as it can."""
_READ_AT_ONCE: Final = 2 * PLACES + 32
"""Calls of which gRPC reads the request: unary ones, of health, and reflection streams."""


def bound_bytes(allowed: LimitsSection) -> int:
    """What a node with these limits holds at the very worst."""
    calls = calls_max(allowed) + pending_max(calls_max(allowed))
    return (
        BASE_BYTES
        + (allowed.bytes_in_flight + allowed.answer_bytes) * 3 // 2
        + (allowed.publish_streams + _READ_AT_ONCE) * request_bytes_max(allowed)
        + allowed.sessions * (request_bytes_max(allowed) + UNWRITTEN_BYTES)
        + calls * LOOKAHEAD_BYTES
    )


def resident_bytes(pid: int) -> int:
    """Memory of a process that is no file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(line)
