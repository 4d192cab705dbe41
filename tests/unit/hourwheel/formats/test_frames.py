import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import limits
from hourwheel.errors import Internal, InvalidArgument
from hourwheel.formats.frames import HEAD_BYTES_MAX, Frame, cut_frames, pack

_heads = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3)
_frames = st.builds(Frame, _heads, st.binary(max_size=20))


@given(st.lists(_frames, max_size=4), st.integers(1, 7))
def test_frames_are_the_same_however_their_bytes_come(frames: list[Frame], step: int) -> None:
    raw = b"".join(map(pack, frames))
    received, found = bytearray(), []
    for at in range(0, len(raw), step):
        received += raw[at : at + step]
        found += cut_frames(received)
    assert found == frames
    assert not received


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<II", HEAD_BYTES_MAX + 1, 0),
        struct.pack("<II", 0, limits.MESSAGE_BODY_BYTES_MAX + 1),
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 2, 0) + b"{{",
        struct.pack("<II", 2, 0) + b"\xff\xff",
        struct.pack("<II", 0, 0),
    ],
)
def test_what_is_no_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(Internal):
        cut_frames(bytearray(raw))


@pytest.mark.parametrize(
    "frame",
    [
        Frame({"keys": "k" * HEAD_BYTES_MAX}),
        Frame({}, bytes(limits.MESSAGE_BODY_BYTES_MAX + 1)),
    ],
)
def test_what_would_be_refused_is_not_packed(frame: Frame) -> None:
    with pytest.raises(InvalidArgument, match="are possible"):
        pack(frame)
