"""From messages to the bytes of a record batch: check, collect into columns, cut, join, build.

A `Draft` is checked content without numbers; it becomes bytes only when its turn to be sent comes,
because a batch's producer numbers follow those of the batch before it. All messages of a draft have
delays or all have instants: a batch says which by one flag.
"""

from array import array
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import chain, product
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.client.message import Message
from hourwheel.crc32c import crc32c
from hourwheel.formats import meta as metas
from hourwheel.formats import record_batch
from hourwheel.formats.batch_columns import NOTHING_REQUESTED, Requested, requested_by
from hourwheel.formats.dedup_key import NO_DEDUP_KEY, DedupKey, make_dedup_key
from hourwheel.formats.meta import EncodedMeta, MessageMeta
from hourwheel.formats.record_batch import HEADER_BYTES, I64
from hourwheel.formats.tag_gene import (
    DEFAULT_SPEC,
    GENE_NONE,
    GENE_SPARSE,
    GeneKind,
    GeneSpec,
    gene_of,
)
from hourwheel.types import DUE_MS_MAX

Times: TypeAlias = Seq[int] | NDArray[np.integer[Any]]

MESSAGE_OVERHEAD_BYTES: Final = 44
"""What a message takes in a batch beside its meta and body."""
_PRODUCER: Final = Struct("<QQ")
_PRODUCER_AT: Final = 64
_CRC_AT: Final = HEADER_BYTES - 4


@dataclass(slots=True, kw_only=True)
class Columns:
    """Messages for those who have columns and want no objects: n of each that is given."""

    bodies: Seq[bytes]
    delay_ms: Times | None = None
    """Delays in milliseconds; not together with `due_ms`. Neither: at once."""
    due_ms: Times | None = None
    """Instants in milliseconds since the Unix epoch."""
    metas: Seq[MessageMeta] | None = None
    expires_ms: Times | None = None
    """Instants in epoch milliseconds after which no group gets them; 0: never."""


Form: TypeAlias = tuple[bool, bool, bool, bool]
"""Whether messages have delays; whether any has a dedup key, any expires, any has a priority."""
FORMS: Final = tuple(product((False, True), repeat=4))


@dataclass(slots=True)
class Draft:
    """Checked content of a batch or of a part of one."""

    bodies: list[bytes]
    times_ms: I64
    """Delays or instants."""
    is_relative: bool
    """`times_ms` are delays."""
    metas: list[EncodedMeta] | None
    """None: no message has any."""
    blob_bytes: int
    """Bytes of all metas and bodies."""
    largest_bytes: int
    """Bytes of the largest message's meta and body."""
    dedup: list[DedupKey] | None = None
    """None: no message has a dedup key."""
    requested: Requested = NOTHING_REQUESTED
    """What its metas ask of a node."""
    count: int = field(init=False)
    """How many messages."""
    batch_bytes: int = field(init=False)
    """About what it takes in a batch."""

    @property
    def form(self) -> Form:
        """What all drafts of a batch have in common.

        Some things ask more of a node: what has none of them is not refused with them.
        """
        return self.is_relative, self.dedup is not None, *self.requested

    def __post_init__(self) -> None:
        """Derive what is asked for again and again."""
        self.count = len(self.bodies)
        self.batch_bytes = self.blob_bytes + MESSAGE_OVERHEAD_BYTES * self.count


def draft_one(message: Message) -> Draft:
    """Check one message and take it over; as `draft_messages`, at a fourth of the cost."""
    if not isinstance(message, Message):
        raise _no_message(message)
    delay_ms, due_ms, body = message.delay_ms, message.due_ms, message.body
    time_ms = due_ms if delay_ms is None else delay_ms
    is_plain = type(body) is bytes and len(body) <= limits.MESSAGE_BODY_BYTES_MAX
    is_timed = time_ms is None or (type(time_ms) is int and 0 <= time_ms <= DUE_MS_MAX)
    if not is_plain or not is_timed or (delay_ms is not None and due_ms is not None):
        return draft_messages((message,))[0][0]  # says what is wrong, if it is
    encoded = [_encode_meta(message)] if _has_meta(message) else None
    size = len(body) + (len(encoded[0].raw) if encoded else 0)
    times = np.array((time_ms or 0,), np.int64)
    requested = _requested_by(encoded)
    dedup = _dedup_keys((message,))
    return Draft(
        bodies=[body],
        times_ms=times,
        is_relative=due_ms is None,
        metas=encoded,
        blob_bytes=size,
        largest_bytes=size,
        dedup=dedup,
        requested=requested,
    )


def draft_messages(messages: Seq[Message]) -> list[tuple[Draft, list[int] | None]]:
    """Check n messages and collect them: one draft, or two where some have delays, some instants.

    Returns:
        Each draft with the ordinals of its messages in `messages`; None for all of them.

    Raises:
        InvalidDueTime: a time that is negative, no integer or past every horizon, or two of them.
        MessageTooLarge: a body, or the metadata.
        InvalidArgument: metadata with an empty or illegal text; a body that is not bytes; something
            else than a `Message`.
    """
    try:
        dues = [message.due_ms for message in messages]
    except AttributeError:
        others = (one for one in messages if not hasattr(one, "due_ms"))
        raise _no_message(next(others, messages)) from None
    instant_count = len(dues) - dues.count(None)
    if instant_count == 0:
        delays = [message.delay_ms for message in messages]
        if None in delays:
            delays = [0 if delay is None else delay for delay in delays]
        return [(_draft(messages, delays, is_relative=True), None)]
    if any(m.due_ms is not None and m.delay_ms is not None for m in messages):
        raise errors.InvalidDueTime("a message has both a delay and an instant")
    if instant_count == len(dues):
        return [(_draft(messages, dues, is_relative=False), None)]
    relative = [index for index, due in enumerate(dues) if due is None]
    absolute = [index for index, due in enumerate(dues) if due is not None]
    return [
        (draft_messages([messages[index] for index in ordinals])[0][0], ordinals)
        for ordinals in (relative, absolute)
    ]


def _no_message(other: object) -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"what is published is a Message, such as Message(b'...', delay_ms=1_000), not a "
        f"{type(other).__name__}"
    )


def _draft(messages: Seq[Message], times_ms: Seq[int | None], *, is_relative: bool) -> Draft:
    with_meta = [
        index
        for index, message in enumerate(messages)
        if message.tags  # spelt out: a call for each message would cost as much as all the rest
        or message.keys
        or message.properties
        or message.client_message_id
        or message.content_type
        or message.ordering_key
        or message.expires_ms is not None
        or message.expire_after_ms is not None
        or message.priority
    ]
    encoded: list[EncodedMeta] | None = None
    if with_meta:
        encoded = [_NO_META] * len(messages)
        for index in with_meta:
            encoded[index] = _encode_meta(messages[index])
    bodies = [message.body for message in messages]
    draft = _checked(bodies, _time_column(times_ms), encoded, is_relative=is_relative)
    draft.dedup = _dedup_keys(messages)
    return draft


def _requested_by(encoded: list[EncodedMeta] | None) -> Requested:
    return NOTHING_REQUESTED if encoded is None else requested_by([each.raw for each in encoded])


def _dedup_keys(messages: Seq[Message]) -> list[DedupKey] | None:
    if not any(message.dedup_key or message.if_pending for message in messages):
        return None
    return [make_dedup_key(message.dedup_key, message.if_pending or 0) for message in messages]


def _has_meta(message: Message) -> bool:
    return bool(
        message.tags
        or message.keys
        or message.properties
        or message.client_message_id
        or message.content_type
        or message.ordering_key
        or message.expires_ms is not None
        or message.expire_after_ms is not None
        or message.priority
    )


def _encode_meta(message: Message) -> EncodedMeta:
    tags, keys, properties = message.tags, message.keys, message.properties
    is_mapping = not properties or hasattr(properties, "items")
    if isinstance(tags, str) or isinstance(keys, str) or not is_mapping:
        message.meta()  # says what is wrong
    return metas.encode_fields(
        tuple(tags),
        tuple(keys),
        tuple(properties.items()) if properties else (),
        message.client_message_id,
        message.content_type,
        message.ordering_key,
        message.expiry,
        message.priority,
    )


def _time_column(times_ms: Seq[Any] | NDArray[Any]) -> I64:
    """The times as int64[n].

    Unlike numpy, `array` refuses what is no integer instead of cutting off its fraction.
    """
    if isinstance(times_ms, np.ndarray):
        if times_ms.dtype.kind not in "iu" or times_ms.ndim != 1:
            raise errors.InvalidDueTime("due times and delays are integers, in milliseconds")
        if times_ms.dtype == np.uint64 and times_ms.size and times_ms.max() > DUE_MS_MAX:
            raise errors.InvalidDueTime("a due time or delay is out of range")
        return times_ms.astype("<i8", copy=False)
    try:
        return np.frombuffer(array("q", times_ms), np.int64)
    except TypeError:
        raise errors.InvalidDueTime("due times and delays are integers, in milliseconds") from None
    except OverflowError:
        raise errors.InvalidDueTime("a due time or delay does not fit into 64 bits") from None


_NO_META: Final = metas.encode(metas.NO_META)


def draft_columns(columns: Columns) -> Draft:
    """Check columns and take them over. Raises as `draft_messages`, and for lengths that differ."""
    bodies = list(columns.bodies)
    if columns.due_ms is not None and columns.delay_ms is not None:
        raise errors.InvalidDueTime("there are both delays and instants")
    given = columns.delay_ms if columns.due_ms is None else columns.due_ms
    times_ms = np.zeros(len(bodies), np.int64) if given is None else _time_column(given)
    every = columns.metas
    if columns.expires_ms is not None:
        every = _with_expiry(columns.expires_ms, every, len(bodies))
    encoded = None if every is None else metas.encode_each(every)
    if len(times_ms) != len(bodies) or (encoded is not None and len(encoded) != len(bodies)):
        raise errors.InvalidArgument("the columns are not equally long")
    if columns.expires_ms is not None and columns.due_ms is not None:
        _check_expiries(_time_column(columns.expires_ms), times_ms)
    return _checked(bodies, times_ms, encoded, is_relative=columns.due_ms is None)


def _with_expiry(
    expires_ms: Times, given: Seq[MessageMeta] | None, count: int
) -> list[MessageMeta]:
    """The metas, each with its expiry."""
    column = _time_column(expires_ms)
    if len(column) != count or (given is not None and len(given) != count):
        raise errors.InvalidArgument("the columns are not equally long")
    _check_range(column)
    each = [metas.NO_META] * count if given is None else given
    return [
        replace(meta, expires_ms=at) if at else meta
        for meta, at in zip(each, column.tolist(), strict=True)
    ]


def _check_expiries(expires_ms: I64, due_ms: I64) -> None:
    wrong = (expires_ms > 0) & (expires_ms <= due_ms)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise errors.InvalidDueTime(
            f"message {index} expires before it is due, or as it falls due", index=index
        )


def _checked(
    bodies: list[bytes], times_ms: I64, encoded: list[EncodedMeta] | None, *, is_relative: bool
) -> Draft:
    _check_range(times_ms)
    try:
        sizes = list(map(len, bodies))
    except TypeError:
        raise errors.InvalidArgument("a body is not bytes") from None
    if set(map(type, bodies)) - {bytes}:
        if any(not isinstance(body, bytes | bytearray | memoryview) for body in bodies):
            raise errors.InvalidArgument("a body is not bytes")
        bodies = list(map(bytes, bodies))
        sizes = list(map(len, bodies))
    largest = max(sizes, default=0)
    if largest > limits.MESSAGE_BODY_BYTES_MAX:
        raise errors.MessageTooLarge(
            f"a body has {largest} bytes; at most {limits.MESSAGE_BODY_BYTES_MAX} are allowed",
            bytes=largest,
            bytes_max=limits.MESSAGE_BODY_BYTES_MAX,
        )
    total = sum(sizes)
    if encoded is not None:
        meta_sizes = [len(each.raw) for each in encoded]
        total += sum(meta_sizes)
        largest = max(map(sum, zip(sizes, meta_sizes, strict=True)), default=0)
    requested = _requested_by(encoded)
    return Draft(bodies, times_ms, is_relative, encoded, total, largest, requested=requested)


def _check_range(times_ms: I64) -> None:
    if not times_ms.size:
        return
    lowest, highest = int(times_ms.min()), int(times_ms.max())
    if lowest < 0 or highest > DUE_MS_MAX:
        trouble = f"{lowest} ms is negative" if lowest < 0 else f"{highest} ms is out of range"
        raise errors.InvalidDueTime(
            f"a due time or delay of {trouble}",
            due_ms_max=DUE_MS_MAX,
        )


def cut(draft: Draft, *, messages_max: int, bytes_max: int) -> Iterator[Draft]:
    """The draft in pieces, in order, none above the limits (but a large message alone may be)."""
    if draft.count <= messages_max and draft.batch_bytes <= bytes_max:
        if draft.count:
            yield draft
        return
    whole_bytes = draft.largest_bytes + MESSAGE_OVERHEAD_BYTES
    step = max(1, min(messages_max, bytes_max // whole_bytes))
    for first in range(0, draft.count, step):
        bodies = draft.bodies[first : first + step]
        encoded = None if draft.metas is None else draft.metas[first : first + step]
        blob_bytes = sum(map(len, bodies))
        if encoded is not None:
            blob_bytes += sum(len(each.raw) for each in encoded)
        yield Draft(
            bodies=bodies,
            times_ms=draft.times_ms[first : first + step],
            is_relative=draft.is_relative,
            metas=encoded,
            blob_bytes=blob_bytes,
            largest_bytes=draft.largest_bytes,
            dedup=None if draft.dedup is None else draft.dedup[first : first + step],
            requested=draft.requested,
        )


def join(drafts: Seq[Draft]) -> Draft:
    """Several drafts of one kind as one; at least one."""
    if len(drafts) == 1:
        return drafts[0]
    encoded: list[EncodedMeta] | None = None
    if any(draft.metas is not None for draft in drafts):
        encoded = []
        for draft in drafts:
            encoded += [_NO_META] * draft.count if draft.metas is None else draft.metas
    dedup: list[DedupKey] | None = None
    if any(draft.dedup is not None for draft in drafts):
        each = [draft.dedup or [NO_DEDUP_KEY] * draft.count for draft in drafts]
        dedup = list(chain.from_iterable(each))
    return Draft(
        bodies=list(chain.from_iterable(draft.bodies for draft in drafts)),
        times_ms=np.concatenate([draft.times_ms for draft in drafts]),
        is_relative=drafts[0].is_relative,
        metas=encoded,
        blob_bytes=sum(draft.blob_bytes for draft in drafts),
        largest_bytes=max(draft.largest_bytes for draft in drafts),
        dedup=dedup,
        requested=Requested(*map(any, zip(*(draft.requested for draft in drafts), strict=True))),
    )


def build(
    draft: Draft, producer_id: int, first_sequence: int, spec: GeneSpec = DEFAULT_SPEC
) -> bytes:
    """The record batch: unstamped, with the producer's numbers (0 and 0 for none).

    `spec` says how the topic wants its genes to be made.
    """
    encoded = draft.metas
    genes = None if encoded is None else _genes(encoded, spec)
    is_sparse = spec.kind is GeneKind.SPARSE and genes is not None and any(genes)
    return record_batch.build_publish(
        draft.times_ms,
        draft.bodies,
        metas=None if encoded is None else [each.raw for each in encoded],
        tag_genes=genes,
        key_hashes=None if encoded is None else [each.key_hash for each in encoded],
        relative_due=draft.is_relative,
        producer_id=producer_id,
        producer_sequence=first_sequence,
        gene_kind=GENE_SPARSE if is_sparse else GENE_NONE,
        gene_spec=0 if genes is None else spec.number,
        dedup=draft.dedup,
    )


def _genes(encoded: list[EncodedMeta], spec: GeneSpec) -> list[int]:
    """The gene of each message. They cannot be made earlier: only now is the topic's wish known."""
    if spec == DEFAULT_SPEC:
        return [each.tag_gene for each in encoded]
    return [gene_of(spec, each.tags, each.properties) for each in encoded]


def renumber(raw: bytes, producer_id: int, first_sequence: int) -> bytes:
    """The same unstamped batch with other producer numbers; the payload is not read again."""
    header = record_batch.unpack_header(raw)
    fresh = bytearray(raw)
    _PRODUCER.pack_into(fresh, _PRODUCER_AT, producer_id, first_sequence)
    view = memoryview(fresh)
    crc = crc32c(view[HEADER_BYTES : HEADER_BYTES + header.stamped_bytes], crc32c(view[:_CRC_AT]))
    view[_CRC_AT:HEADER_BYTES] = crc.to_bytes(4, "little")
    return bytes(fresh)
