"""A message's metadata: tags, keys, properties; checked against the limits, encoded, decoded.

What lies before each body in a batch is the protobuf message `MessageMeta` of meta.proto (a
message without any metadata has none: zero bytes). It is written here by hand, piece by piece,
because a protobuf object costs 2-4 us a message and the pieces that repeat (tags, property names)
can be cached; tests hold the bytes equal to protobuf's own. Equal metadata gives equal bytes.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.formats.expiry_field import pack_expires
from hourwheel.formats.priority_field import pack_priority
from hourwheel.formats.tag_gene import key_hash, sparse_gene
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import meta_pb2

CLIENT_MESSAGE_ID_BYTES_MAX: Final = 255
CONTENT_TYPE_BYTES_MAX: Final = 255

_CACHED_PIECES: Final = 16_384
"""Tags and property names, at most 127 bytes each."""
_CACHED_METAS: Final = 512
"""Whole metas, at most 32 KiB each: few, because a stranger chooses what a node is sent."""
_CACHED_DECODED: Final = 4_096
_CACHED_DECODED_BYTES_MAX: Final = 256
_TAG_KEY: Final = b"\x0a"
_KEY_KEY: Final = b"\x12"
_PROPERTY_KEY: Final = b"\x1a"
_CLIENT_ID_KEY: Final = b"\x22"
_CONTENT_TYPE_KEY: Final = b"\x2a"
_ORDERING_KEY_KEY: Final = b"\x32"
_BESIDES_KEYS: Final = attrgetter(
    "tags",
    "properties",
    "client_message_id",
    "content_type",
    "ordering_key",
    "expires_ms",
    "priority",
)
_NOTHING: Final = ((), (), "", "", "", 0, 0)
_NAME_KEY: Final = b"\x0a"
_VALUE_KEY: Final = b"\x12"
_ONE_BYTE_LENGTH: Final = 0x80
_LENGTHS: Final = tuple(bytes((size,)) for size in range(_ONE_BYTE_LENGTH))
_KEY_HEADS: Final = tuple(_KEY_KEY + length for length in _LENGTHS)
_CONTROL: Final = frozenset(map(chr, (*range(32), 127)))


@dataclass(frozen=True, slots=True)
class MessageMeta:
    """The metadata of one message; compares and hashes by content."""

    tags: tuple[str, ...] = ()
    """Labels to filter by. The first one is the primary tag."""
    keys: tuple[str, ...] = ()
    """Names from the sender's own world. The first one chooses the queue, where no ordering key
    does."""
    properties: tuple[tuple[str, str], ...] = ()
    """(name, value) of each attribute; names are unique."""
    client_message_id: str = ""
    """The sender's own id of the message."""
    content_type: str = ""
    """How the body is encoded, such as "application/json"."""
    ordering_key: str = ""
    """Ordered groups get messages of one such key one by one, in order. It chooses the queue."""
    expires_ms: int = 0
    """From which instant on no group is given it; negative: minus milliseconds after it was stored;
    0: never. See `formats.expiry_field`."""
    priority: int = 0
    """0 to 9: of what a group may be given, the highest comes first."""


NO_META: Final = MessageMeta()
"""The metadata of a message without any; encoded as zero bytes."""


class EncodedMeta(NamedTuple):
    """Metadata as it goes into a record batch."""

    raw: bytes
    """The encoded `MessageMeta`."""
    tag_gene: int
    """Gene of the tags as topics have it by default; 0 without tags."""
    key_hash: int
    """Hash of the ordering key, else of the first key; 0 without either."""
    tags: tuple[str, ...] = ()
    """As in `MessageMeta`: for genes of topics that want others."""
    properties: tuple[tuple[str, str], ...] = ()
    """As `tags`."""


def encode(meta: MessageMeta) -> EncodedMeta:
    """Check `meta` against the limits and encode it. Raises as `encode_fields`."""
    return encode_fields(
        meta.tags,
        meta.keys,
        meta.properties,
        meta.client_message_id,
        meta.content_type,
        meta.ordering_key,
        meta.expires_ms,
        meta.priority,
    )


def encode_each(every: Sequence[MessageMeta]) -> list[EncodedMeta]:
    """Each of `every` as `encode` has it.

    Where all have one short key and nothing else, as those of most senders that have keys, it takes
    half the time.
    """
    if not all(map(_NOTHING.__eq__, map(_BESIDES_KEYS, every))):
        return list(map(encode, every))
    keys = [meta.keys for meta in every]
    try:
        texts = [key.encode() for (key,) in keys]
        heads = [_KEY_HEADS[len(text)] for text in texts]
    except (ValueError, TypeError, AttributeError, IndexError):
        return list(map(encode, every))  # raises what it is
    if not all(texts):
        return list(map(encode, every))
    raws, hashes, none = map(bytes.__add__, heads, texts), map(key_hash, texts), repeat(())
    return list(map(EncodedMeta._make, zip(raws, repeat(0), hashes, none, none, strict=False)))


def encode_fields(
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    client_message_id: str,
    content_type: str,
    ordering_key: str = "",
    expires_ms: int = 0,
    priority: int = 0,
) -> EncodedMeta:
    """Check metadata against the limits and encode it; what repeats is encoded once.

    The arguments are the fields of `MessageMeta`, for callers that have no need of the object.

    Raises:
        MessageTooLarge: more items or bytes than a limit allows; `params` names it.
        InvalidArgument: an empty or unprintable tag, key or name; a name that is there twice; a
            priority that is none.
        InvalidDueTime: an expiry that is out of range.
    """
    if expires_ms or priority:
        rest = encode_fields(tags, keys, properties, client_message_id, content_type, ordering_key)
        head = _expires_part(expires_ms) if expires_ms else b""
        raw = head + pack_priority(priority) + rest.raw
        _check_size(len(raw))
        return rest._replace(raw=raw)
    if keys or client_message_id or ordering_key:
        # Likely the only one of its kind: it would push out the others.
        return _encode(tags, keys, properties, client_message_id, content_type, ordering_key)
    return _encode_cached(tags, keys, properties, client_message_id, content_type)


def _expires_part(expires_ms: int) -> bytes:
    if not -DUE_MS_MAX <= expires_ms <= DUE_MS_MAX:
        raise errors.InvalidDueTime(
            f"an expiry of {expires_ms} ms is out of range", due_ms_max=DUE_MS_MAX
        )
    return pack_expires(expires_ms)


def from_wire(message: meta_pb2.MessageMeta) -> EncodedMeta:
    """Check metadata that came as a protobuf message, and encode it. Raises as `encode`."""
    return encode(_from_protobuf(message))


def decode(raw: bytes) -> MessageMeta:
    """The metadata that `raw` holds; short ones that repeat are decoded once.

    Only its form and total size are checked, not the other limits: what was accepted once can
    always be read.

    Raises:
        InvalidArgument: not an encoded `MessageMeta`.
        MessageTooLarge: more than `MESSAGE_META_BYTES_MAX` bytes.
    """
    if not raw:
        return NO_META
    return _decode_cached(raw) if len(raw) <= _CACHED_DECODED_BYTES_MAX else _decode(raw)


def _decode(raw: bytes) -> MessageMeta:
    _check_size(len(raw))
    try:
        return _from_protobuf(meta_pb2.MessageMeta.FromString(raw))
    except DecodeError:
        raise errors.InvalidArgument("the metadata of a message cannot be decoded") from None


_decode_cached = lru_cache(maxsize=_CACHED_DECODED)(_decode)


def _from_protobuf(message: meta_pb2.MessageMeta) -> MessageMeta:
    return MessageMeta(
        tuple(message.tags),
        tuple(message.keys),
        tuple((pair.name, pair.value) for pair in message.properties),
        message.client_message_id,
        message.content_type,
        message.ordering_key,
        message.expires_ms,
        message.priority,
    )


def _encode(
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    client_message_id: str,
    content_type: str,
    ordering_key: str = "",
) -> EncodedMeta:
    raw, gene = _tag_part(tags) if tags else (b"", 0)
    hashed = 0
    if keys:
        _check_count("keys", keys, limits.MESSAGE_KEY_COUNT_MAX)
        text = _text("key", keys[0], limits.KEY_BYTES_MAX)
        hashed = key_hash(text)
        raw += _piece(_KEY_KEY, text)
        for key in keys[1:]:
            raw += _piece(_KEY_KEY, _text("key", key, limits.KEY_BYTES_MAX))
    if properties:
        raw += _property_part(properties)
    if client_message_id:
        text = _text("client_message_id", client_message_id, CLIENT_MESSAGE_ID_BYTES_MAX)
        raw += _piece(_CLIENT_ID_KEY, text)
    if content_type:
        text = _text("content_type", content_type, CONTENT_TYPE_BYTES_MAX)
        raw += _piece(_CONTENT_TYPE_KEY, text)
    if ordering_key:
        text = _text("ordering_key", ordering_key, limits.KEY_BYTES_MAX)
        hashed = key_hash(text)
        raw += _piece(_ORDERING_KEY_KEY, text)
    _check_size(len(raw))
    return EncodedMeta(raw, gene, hashed, tags, properties)


_encode_cached = lru_cache(maxsize=_CACHED_METAS)(_encode)


@lru_cache(maxsize=_CACHED_METAS)
def _tag_part(tags: tuple[str, ...]) -> tuple[bytes, int]:
    _check_count("tags", tags, limits.MESSAGE_TAG_COUNT_MAX)
    return b"".join(map(_tag_piece, tags)), sparse_gene(tags)


@lru_cache(maxsize=_CACHED_PIECES)
def _tag_piece(tag: str) -> bytes:
    return _piece(_TAG_KEY, _label("tag", tag, limits.NAME_BYTES_MAX))


def _property_part(properties: tuple[tuple[str, str], ...]) -> bytes:
    _check_count("properties", properties, limits.MESSAGE_PROPERTY_COUNT_MAX)
    if len({name for name, _ in properties}) != len(properties):
        raise errors.InvalidArgument("a property name is there twice")
    pieces = []
    for name, value in properties:
        text = _text("property value", value, limits.PROPERTY_VALUE_BYTES_MAX, may_be_empty=True)
        pair = _property_name(name) + (_piece(_VALUE_KEY, text) if text else b"")
        pieces.append(_piece(_PROPERTY_KEY, pair))
    return b"".join(pieces)


@lru_cache(maxsize=_CACHED_PIECES)
def _property_name(name: str) -> bytes:
    return _piece(_NAME_KEY, _label("property name", name, limits.PROPERTY_NAME_BYTES_MAX))


def _piece(key: bytes, content: bytes) -> bytes:
    """One length-delimited protobuf field."""
    size = len(content)
    if size < _ONE_BYTE_LENGTH:
        return key + _LENGTHS[size] + content
    length = bytearray()
    while size >= _ONE_BYTE_LENGTH:
        length.append(size & 0x7F | _ONE_BYTE_LENGTH)
        size >>= 7
    length.append(size)
    return key + length + content


def _label(what: str, text: str, bytes_max: int) -> bytes:
    raw = _text(what, text, bytes_max)
    if not _CONTROL.isdisjoint(text):
        raise errors.InvalidArgument(f"a {what} has a control character: {text!r}")
    return raw


def _text(what: str, text: str, bytes_max: int, *, may_be_empty: bool = False) -> bytes:
    try:
        raw = text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise errors.InvalidArgument(f"a {what} is not a Unicode text: {text!r}") from None
    if not raw and not may_be_empty:
        raise errors.InvalidArgument(f"a {what} is empty")
    if len(raw) > bytes_max:
        raise errors.MessageTooLarge(
            f"a {what} has {len(raw)} bytes; at most {bytes_max} are allowed",
            bytes=len(raw),
            bytes_max=bytes_max,
        )
    return raw


def _check_count(what: str, items: Sized, count_max: int) -> None:
    count = len(items)
    if count > count_max:
        raise errors.MessageTooLarge(
            f"a message has {count} {what}; at most {count_max} are allowed",
            count=count,
            count_max=count_max,
        )


def _check_size(size: int) -> None:
    if size > limits.MESSAGE_META_BYTES_MAX:
        raise errors.MessageTooLarge(
            f"the metadata of a message has {size} bytes; "
            f"at most {limits.MESSAGE_META_BYTES_MAX} are allowed",
            bytes=size,
            bytes_max=limits.MESSAGE_META_BYTES_MAX,
        )
