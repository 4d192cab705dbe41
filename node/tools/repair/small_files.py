"""Small files that are replaced as a whole (storage/files/atomic_file.py), with a bit put right."""

from hourwheel.crc32c import crc32c
from node.shard.checkpoint import ShardPlace
from node.tools.repair.images import Image, Span
from storage.files.file_header import FILE_HEADER_BYTES, FileType

_CRC_AT = FILE_HEADER_BYTES + 8
_ZERO_AT = FILE_HEADER_BYTES + 12
_PAYLOAD_AT = FILE_HEADER_BYTES + 16


def mend_small(
    place: ShardPlace, image: Image, file_type: FileType, base: int | None
) -> bytes | None:
    """The payload; None: it is damaged beyond one bit, or missing.

    Raises:
        ForeignDirectory, IncompatibleFormat: it is not ours to read.
    """
    raw = image.raw
    if len(raw) < _PAYLOAD_AT:
        return None
    image.mend_header(place, file_type, base)
    if any(raw[_ZERO_AT:_PAYLOAD_AT]):
        raw[_ZERO_AT:_PAYLOAD_AT] = bytes(4)
        image.mended.append("bytes that are always zero")
    length = len(raw) - _PAYLOAD_AT
    if int.from_bytes(raw[FILE_HEADER_BYTES:_CRC_AT], "little") != length:
        sized = length.to_bytes(8, "little") + raw[_PAYLOAD_AT:]
        if crc32c(sized) != int.from_bytes(raw[_CRC_AT:_ZERO_AT], "little"):
            return None
        raw[FILE_HEADER_BYTES:_CRC_AT] = length.to_bytes(8, "little")
        image.mended.append("the length")
    spans = [Span(FILE_HEADER_BYTES, _CRC_AT), Span(_PAYLOAD_AT, len(raw))]
    return None if image.mend(spans, _CRC_AT) is None else bytes(raw[_PAYLOAD_AT:])
