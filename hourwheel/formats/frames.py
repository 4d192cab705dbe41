"""Frames between processes of one machine: a worker and its children, a program and its bridge.

    bytes 0..3    length of the head, little-endian
    bytes 4..7    length of the body
    head          a JSON object
    body          bytes of a message, or none

Both sides are of one installation: there is no version in them.
"""

import json
from struct import Struct
from typing import Any, Final, NamedTuple

from hourwheel import limits
from hourwheel.errors import Internal, InvalidArgument

_LENGTHS: Final = Struct("<II")
LENGTHS_BYTES: Final = _LENGTHS.size
HEAD_BYTES_MAX: Final = 1 << 20
"""Metadata are 32 KiB at most, and JSON makes at most six characters of one."""


_write: Final = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each frame."""


class Frame(NamedTuple):
    """One of them."""

    head: dict[str, Any]
    body: bytes = b""


def pack(frame: Frame) -> bytes:
    """Its bytes.

    Raises:
        InvalidArgument: head or body is too large; the other side would take it for no frame.
    """
    head = _write(frame.head).encode()
    if len(head) > HEAD_BYTES_MAX or len(frame.body) > limits.MESSAGE_BODY_BYTES_MAX:
        raise InvalidArgument(
            f"a request of {len(head)} and {len(frame.body)} bytes; {HEAD_BYTES_MAX} and "
            f"{limits.MESSAGE_BODY_BYTES_MAX} are possible"
        )
    return b"".join((_LENGTHS.pack(len(head), len(frame.body)), head, frame.body))


def unpack_lengths(raw: bytes | bytearray, at: int = 0) -> tuple[int, int]:
    """Of head and body, from `LENGTHS_BYTES` bytes. Raises Internal where that is no frame."""
    head_len, body_len = _LENGTHS.unpack_from(raw, at)
    if head_len > HEAD_BYTES_MAX or body_len > limits.MESSAGE_BODY_BYTES_MAX:
        raise Internal(f"a frame of {head_len} and {body_len} bytes")
    return head_len, body_len


def unpack(raw: bytes, head_len: int) -> Frame:
    """The frame of these bytes, which are those behind the lengths.

    Raises:
        Internal: its head is no JSON object.
    """
    try:
        head = json.loads(raw[:head_len].decode())
    except ValueError as error:
        raise Internal(f"the head of a frame is no JSON: {error}") from None
    if not isinstance(head, dict):
        raise Internal("the head of a frame is no object")
    return Frame(head, raw[head_len:])


def cut_frames(received: bytearray) -> list[Frame]:
    """Those that are complete, which are taken out of `received`. Raises as the others here."""
    frames: list[Frame] = []
    at = 0
    while len(received) - at >= LENGTHS_BYTES:
        head_len, body_len = unpack_lengths(received, at)
        first = at + LENGTHS_BYTES
        end = first + head_len + body_len
        if len(received) < end:
            break
        frames.append(unpack(bytes(received[first:end]), head_len))
        at = end
    del received[:at]
    return frames
