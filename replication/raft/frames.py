"""Frames on a stream: length (u32, little-endian), then so many bytes, never beyond a cap."""

import asyncio
from typing import Final

from hourwheel import errors

LENGTH_BYTES: Final = 4


def pack_frame(raw: bytes) -> bytes:
    """The frame with its length in front."""
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw


async def read_frame(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """The next frame.

    Raises:
        InvalidBatch: it announces more than `bytes_max`; none of it is read.
        EOFError, OSError: the stream is over.
    """
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
    if length > bytes_max:
        raise errors.InvalidBatch(f"a frame of {length} bytes, and {bytes_max} are allowed")
    return await reader.readexactly(length)
