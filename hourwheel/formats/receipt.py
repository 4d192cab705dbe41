"""The receipt handle: which messages of which lease a consumer finishes.

It is an opaque text to clients: 45 bytes as 60 characters of base64url without padding, so that
thousands of receipts are parsed in one go.

    byte  size  little-endian
       0     1  version = 1
       1     4  cluster          first 4 bytes of the cluster's id
       5     4  epoch            of the master that gave the lease
       9     4  group_id
      13     4  topic_queue
      17     8  lease_id         unique in the epoch; highest bit: see below
      25     8  first_position   first queue position of the lease
      33     4  index            ordinal in the lease of the first message that is meant
      37     4  count            how many messages from there on are meant
      41     4  crc              CRC32C of bytes 0..41

The messages meant stand at queue positions [first_position + index, ... + count), unless the
highest bit of lease_id is set: then a filter picked them, and the lease alone knows where they are.
The checksum makes garbage and slips of the pen visible; it is no signature: a client that may
receive for a group may finish any message that it has been given, of whatever topic. Whether the
lease still lives is not in here.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import Epoch, GroupId, Position, TopicQueue

VERSION: Final = 1
RECEIPT_BYTES: Final = 45
RECEIPT_CHARS: Final = 60
_BODY: Final = Struct("<BIIIIQQII")
_CRC_AT: Final = _BODY.size
_CRC: Final = Struct("<I")
_INDEX_AT: Final = 33
_INDEX_AND_COUNT: Final = Struct("<II")
assert _INDEX_AT + _INDEX_AND_COUNT.size == _CRC_AT
assert _BODY.size + _CRC.size == RECEIPT_BYTES
assert RECEIPT_BYTES * 4 == RECEIPT_CHARS * 3

_TO_STANDARD: Final = str.maketrans("-_+/", "+/!!")
"""Into the alphabet that binascii reads; the characters of that alphabet itself become illegal."""
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt taken apart; `str()` gives the printable form."""

    cluster: int
    epoch: Epoch
    group_id: GroupId
    topic_queue: TopicQueue
    lease_id: int
    first_position: Position
    index: int
    count: int

    def pack(self) -> bytes:
        """The 45 bytes."""
        body = _BODY.pack(
            VERSION,
            self.cluster,
            self.epoch,
            self.group_id,
            self.topic_queue,
            self.lease_id,
            self.first_position,
            self.index,
            self.count,
        )
        return body + _CRC.pack(crc32c(body))

    def __str__(self) -> str:
        """The printable form: 60 characters."""
        return b2a_base64(self.pack(), newline=False).translate(_TO_URL).decode("ascii")


def parse(text: str) -> Receipt:
    """The parts of one printable receipt.

    Raises:
        InvalidReceipt: garbage, damaged, or of a version that we do not know.
    """
    return parse_each([text])[0]


def parse_each(texts: Seq[str]) -> list[Receipt]:
    """The parts of n printable receipts.

    Raises:
        InvalidReceipt: naming the ordinal of the first text that is no receipt.
    """
    raw = _decode("".join(texts))
    if len(raw) != RECEIPT_BYTES * len(texts) or any(len(text) != RECEIPT_CHARS for text in texts):
        _refuse_first_bad(texts)
    found: list[Receipt] = []
    for at in range(0, len(raw), RECEIPT_BYTES):
        body = raw[at : at + _CRC_AT]
        if _CRC.unpack_from(raw, at + _CRC_AT)[0] != crc32c(body) or body[0] != VERSION:
            _refuse(at // RECEIPT_BYTES)
        found.append(Receipt(*_BODY.unpack(body)[1:]))
    return found


def format_each(receipt: Receipt) -> list[str]:
    """The printable receipts of the single messages of `receipt`, in order."""
    lease = receipt.pack()[:_INDEX_AT]
    pieces: list[bytes] = []
    for index in range(receipt.index, receipt.index + receipt.count):
        body = lease + _INDEX_AND_COUNT.pack(index, 1)
        pieces += (body, _CRC.pack(crc32c(body)))
    raw = b"".join(pieces)
    text = b2a_base64(raw, newline=False).translate(_TO_URL).decode("ascii")
    return [text[at : at + RECEIPT_CHARS] for at in range(0, len(text), RECEIPT_CHARS)]


def _decode(text: str) -> bytes:
    """The bytes of as many receipts as stand in `text`; none if it is not base64url throughout."""
    try:
        return a2b_base64(text.translate(_TO_STANDARD), strict_mode=True) if text else b""
    except (Base64Error, ValueError):
        return b""


def _refuse_first_bad(texts: Seq[str]) -> None:
    for ordinal, text in enumerate(texts):
        if len(text) != RECEIPT_CHARS or len(_decode(text)) != RECEIPT_BYTES:
            _refuse(ordinal)
    errors.violated("receipts that are bad together are good alone", count=len(texts))


def _refuse(ordinal: int) -> None:
    raise errors.InvalidReceipt(f"receipt {ordinal} of the request is no receipt", ordinal=ordinal)
