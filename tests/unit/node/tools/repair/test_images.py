import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from node.shard.checkpoint import ShardPlace
from node.tools.repair.images import Image, Span, read_image
from storage.files.file_header import FileType, Identity, pack_file_header
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import IDENTITY


def image_of(*parts: bytes) -> Image:
    raw = b"".join(parts)
    return Image("x", bytearray(raw + crc32c(raw).to_bytes(4, "little")))


def test_one_bit_is_put_right_when_the_checksum_says_which() -> None:
    image = image_of(b"first", b"second")
    right = bytes(image.raw)
    image.raw[7] ^= 16
    damaged = bytes(image.raw)
    changed = image.mend([Span(0, 5), Span(5, 11)], 11)
    assert (changed, bytes(image.raw)) == (Span(7, 8), right)
    assert image.mended == ["bit 4 of byte 7"]
    image.unmend(Span(7, 8))
    assert (bytes(image.raw), image.mended) == (damaged, [])


def test_checksum_is_put_right_when_it_is_what_is_damaged() -> None:
    image = image_of(b"bytes")
    right = bytes(image.raw)
    image.raw[6] ^= 2
    assert image.mend([Span(0, 5)], 5) == Span(0, 0)
    assert bytes(image.raw) == right


def test_nothing_changes_when_more_than_a_bit_is_damaged() -> None:
    image = image_of(bytes(range(200)))
    image.raw[20:30] = b"otherbytes"
    damaged = bytes(image.raw)
    assert image.mend([Span(0, 200)], 200) is None
    assert (bytes(image.raw), image.mended) == (damaged, [])


def test_header_is_made_again_when_it_is_damaged_and_refused_when_it_is_foreign() -> None:
    place = ShardPlace(SimulatedDisk(), "shard-0", IDENTITY)
    right = pack_file_header(FileType.RUN, IDENTITY, 7)
    image = Image("x", bytearray(right))
    image.raw[9] ^= 1
    image.mend_header(place, FileType.RUN, 7)
    assert bytes(image.raw) == right
    assert image.mended == ["the file header"]
    foreign = pack_file_header(FileType.RUN, Identity(bytes(16), 0), 7)
    with pytest.raises(errors.ForeignDirectory):
        Image("x", bytearray(foreign)).mend_header(place, FileType.RUN, 7)


class BadSector:
    """A file of 'x', one sector of which the disk cannot read."""

    def size(self) -> int:
        return 20_000

    def pread(self, length: int, position: int) -> bytes:
        if position < 2 * 4_096 and position + length > 4_096:
            raise errors.DiskFailed("cannot read")
        return b"x" * length

    def close(self) -> None:
        """Nothing to do."""


class BadDisk:
    """Has one file."""

    def open(self, path: str) -> BadSector:
        if path != "one":
            raise FileNotFoundError(path)
        return BadSector()


def test_sectors_are_zeros_when_the_disk_cannot_read_them() -> None:
    place = ShardPlace(BadDisk(), "shard-0", IDENTITY)  # type: ignore[arg-type]
    assert read_image(place, "none").is_missing
    raw = read_image(place, "one").raw
    assert bytes(raw) == b"x" * 4_096 + bytes(4_096) + b"x" * (20_000 - 8_192)
