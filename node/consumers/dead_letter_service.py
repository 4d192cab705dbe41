"""A group's dead letters for its operators: look through them, and give them to the group again.

A page is made in steps of a few milliseconds, with rests between them, and ends after a bounded
amount of work: then it says where to go on. A group's window of its own dead-letter queue has those
that are no dead letters any more: what it has acknowledged there, and what it was given again. A
re-drive is a row of RESOLVE, which moves and resolves at once (decision 47): so each dead letter is
given back once, whatever is repeated or interrupted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 - as its module names it
from typing import Final

import numpy as np
from numpy.typing import NDArray

from filters.compile import BlockFilter, compile_filter
from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.types import SequenceNumber, TopicId, topic_queue
from node.catalog.filter_cache import make_ready
from node.catalog.serving import ServingConsumers
from node.consumers.dead_letters import reason_of
from node.consumers.loop_share import LoopShare, Turns
from node.consumers.rejections import Rejections
from node.contracts.dead_letters import (
    DeadLetterMessage,
    DeadLetterQuery,
    DeadLettersPage,
    RedrivenPage,
)
from node.delivery.message_lease import runs_of
from node.delivery.resolve_rows import redrive_rows
from node.shard.group_queue import GroupQueue
from node.shard.views import REDRIVE_LEVEL
from storage.queues.ack_state import AckWindow
from storage.views.catalog_items import Group
from storage.views.unit import NO_UNITS, Units, pick

STEP_ENTRIES: Final = 2_048
"""Entries that one step looks at: some hundred microseconds."""
STEP_READS: Final = 128
"""Messages that one step reads, ..."""
STEP_BYTES: Final = 1 << 20
"""... and about so many bytes of them."""
PAGE_BYTES_MAX: Final = 2 << 20
"""Of metas and bodies; the last step may come on top."""
PAGE_ENTRIES_MAX: Final = 262_144
PAGE_READS_MAX: Final = 16_384
PAGE_REDRIVEN_MAX: Final = 16_384
_LONG_WORK: Final = 131_072
"""Of one step of the check of one message: some 3 ms."""
_WAITING_MAX: Final = 16
"""Pages that wait for their turn."""
_TOKEN: Final = Struct("<IQQ")
"""The dead letters' topic, where to go on, and where to end."""
_UNTOUCHED: Final = AckWindow()


@dataclass(frozen=True, slots=True)
class _Found:
    """What a step has found: messages that match, in queue order."""

    positions: NDArray[np.int64]
    units: Units
    blobs: list[bytes | memoryview]
    """Of each; none where nothing was read."""
    is_bad: NDArray[np.bool_]
    """bool[n]: it cannot be read."""


_NOTHING: Final = _Found(np.empty(0, np.int64), NO_UNITS, [], np.empty(0, np.bool_))


class DeadLetterService:
    """See EnginePort.list_dead_letters and redrive."""

    def __init__(self, serving: ServingConsumers, rejections: Rejections) -> None:
        """Of the shard of a mastership. `rejections`: why consumers made dead letters."""
        self._rejections = rejections
        self._serving, self._shard = serving, serving.mastership.shard
        self._turns = Turns("listings and re-drives of dead letters", _WAITING_MAX)

    async def list_dead_letters(
        self, query: DeadLetterQuery, token: bytes, *, count_max: int, with_bodies: bool
    ) -> DeadLettersPage:
        """See EnginePort."""
        page, size_bytes = DeadLettersPage(), 0
        async with self._turns.one():
            walk = await self._begin(query, token, reads=True)
            while not walk.is_done:
                found = await self._step(walk)
                infos = self._infos(walk, found, with_bodies=with_bodies)
                for position, info in zip(found.positions.tolist(), infos, strict=True):
                    page.messages.append(info)
                    size_bytes += len(info.meta) + len(info.body)
                    if len(page.messages) >= count_max or size_bytes >= PAGE_BYTES_MAX:
                        walk.at = position + 1
                        break
                is_full = len(page.messages) >= count_max or size_bytes >= PAGE_BYTES_MAX
                if is_full or walk.is_spent:
                    break
                await walk.rest()
        page.scanned_count, page.next_token = walk.scanned_count, walk.token()
        return page

    async def redrive(self, query: DeadLetterQuery, token: bytes) -> RedrivenPage:
        """See EnginePort."""
        if self._shard.views.feature_level < REDRIVE_LEVEL:
            raise errors.FailedPrecondition(
                "a node of an earlier version is in the cluster, which cannot re-drive"
            )
        page = RedrivenPage()
        async with self._turns.one():
            walk = await self._begin(query, token, reads=False)
            while not walk.is_done:
                found = await self._step(walk)
                page.corrupt_count += int(found.is_bad.sum())
                positions = found.positions[~found.is_bad]
                reads = self._reads_origin(walk.group, pick(found.units, ~found.is_bad))
                page.unsubscribed_count += int((~reads).sum())
                if reads.any():
                    page.redriven_count += await self._give_back(walk, positions[reads])
                    given = found.units["sequence"][np.isin(found.positions, positions[reads])]
                    self._rejections.forget(walk.group.group_id, given.tolist())
                if walk.is_spent or page.redriven_count >= PAGE_REDRIVEN_MAX:
                    break
                await walk.rest()
        page.scanned_count, page.next_token = walk.scanned_count, walk.token()
        return page

    async def _give_back(self, walk: "_Walk", positions: NDArray[np.int64]) -> int:
        """How many of these dead letters were given back: the others are no such any more."""
        rows = redrive_rows(walk.group_queue, runs_of(positions), self._serving.now_ms())
        return sum(await self._serving.propose_resolve(rows))

    def _reads_origin(self, group: Group, units: Units) -> NDArray[np.bool_]:
        """bool[n]: whether the group reads the topic that each came from."""
        catalog, group_id = self._shard.views.catalog, group.group_id
        origins = units["origin_topic"]
        topics = [
            topic_id
            for topic_id in set(origins.tolist())
            if catalog.find_subscription(group_id, topic_id) is not None
        ]
        return np.isin(origins, topics)

    # -- looking ----------------------------------------------------------------------------------

    async def _begin(self, query: DeadLetterQuery, token: bytes, *, reads: bool) -> "_Walk":
        """Raises UnknownGroup, UnknownTopic, InvalidFilter, InvalidArgument."""
        catalog = self._shard.views.catalog
        if query.filter is not None:
            await make_ready(query.filter, DEFAULT_SPEC)
        group: Group = catalog.get_group(query.group)
        topic_id = catalog.get_topic(query.topic).topic_id if query.topic else None
        letters = topic_queue(group.dead_letter_topic_id, 0)
        low, high = self._shard.views.queues.bounds(letters) if letters else (0, 0)
        at, end = _parse(token, letters) if token else (low, high)
        at, end = max(at, low), min(end, high)
        wanted = compile_filter(query.filter or FilterExpression.everything(), DEFAULT_SPEC)
        group_queue = GroupQueue.of(group.group_id, letters)
        share = LoopShare(lambda: self._shard.log.end_offset)
        reads = reads or wanted.needs_metas
        return _Walk(group, group_queue, query, topic_id, wanted, share, at, end, reads, at)

    async def _step(self, walk: "_Walk") -> _Found:
        """The next of those that match.

        Raises:
            ShuttingDown, NotMaster, UnknownGroup: to go on makes no sense any more.
            CorruptFile: a queue is damaged: the node ends.
        """
        self._serving.check()
        found = self._shard.views.catalog.find_group_by_id(walk.group.group_id)
        if found is None or found.dead_letter_topic_id != walk.group.dead_letter_topic_id:
            raise errors.UnknownGroup("the group was deleted", group=walk.group.name)
        try:
            candidates = self._look(walk)
        except errors.CorruptFile as error:
            self._serving.fail(error)
            raise
        if candidates is None:
            return _NOTHING
        if not walk.wanted.needs_metas:
            return candidates if walk.wanted.is_everything else _NOTHING
        matches = np.zeros(len(candidates.positions), np.bool_)
        for ordinal, meta_len in enumerate(candidates.units["meta_len"].tolist()):
            if candidates.is_bad[ordinal]:
                continue  # unknown: the page says so
            check = walk.wanted.begin_check(bytes(candidates.blobs[ordinal][:meta_len]))
            while (is_match := check.step(_LONG_WORK)) is None:
                await walk.rest()
            matches[ordinal] = is_match
        return _chosen(candidates, matches | candidates.is_bad)

    def _look(self, walk: "_Walk") -> _Found | None:
        """Those of the next entries that may be meant, read if need be; the walk moves on."""
        queue = self._shard.views.queues.get(walk.group_queue.topic_queue)
        window = self._shard.views.acks.find(*walk.group_queue) or _UNTOUCHED
        low = max(walk.at, queue.start_position)
        first, end = next(window.unresolved(low, walk.end), (walk.end, walk.end))
        end = min(end, first + STEP_ENTRIES)
        if first >= end:
            walk.at = walk.end
            return None
        positions = np.arange(first, end, dtype=np.int64)
        units = queue.pick(positions)
        chosen = np.ones(len(units), np.bool_)
        if walk.topic_id is not None:
            chosen &= units["origin_topic"] == walk.topic_id
        if walk.query.ids is not None:
            sequences = [one.sequence for one in walk.query.ids]
            chosen &= np.isin(units["sequence"], np.array(sequences, np.uint64))
            named = [one in walk.query.ids for one in self._ids(pick(units, chosen))]
            chosen[np.flatnonzero(chosen)[~np.array(named, np.bool_)]] = False
        walk.at = end
        positions, units = positions[chosen], pick(units, chosen)
        if walk.reads and len(units):
            sizes = (units["body_len"].astype(np.int64) + units["meta_len"]).cumsum()
            most = min(STEP_READS, int(sizes.searchsorted(STEP_BYTES, "right")))
            most = max(1, most)
            if most < len(units):
                walk.at = int(positions[most])
                positions, units = positions[:most], units[:most]
        walk.scanned_count += int(walk.at - first)
        if not (walk.reads and len(units)):
            return _Found(positions, units, [], np.zeros(len(units), np.bool_))
        walk.read_count += len(units)
        blobs, bad = self._shard.bodies.read(units)
        is_bad = np.zeros(len(units), np.bool_)
        is_bad[[one.ordinal for one in bad]] = True
        return _Found(positions, units, blobs, is_bad)

    # -- what is shown ----------------------------------------------------------------------------

    def _ids(self, units: Units) -> Iterator[MessageId]:
        """With the due times that were asked for: units of retries have later ones."""
        views, sequences = self._shard.views, np.ascontiguousarray(units["sequence"])
        dues_ms = views.sequences.read_many(sequences)[0].tolist()
        epochs = views.epochs_of(sequences).tolist()
        for epoch, sequence, due_ms in zip(epochs, sequences.tolist(), dues_ms, strict=True):
            yield MessageId(self._shard.shard_id, epoch, sequence, due_ms)

    def _infos(
        self, walk: "_Walk", found: _Found, *, with_bodies: bool
    ) -> Iterator[DeadLetterMessage]:
        catalog = self._shard.views.catalog
        for ordinal, message_id in enumerate(self._ids(found.units)):
            unit = found.units[ordinal]
            topic = catalog.find_topic_by_id(TopicId(int(unit["origin_topic"])))
            attempts, meta_len = max(1, int(unit["attempt"])), int(unit["meta_len"])
            is_bad = bool(found.is_bad[ordinal])
            blob = b"" if is_bad else found.blobs[ordinal]
            rejected = self._rejections.find(
                walk.group.group_id, SequenceNumber(int(unit["sequence"]))
            )
            meta = bytes(blob[:meta_len])
            of_reason = b"" if rejected else meta
            yield DeadLetterMessage(
                message_id=message_id,
                topic="" if topic is None else topic.name,
                last_due_ms=int(unit["due_ms"]),
                attempts=attempts,
                reason=reason_of(self._shard.views, walk.group, unit, of_reason),
                body_bytes=int(unit["body_len"]),
                meta=meta,
                body=bytes(blob[meta_len:]) if with_bodies else b"",
                is_corrupt=is_bad,
                rejected_because=rejected,
            )


@dataclass(slots=True)
class _Walk:
    """How far a page has come through a group's dead letters."""

    group: Group
    group_queue: GroupQueue
    query: DeadLetterQuery
    topic_id: TopicId | None
    """That they were published to; None: any."""
    wanted: BlockFilter
    share: LoopShare
    at: int
    end: int
    """Behind the last one that there was when the first page was asked for."""
    reads: bool
    """Whether messages are read: to be checked, or to be shown."""
    begun_at: int
    scanned_count: int = 0
    read_count: int = 0

    @property
    def is_done(self) -> bool:
        """Nothing is left."""
        return self.at >= self.end

    @property
    def is_spent(self) -> bool:
        """Whether a page had its share: another one goes on."""
        return self.at - self.begun_at >= PAGE_ENTRIES_MAX or self.read_count >= PAGE_READS_MAX

    async def rest(self) -> None:
        """Other calls have their turns."""
        await self.share.rest()

    def token(self) -> bytes:
        """For the next page; empty: there is none."""
        if self.is_done:
            return b""
        return _TOKEN.pack(self.group_queue.topic_queue, self.at, self.end)


def _chosen(found: _Found, chosen: NDArray[np.bool_]) -> _Found:
    return _Found(
        found.positions[chosen],
        pick(found.units, chosen),
        [found.blobs[one] for one in np.flatnonzero(chosen).tolist()] if found.blobs else [],
        found.is_bad[chosen],
    )


def _parse(token: bytes, letters: int) -> tuple[int, int]:
    """[at, end) of a page. Raises InvalidArgument."""
    try:
        topic_queue, at, end = _TOKEN.unpack(token)
    except StructError:
        raise errors.InvalidArgument("no page token", field="page_token") from None
    if topic_queue != letters or at > end:
        raise errors.InvalidArgument("a page token of another question", field="page_token")
    return at, end
