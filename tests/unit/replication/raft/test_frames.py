import asyncio

import pytest

from hourwheel import errors
from replication.raft.frames import pack_frame, read_frame


def stream(raw: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(raw)
    reader.feed_eof()
    return reader


async def test_frames_come_as_they_were_sent() -> None:
    reader = stream(pack_frame(b"one") + pack_frame(b"") + pack_frame(b"three"))
    assert [await read_frame(reader, 5) for _ in range(3)] == [b"one", b"", b"three"]
    with pytest.raises(EOFError):
        await read_frame(reader, 5)


async def test_long_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(errors.InvalidBatch, match="4294967295 bytes"):
        await read_frame(stream(b"\xff\xff\xff\xff"), 100)


async def test_torn_frame_is_an_end() -> None:
    with pytest.raises(EOFError):
        await read_frame(stream(pack_frame(b"torn")[:-1]), 100)
