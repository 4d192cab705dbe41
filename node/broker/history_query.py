"""A message's history, page by page, beside all else that a node does.

A page is made in slices of a few milliseconds. It ends when the history does, when it has many
events, or when its time is up, and then says where to go on: the token holds the whole trail.

    byte  size  little-endian
       0     1  version, 4
       1     4  epoch  u32
       5    16  binding: BLAKE2b of the message's id and topic
      21   8*n  i64: facts, counts of the four lists, then their fields one by one
       -    16  seal: BLAKE2b of the bytes before

Both hashes are keyed by a secret that is drawn for each mastership and does not leave it. A trail
says which entries of which queues are shown, and how much there is to do for a page: a caller who
could make one up would see the messages of any topic.
"""

import asyncio
import hmac
import secrets
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain
from operator import mul
from struct import Struct
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from hourwheel.types import Offset, TopicId, topic_of
from node.catalog.serving import Serving
from node.consumers.loop_share import LoopShare, Turns
from node.contracts.history import HistoryPage, MessageEvent
from node.shard.history import (
    PLACES_MAX,
    SEEN_MAX,
    WAITING_MAX,
    Event,
    History,
    Place,
    Trail,
    Waiting,
    begin,
    find_publish,
)
from node.shard.named_messages import is_shown
from storage.log.commit_log import CommitLog

PAGE_S: Final = 0.25
"""A page's time, what else the loop does meanwhile included."""
SLICE_S: Final = 0.003
EVENTS_MAX: Final = 500
_WAITING_MAX: Final = 16
"""Pages that wait for their turn; each takes `PAGE_S`, or a little more."""
_NAME_BYTES: Final = 24
"""Of a dedup key in a token: three numbers."""
_VERSION: Final = 4
_HEAD: Final = Struct("<BI")
_HASH_BYTES: Final = 16
_FACTS: Final = 13
"""Numbers before those of the lists: of the dedup key, of the message, and the lists' counts."""
_ROW_WIDTHS: Final = (len(Place._fields), len(Waiting._fields), 3, 4)
_ROW_COUNTS_MAX: Final = (PLACES_MAX, WAITING_MAX, SEEN_MAX, SEEN_MAX)
"""A trail with more is not followed any further, and so has no token."""
TOKEN_BYTES_MAX: Final = (
    _HEAD.size + 2 * _HASH_BYTES + 8 * (_FACTS + sum(map(mul, _ROW_WIDTHS, _ROW_COUNTS_MAX)))
)


class HistoryQuery:
    """See EnginePort.history. Of one mastership; on the event loop's thread."""

    def __init__(self, serving: Serving) -> None:
        """Read the shard of `serving`."""
        self._serving, self._key = serving, secrets.token_bytes(32)
        self._epoch = serving.mastership.epoch
        self._shard = serving.mastership.shard
        self._turns = Turns("histories", _WAITING_MAX)

    async def history(self, of: MessageId, topic: str, token: bytes) -> HistoryPage:
        """See EnginePort."""
        async with self._turns.one():
            try:
                return await self._page(of, topic, token)
            except (errors.DiskFailed, FileNotFoundError) as error:
                # Damage like any other where somebody only asks: it must not end the node.
                raise errors.CorruptLog(f"the log cannot be read: {error}") from error

    async def _page(self, of: MessageId, topic: str, token: bytes) -> HistoryPage:
        page, slices = HistoryPage(), _Slices(self._shard.log)
        if of.shard != self._shard.shard_id:
            return page
        if token:
            trail = self._unpack(of, topic, token)
            if topic and topic != self._topic_name(trail.topic_id):
                page.is_complete = False  # it was deleted meanwhile
                return page
        else:
            found = await self._begin(of, topic, slices)
            if found is None:
                page.is_complete = False
                return page
            trail, events = found
            page.events += map(self._named, events)
            if not events:
                return page
        if not await self._follow(trail, page, slices):
            page.next_token = self._pack(of, topic, trail)
        page.is_complete = trail.is_complete
        return page

    async def _begin(
        self, of: MessageId, topic: str, slices: "_Slices"
    ) -> tuple[Trail, list[Event]] | None:
        """Its beginning; None where the log does not have it, or it is of another topic.

        And where its topic retains it no longer. A topic that was deleted has no name.
        """
        for batch in find_publish(self._shard, of.sequence):
            if batch is not None:
                at = of.sequence - batch.header.base_sequence
                number = topic_of(int(batch.topic_queue[at]))
                found = self._topic_name(number)
                is_it = (batch.header.epoch, int(batch.due_ms[at])) == (of.epoch, of.due_ms)
                if not is_it or (topic and topic != found):
                    return None
                known = self._shard.views.catalog.find_topic_by_id(number)
                now_ms = self._serving.now_ms()
                views, log = self._shard.views, self._shard.log
                if known and not is_shown(views, log, known, of.sequence, now_ms):
                    return None
                return begin(self._shard, batch, of.sequence)
            if slices.is_over:
                await slices.rest()
                self._serving.check()
        return None

    async def _follow(self, trail: Trail, page: HistoryPage, slices: "_Slices") -> bool:
        """Go on until the page is over; whether the history is."""
        while True:
            self._serving.check()
            history = History(self._shard, trail)
            for events in self._steps(history):
                page.events += map(self._named, events)
                if slices.is_over or len(page.events) >= EVENTS_MAX:
                    break  # also behind the last batch something may follow: a release
            else:
                return True
            if slices.is_page_over or len(page.events) >= EVENTS_MAX:
                return False
            await slices.rest()

    def _steps(self, history: History) -> Iterator[list[Event]]:
        try:
            yield from history.steps()
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise

    def _named(self, event: Event) -> MessageEvent:
        group = self._shard.views.catalog.find_group_by_id(event.group_id)
        return MessageEvent(
            kind=event.kind,
            at_ms=event.at_ms,
            group="" if group is None else group.name,
            attempt=event.attempt,
            due_ms=event.due_ms,
            topic=self._topic_name(event.topic_id),
            producer_id=event.producer_id,
            priority=event.priority,
        )

    def _topic_name(self, topic_id: TopicId) -> str:
        topic = self._shard.views.catalog.find_topic_by_id(topic_id)
        return "" if topic is None else topic.name

    def _pack(self, of: MessageId, topic: str, trail: Trail) -> bytes:
        name = np.frombuffer(trail.name.ljust(_NAME_BYTES, b"\0"), "<i8").tolist()
        numbers = [
            *(len(trail.name), *name),
            *(trail.offset, trail.is_complete, trail.due_ms, trail.store_ms, trail.topic_id),
            *(len(trail.places), len(trail.waiting), len(trail.seen), len(trail.failures)),
            *chain.from_iterable((*trail.places, *trail.waiting, *sorted(trail.seen))),
            *chain.from_iterable((*key, count) for key, count in sorted(trail.failures.items())),
        ]
        head = _HEAD.pack(_VERSION, self._epoch) + self._binding(of, topic)
        body = head + np.array(numbers, "<i8").tobytes()
        return body + self._hash(body)

    def _unpack(self, of: MessageId, topic: str, token: bytes) -> Trail:
        """The trail of a token that `_pack` made, for the same question. Raises InvalidArgument."""
        body, seal = token[:-_HASH_BYTES], token[-_HASH_BYTES:]
        if len(body) < _HEAD.size + _HASH_BYTES or len(token) > TOKEN_BYTES_MAX:
            raise _invalid()
        version, epoch = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise _invalid()
        if epoch != self._epoch:
            why = "this page token is of another mastership: the master has changed, begin again"
            raise errors.InvalidArgument(why, field="page_token")
        binding, raw = body[_HEAD.size :][:_HASH_BYTES], body[_HEAD.size + _HASH_BYTES :]
        if not hmac.compare_digest(seal, self._hash(body)) or binding != self._binding(of, topic):
            raise _invalid()
        return _parse(of, raw)

    def _binding(self, of: MessageId, topic: str) -> bytes:
        return self._hash(f"{of} {topic}".encode())

    def _hash(self, raw: bytes) -> bytes:
        return blake2b(raw, digest_size=_HASH_BYTES, key=self._key).digest()


def _parse(of: MessageId, raw: bytes) -> Trail:
    """The trail of the numbers of a token, checked again. Raises InvalidArgument."""
    if len(raw) % 8 or len(raw) < 8 * _FACTS:
        raise _invalid()
    numbers: list[int] = np.frombuffer(raw, "<i8").tolist()
    name_bytes, words, numbers = numbers[0], numbers[1:4], numbers[4:]
    offset, is_complete, due_ms, store_ms, topic_id = numbers[:5]
    counts, rest = numbers[5:9], numbers[9:]
    fits = all(0 <= one <= most for one, most in zip(counts, _ROW_COUNTS_MAX, strict=True))
    fits = fits and 0 <= name_bytes <= _NAME_BYTES
    if not fits or sum(map(mul, counts, _ROW_WIDTHS)) != len(rest):
        raise _invalid()
    rows = iter(rest)
    places, waiting, seen, failures = (
        [[next(rows) for _ in range(width)] for _ in range(count)]
        for count, width in zip(counts, _ROW_WIDTHS, strict=True)
    )
    return Trail(
        sequence=of.sequence,
        due_ms=due_ms,
        store_ms=store_ms,
        topic_id=TopicId(topic_id),
        offset=Offset(offset),
        is_complete=bool(is_complete),
        places=[Place._make(row) for row in places],
        waiting=[Waiting._make(row) for row in waiting],
        seen={(row[0], row[1], row[2]) for row in seen},
        failures={(row[0], row[1], row[2]): row[3] for row in failures},
        name=np.array(words, "<i8").tobytes()[:name_bytes],
    )


def _invalid() -> errors.InvalidArgument:
    return errors.InvalidArgument(
        "this is no page token of this message's history", field="page_token"
    )


class _Slices:
    """The time of one page."""

    def __init__(self, log: CommitLog) -> None:
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + PAGE_S
        self._slice_until = self._now() + SLICE_S
        self._rest = LoopShare(lambda: log.end_offset).rest

    @property
    def is_over(self) -> bool:
        """Other calls are to have their turn."""
        return self._now() >= self._slice_until

    @property
    def is_page_over(self) -> bool:
        """The caller is to ask again."""
        return self._now() >= self._until

    async def rest(self) -> None:
        """Let others go on."""
        await self._rest()
        self._slice_until = self._now() + SLICE_S
