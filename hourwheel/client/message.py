"""What a user sends (`Message`) and what a user gets (`ReceivedMessage`, `ReceivedBatch`).

A received message is two words, its batch and its place in it: whatever is asked of it is cut out
of the batch's bytes at that moment, so a drain pays for the fields it reads and for no others. The
batch's bytes live as long as one of its messages does; keep `bytes(message.body)` and not messages
where they are to be kept for long.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.client.expiry import NEVER, expires_of
from hourwheel.crc32c import crc32c
from hourwheel.delay_levels import level_to_ms
from hourwheel.formats import meta as metas
from hourwheel.formats.delivery_batch import DeliveryBatch, corrupt_message
from hourwheel.formats.expiry_field import expiry_of
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta
from hourwheel.instants import duration_to_ms, instant_to_ms
from hourwheel.outcomes import IfPending
from hourwheel.types import SequenceNumber


@dataclass(slots=True)
class Message:
    """A message to publish.

    It falls due after `delay_ms`, counted by the cluster's clock from when it is accepted (prefer
    this where your own clock may be wrong), or at the instant `due_ms`; at once without either. An
    instant in the past is at once, too, but one before 2001 is refused by the producer: it is
    seconds by mistake. `delay`, `delay_level` and `due` are other ways to write these two. Limits:
    `hourwheel.limits`.

    No group is given it after it expires: at the instant `expires_ms`, or `expire_after_ms` after
    it fell due; never without either. What was leased by then may still be acknowledged. `expires`
    is another way to write these two.

    Raises:
        InvalidDueTime: `delay`, `delay_level`, `due` or `expires` is no such thing, or given beside
            what it is another way to write; or an instant has no time zone. What is wrong with the
            other fields, publishing says.
    """

    body: bytes
    """The payload, of any content; nodes accept 4 MiB less 64 KiB by default, and 4 MiB at most."""
    delay_ms: int | None = field(default=None, kw_only=True)
    """Delay in milliseconds, from 0 to the horizon (at least two years)."""
    due_ms: int | None = field(default=None, kw_only=True)
    """Instant in epoch milliseconds, up to the horizon; not together with `delay_ms`."""
    tags: Seq[str] = field(default=(), kw_only=True)
    """Labels to filter by. The first one is the primary tag."""
    keys: Seq[str] = field(default=(), kw_only=True)
    """Names from your own world (an order number). Equal first keys stay in one queue."""
    properties: Mapping[str, str] | None = field(default=None, kw_only=True)
    """Attributes for the consumer and for SQL filters."""
    client_message_id: str = field(default="", kw_only=True)
    """Your own id of the message; opaque to the cluster."""
    content_type: str = field(default="", kw_only=True)
    """How the body is encoded, such as "application/json"; opaque to the cluster."""
    dedup_key: str = field(default="", kw_only=True)
    """Your own name of what of the topic is to be pending once at a time; needs `if_pending`."""
    if_pending: IfPending | None = field(default=None, kw_only=True)
    """What becomes of this message where a pending one has the same `dedup_key`."""
    ordering_key: str = field(default="", kw_only=True)
    """Ordered groups get the messages of a topic that have one such key one by one, in the order of
    their release. It also chooses the queue, instead of the first of `keys`."""
    expires_ms: int | None = field(default=None, kw_only=True)
    """Instant in epoch milliseconds, later than the due time; it stays where the message is moved.
    Not together with `expire_after_ms`."""
    expire_after_ms: int | None = field(default=None, kw_only=True)
    """From 1 on: so many milliseconds after the due time that it is published with."""
    priority: int = field(default=0, kw_only=True)
    """0 to 9. Of what a group may be given at one time, the highest comes first; it never makes a
    message early. One with an ordering key keeps its place whatever its priority."""
    delay: InitVar[timedelta | None] = field(default=None, kw_only=True)
    """As `delay_ms`, rounded up to milliseconds."""
    due: InitVar[datetime | None] = field(default=None, kw_only=True)
    """As `due_ms`: an instant with a time zone, rounded up to milliseconds."""
    delay_level: InitVar[int | None] = field(default=None, kw_only=True)
    """As `delay_ms`, by RocketMQ's levels: 1 (1 s) to 18 (2 h)."""
    expires: InitVar[datetime | timedelta | None] = field(default=None, kw_only=True)
    """As `expires_ms`, an instant with a time zone; or as `expire_after_ms`, a length of time."""

    def __post_init__(
        self,
        delay: timedelta | None,
        due: datetime | None,
        delay_level: int | None,
        expires: datetime | timedelta | None,
    ) -> None:
        """Turn what was given as Python has it into milliseconds."""
        if delay_level is not None:
            if self.delay_ms is not None or delay is not None:
                raise errors.InvalidDueTime("a message has both delay_level and another delay")
            self.delay_ms = level_to_ms(delay_level)
        if delay is not None:
            if self.delay_ms is not None:
                raise errors.InvalidDueTime("a message has both delay and delay_ms")
            self.delay_ms = duration_to_ms(delay)
        if due is not None:
            if self.due_ms is not None:
                raise errors.InvalidDueTime("a message has both due and due_ms")
            self.due_ms = instant_to_ms(due)
        if expires is not None:
            if self.expires_ms is not None or self.expire_after_ms is not None:
                raise errors.InvalidDueTime("a message has both expires and another expiry")
            if isinstance(expires, timedelta):
                self.expire_after_ms = duration_to_ms(expires)
            else:
                self.expires_ms = instant_to_ms(expires)

    @property
    def expiry(self) -> int:
        """The expiry as metadata has it. Raises as `hourwheel.client.expiry.expires_of`."""
        if self.expires_ms is None and self.expire_after_ms is None:
            return NEVER
        return expires_of(self.due_ms, self.delay_ms, self.expires_ms, self.expire_after_ms)

    def meta(self) -> MessageMeta:
        """The metadata as one value.

        Raises:
            InvalidArgument: `tags` or `keys` is a text where a list of texts belongs, or
                `properties` is no mapping.
            InvalidDueTime: the expiry is none.
        """
        if isinstance(self.tags, str) or isinstance(self.keys, str):
            raise errors.InvalidArgument("tags and keys are lists of texts, not one text")
        if self.properties and not hasattr(self.properties, "items"):
            raise errors.InvalidArgument("properties are a mapping of names to texts")
        return MessageMeta(
            tuple(self.tags),
            tuple(self.keys),
            tuple(self.properties.items()) if self.properties else (),
            self.client_message_id,
            self.content_type,
            self.ordering_key,
            self.expiry,
            self.priority,
        )


class ReceivedBatch:
    """The messages of one answer: leased together, from one queue, in order of release.

    A sequence of `ReceivedMessage`s; `delivery` has the columns for those who work in bulk. Where
    the client checks the filter, the sequence is of those messages only that match, while
    `delivery` has them all: `batch.delivery.due_ms[batch.ordinals]` are the due times to `bodies`.
    """

    def __init__(
        self,
        delivery: DeliveryBatch,
        *,
        topic: str,
        receipt: str,
        invisible_until_ms: int,
        lease_until_ms: float = float("inf"),
        lease_ms: float = float("inf"),
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Wrap a checked delivery batch.

        Args:
            delivery: the messages.
            topic: topic they were published to.
            receipt: the receipt of all of them.
            invisible_until_ms: end of the lease by the node's clock, epoch milliseconds.
            lease_until_ms: the same by the monotonic clock of this process.
            lease_ms: how long it was when the answer came.
            mask: bool[n], which of the delivered messages are in this sequence; None: all.
        """
        self.delivery = delivery
        self.topic = topic
        self.receipt = receipt
        self.invisible_until_ms = invisible_until_ms
        self.lease_until_ms, self.lease_ms = lease_until_ms, lease_ms
        self.mask = mask
        """bool[n] over `delivery`: which of its messages are in this sequence; None: all."""
        self._undecided: list[tuple[int, int]] = []
        """[first, end) that a call whose answer was lost was to finish."""
        self._chosen: list[int] | None = None if mask is None else np.flatnonzero(mask).tolist()
        """Their ordinals in `delivery`, ascending; None: all."""
        self._count = delivery.header.count if self._chosen is None else len(self._chosen)
        self._raw = delivery.buffer
        self._blob_ends: list[int] = []
        """First byte of the first message, then the end of each; empty until first needed."""
        self._crcs: list[int] = []
        self._meta_lens: list[int] | None = None
        """None: no message has any."""

    def note_undecided(self, first: int, end: int) -> None:
        """Whether [first, end) of what was delivered are finished is not known."""
        if not any(low <= first and end <= high for low, high in self._undecided):
            self._undecided.append((first, end))

    def is_undecided(self, first: int, end: int) -> bool:
        """Whether that is so of any of [first, end)."""
        return any(low < end and first < high for low, high in self._undecided)

    def __len__(self) -> int:
        """How many messages."""
        return self._count

    def __getitem__(self, index: int) -> "ReceivedMessage":
        """The message at `index`, counted from 0."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        return ReceivedMessage(self, index if self._chosen is None else self._chosen[index])

    def __iter__(self) -> Iterator["ReceivedMessage"]:
        """The messages in order."""
        return map(ReceivedMessage, repeat(self), self._chosen or range(self._count))

    def messages(self, first: int = 0, end: int | None = None) -> "list[ReceivedMessage]":
        """The messages [first, end)."""
        stop = self._count if end is None else end
        chosen = range(first, stop) if self._chosen is None else self._chosen[first:stop]
        return list(map(ReceivedMessage, repeat(self), chosen))

    @property
    def ordinals(self) -> NDArray[np.int64]:
        """int64[n]: where the messages of this sequence stand in the columns of `delivery`."""
        return np.arange(self._count) if self._chosen is None else np.array(self._chosen, np.int64)

    def runs(self, first: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """Where the messages [first, end) stand in `delivery`: as few ranges [from, to)."""
        stop = self._count if end is None else end
        if self._chosen is None:
            return [(first, stop)] if first < stop else []
        return runs_of(self._chosen[first:stop])

    def bodies(self) -> list[bytes]:
        """All bodies, checked against their CRC32C.

        Raises:
            InvalidBatch: naming the first message that fails.
        """
        raw, ends, meta_lens = self._raw, self._blob_ends or self._open(), self._meta_lens
        expected = self.delivery.crc
        if self._chosen is None:
            blobs = [raw[at:end] for at, end in pairwise(ends)]
        else:
            blobs = [raw[ends[index] : ends[index + 1]] for index in self._chosen]
            expected = expected[self.mask]
            meta_lens = meta_lens and [meta_lens[index] for index in self._chosen]
        good = np.fromiter(map(crc32c, blobs), "<u4", len(blobs)) == expected
        if not good.all():
            bad = int(self.ordinals[int(np.argmin(good))])
            raise corrupt_message(SequenceNumber(int(self.delivery.sequence[bad])))
        if meta_lens is None:
            return blobs
        return [blob[meta_len:] for blob, meta_len in zip(blobs, meta_lens, strict=True)]

    def body_at(self, index: int) -> bytes:
        """The body of the message at `index` of `delivery`, checked. Raises as `bodies`."""
        ends = self._blob_ends or self._open()
        blob = self._raw[ends[index] : ends[index + 1]]
        if crc32c(blob) != self._crcs[index]:
            raise corrupt_message(SequenceNumber(int(self.delivery.sequence[index])))
        return blob if self._meta_lens is None else blob[self._meta_lens[index] :]

    def meta_at(self, index: int) -> MessageMeta:
        """The metadata of the message at `index` of `delivery`.

        Raises:
            InvalidBatch: the message fails its CRC32C.
            InvalidArgument: the sender put something else there.
        """
        ends = self._blob_ends or self._open()
        if self._meta_lens is None or not self._meta_lens[index]:
            return metas.NO_META
        blob = self._raw[ends[index] : ends[index + 1]]
        if crc32c(blob) != self._crcs[index]:
            raise corrupt_message(SequenceNumber(int(self.delivery.sequence[index])))
        return metas.decode(blob[: self._meta_lens[index]])

    def _open(self) -> list[int]:
        """Make lists of the columns that every message needs; gives `_blob_ends`.

        Plain attributes and not cached properties: those cost four times as much at each access.
        """
        delivery = self.delivery
        self._crcs = delivery.crc.tolist()
        self._meta_lens = delivery.meta_len.tolist() if delivery.meta_len.any() else None
        self._blob_ends = [delivery.blob_offset, *delivery.blob_ends().tolist()]
        return self._blob_ends

    @cached_property
    def dues_ms(self) -> list[int]:
        """The due times of all that was delivered, as ints."""
        return list(self.delivery.due_ms.tolist())

    @cached_property
    def attempts(self) -> list[int]:
        """The attempts of all that was delivered, as ints."""
        return list(self.delivery.attempt.tolist())

    @cached_property
    def message_ids(self) -> list[MessageId]:
        """The ids of all that was delivered."""
        delivery = self.delivery
        columns = (delivery.epoch.tolist(), delivery.sequence.tolist(), self.dues_ms)
        return list(map(MessageId, repeat(delivery.header.shard), *columns))


def runs_of(ordinals: Seq[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges [from, to), neighbours joined."""
    if not ordinals:
        return []
    array = np.asarray(ordinals)
    breaks = np.flatnonzero(np.diff(array) != 1)
    firsts = array[np.concatenate(([0], breaks + 1))]
    lasts = array[np.concatenate((breaks, [len(array) - 1]))]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


@dataclass(slots=True, eq=False, repr=False)
class ReceivedMessage:
    """A leased message. Finish it with the consumer's `ack` or `nack` before the lease ends."""

    batch: ReceivedBatch
    """The answer it came with."""
    index: int
    """Its place in what was delivered (`batch.delivery`), counted from 0."""

    @property
    def body(self) -> bytes:
        """The payload, checked against the CRC32C that its producer gave it.

        Raises:
            InvalidBatch: the check fails.
        """
        return self.batch.body_at(self.index)

    @property
    def message_id(self) -> MessageId:
        """Its id; `str()` gives the printable form."""
        return self.batch.message_ids[self.index]

    @property
    def topic(self) -> str:
        """The topic that it was published to, also of a dead letter."""
        return self.batch.topic

    @property
    def due_ms(self) -> int:
        """When it was due, in milliseconds since the Unix epoch."""
        return self.batch.dues_ms[self.index]

    @property
    def store_ms(self) -> int:
        """When the node accepted it, in milliseconds since the Unix epoch."""
        return int(self.batch.delivery.store_ms[self.index])

    @property
    def receive_ms(self) -> int:
        """The node's clock when it handed the message out, in milliseconds since the Unix epoch."""
        return self.batch.delivery.header.receive_ms

    @property
    def attempt(self) -> int:
        """1 for the first delivery to the group, then rising; a lower bound after a failover."""
        return self.batch.attempts[self.index]

    @property
    def invisible_until_ms(self) -> int:
        """When the lease first ended, by the node's clock, in milliseconds since the Unix epoch."""
        return self.batch.invisible_until_ms

    @property
    def meta(self) -> MessageMeta:
        """All its metadata. Raises as `ReceivedBatch.meta_at`."""
        return self.batch.meta_at(self.index)

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags; the first one is the primary tag."""
        return self.meta.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys."""
        return self.meta.keys

    @property
    def properties(self) -> dict[str, str]:
        """Its attributes."""
        return dict(self.meta.properties)

    @property
    def client_message_id(self) -> str:
        """The sender's own id; empty without one."""
        return self.meta.client_message_id

    @property
    def content_type(self) -> str:
        """How the sender encoded the body; empty if it did not say."""
        return self.meta.content_type

    @property
    def ordering_key(self) -> str:
        """Its ordering key; empty without one."""
        return self.meta.ordering_key

    @property
    def expires_ms(self) -> int | None:
        """When it expires, in milliseconds since the Unix epoch; None: never."""
        return expiry_of(self.meta.expires_ms, self.store_ms) or None

    @property
    def priority(self) -> int:
        """Its priority, 0 to 9."""
        return self.meta.priority

    def __repr__(self) -> str:
        """Its id and attempt; not its body, which may be large or secret."""
        return f"<ReceivedMessage {self.message_id} attempt {self.attempt}>"
