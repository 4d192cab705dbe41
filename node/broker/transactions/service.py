"""Transactions: prepared, committed, rolled back, listed. Check-backs: check_back_service.py.

A commit reads the PREPARE record again and appends its messages as a batch of their own. One end of
a transaction is under way at a time, and only where the views say that it is open: what decides,
all the same, is the order of the log.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.formats.batch_columns import requested_by
from hourwheel.formats.committed_batch import of_transaction
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import PREPARE_ROW, TRANSACT_ROW, RecordBatch, build_publish
from hourwheel.formats.transaction_id import TransactionId
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import Prepared
from hourwheel.outcomes import TransactionState
from hourwheel.types import DUE_MS_MAX, FIRST_OFFSET, Offset
from node.broker.priorities import check_room, place_batch
from node.broker.publish_service import PublishService, check_instants, queues_of_many
from node.broker.transactions.defaults import TransactionDefaults
from node.broker.transactions.read_budget import READING_BYTES_MAX, ReadBudget
from node.broker.transactions.withheld import Withheld
from node.catalog.name_expiry import NameExpiry
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.contracts.transactions import (
    EndedTransaction,
    KnownTransaction,
    PreparedPart,
    PreparedTransaction,
    Preparing,
    TransactionPage,
)
from node.repair.record_mender import RecordMender
from node.shard.deduplication import transaction_decided
from node.shard.transaction_apply import Prepare
from node.shard.views import TRANSACTION_LEVEL, check_requested
from storage.views.catalog_items import Topic
from storage.views.transactions import Transaction

_READ_HERE_BYTES: Final = 256 * 1024
"""A larger PREPARE is read by another thread."""
_WALKED_MAX: Final = 2_000
"""Rows that a page looks at."""
_TOKEN_BYTES: Final = 9
_OPEN: Final = b"o"
_DECIDED: Final = b"d"


class TransactionService:
    """See the top of this file. Of one mastership."""

    def __init__(
        self,
        serving: Serving,
        publishing: PublishService,
        catalog_service: CatalogService,
        expiry: NameExpiry,
        defaults: TransactionDefaults,
        mender: RecordMender,
    ) -> None:
        """Commits are published by way of `publishing`; `mender` repairs what cannot be read."""
        self._serving, self._publishing = serving, publishing
        self._catalog_service, self._expiry, self._defaults = catalog_service, expiry, defaults
        self._mastership, self._shard = serving.mastership, serving.mastership.shard
        self._ending: dict[Offset, asyncio.Future[None]] = {}
        """Offset of a transaction that is being ended -> done when it is."""
        self._preparing_bytes = 0
        self.withheld = Withheld(mender)
        self.reading = ReadBudget(READING_BYTES_MAX)

    @property
    def is_committing(self) -> bool:
        """Whether commits are taken now."""
        return self._publishing.is_admitting

    @property
    def is_paused(self) -> bool:
        """Whether dispatching is paused, as after a restore that holds everything."""
        return self._shard.views.catalog.is_dispatch_paused

    # -- prepare ----------------------------------------------------------------------------------

    async def prepare(self, preparing: Preparing) -> PreparedTransaction:
        """See TransactionPort."""
        for part in preparing.parts:
            await self._catalog_service.settle_topic(part.topic)
        self._publishing.admit()
        self._check_level()
        requested = [requested_by(part.metas) for part in preparing.parts]
        for each in requested:
            check_requested(self._shard.views, each)
        now_ms = self._serving.now_ms()
        for part in preparing.parts:
            check_instants(list(part.due_ms), now_ms, self._publishing.horizon_ms)
        known = self._shard.views.transactions.find_token(preparing.token)
        if known is not None:
            return PreparedTransaction(self.id_of(known), is_duplicate=True)
        prepared = self._record_of(preparing)
        blob = prepared.SerializeToString(deterministic=True)
        self._check_room(len(blob))
        topics = [
            self._catalog_service.topic_to_publish(part.topic, now_ms=now_ms)
            for part in preparing.parts
        ]
        check_room(topic for topic, each in zip(topics, requested, strict=True) if each.priority)
        rows = np.zeros(len(topics), PREPARE_ROW)
        rows["token_high"] = int.from_bytes(preparing.token[:8], "big")
        rows["token_low"] = int.from_bytes(preparing.token[8:], "big")
        rows["topic_id"] = [topic.topic_id for topic in topics]
        rows["message_count"] = [len(part.due_ms) for part in preparing.parts]
        with self._using(topics), self._holding(len(blob)):
            future: asyncio.Future[Prepare] = self._serving.propose(
                lambda _, who: self._mastership.prepare(rows, blob, now_ms, who), now_ms
            )
            await self._publishing.wait_until_near()
            found = await future
        one = self._shard.views.transactions.find(found.offset)
        if one is None:  # decided and forgotten meanwhile: among thousands of others
            raise errors.UnknownTransaction
        self._serving.stats.transactions_prepared += not found.is_duplicate
        return PreparedTransaction(self.id_of(one), found.is_duplicate)

    def _record_of(self, preparing: Preparing) -> Prepared:
        parts, defaults = preparing.parts, self._defaults
        return Prepared(
            producer_group=preparing.producer_group,
            check_interval_ms=preparing.check_interval_ms or defaults.check_interval_ms,
            checks_max=preparing.checks_max or defaults.checks_max,
            age_max_ms=preparing.age_ms_max or defaults.age_ms_max,
            batch=_batch_of(parts, self._gene_spec(parts)),
            delays_ms=preparing.delays_ms,
        )

    def _gene_spec(self, parts: Sequence[PreparedPart]) -> int:
        """Of which specification the genes are, where all messages have one topic; else 0."""
        return self._catalog_service.gene_spec(parts[0].topic).number if len(parts) == 1 else 0

    def _check_level(self) -> None:
        level = self._shard.views.feature_level
        if level < TRANSACTION_LEVEL:
            raise errors.FeatureLevelTooLow(
                "there are transactions when all nodes are of a version that knows them",
                level=level,
                level_min=TRANSACTION_LEVEL,
            )

    def _check_room(self, size_bytes: int) -> None:
        found = self._shard.views.transactions
        bytes_max, count_max = limits.TRANSACTIONS_OPEN_BYTES_MAX, limits.TRANSACTIONS_OPEN_MAX
        in_all = found.open_bytes + self._preparing_bytes + size_bytes
        if found.open_count >= count_max or in_all > bytes_max:
            raise errors.TooManyTransactions(
                f"{found.open_count} transactions with {found.open_bytes} bytes are open; at most"
                f" {count_max} with {bytes_max} bytes may be",
                count=found.open_count,
                count_max=count_max,
                bytes_max=bytes_max,
            )

    @contextmanager
    def _holding(self, size_bytes: int) -> Iterator[None]:
        self._preparing_bytes += size_bytes
        try:
            yield
        finally:
            self._preparing_bytes -= size_bytes

    @contextmanager
    def _using(self, topics: Sequence[Topic]) -> Iterator[None]:
        with ExitStack() as uses:
            for topic in topics:
                uses.enter_context(self._expiry.publishing(topic, self._serving.now_ms))
            yield

    # -- end --------------------------------------------------------------------------------------

    async def end(
        self, transaction_id: TransactionId, topics: Sequence[str], *, is_commit: bool
    ) -> EndedTransaction:
        """See TransactionPort."""
        self._serving.check()
        one = self._find_to_end(transaction_id, topics, is_commit=is_commit)
        was_open = one.is_open
        while one.is_open:
            other = self._ending.get(one.offset)
            if other is not None:
                was_open = False
                await asyncio.shield(other)
                self._serving.check()
            elif is_commit:
                with self._ending_it(one.offset):
                    async with self.reading.holding(one.size_bytes):
                        self._serving.check()
                        await self._commit(one)
            else:
                with self._ending_it(one.offset):
                    done = await self.step([one.offset], Step.ROLL_BACK)
                    self._serving.stats.transactions_rolled_back += int(done.sum())
            one = self._find_to_end(transaction_id, topics, is_commit=is_commit)
        if is_commit != (one.state == TransactionState.COMMITTED):
            raise transaction_decided(one)
        return EndedTransaction(one.state, self._messages_of(one), not was_open)

    def _find_to_end(
        self, of: TransactionId, topics: Sequence[str], *, is_commit: bool
    ) -> Transaction:
        """As `find`; who rolls back names those of its topics that were not deleted."""
        if is_commit or not topics:
            return self.find(of, topics)
        one = self.find(of, ())
        catalog = self._shard.views.catalog
        left = {found.name for found in map(catalog.find_topic_by_id, one.topic_ids) if found}
        return one if left.issubset(topics) else self.find(of, topics)

    def is_ending(self, offset: Offset) -> bool:
        """Whether a commit or rollback of this transaction is on its way into the log."""
        return offset in self._ending

    @contextmanager
    def _ending_it(self, offset: Offset) -> Iterator[None]:
        self._ending[offset] = done = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._ending[offset]
            done.set_result(None)

    async def expire(self, offsets: Sequence[Offset]) -> None:
        """Roll back those that are not being ended: their outcome was not reported in time."""
        with ExitStack() as ending:
            over = [offset for offset in offsets if offset not in self._ending]
            for offset in over:
                ending.enter_context(self._ending_it(offset))
            if over:
                done = await self.step(over, Step.EXPIRE)
                self._serving.stats.transactions_expired += int(done.sum())

    async def step(self, offsets: Sequence[Offset], step: Step) -> NDArray[np.bool_]:
        """Append a row of TRANSACT for each of these; which of them have changed something."""
        rows = np.zeros(len(offsets), TRANSACT_ROW)
        rows["prepare_offset"], rows["step"] = offsets, step
        future: asyncio.Future[NDArray[np.bool_]] = self._serving.propose(
            lambda now_ms, who: self._mastership.transact(rows, now_ms, who)
        )
        return await future

    async def _commit(self, one: Transaction) -> None:
        self._publishing.admit()
        _, prepared, counts = await self.read(one)
        self._serving.check()
        topics = self._topics_of(one)
        batch = of_transaction(prepared.batch, one.offset)
        now_ms = self._serving.now_ms()
        due_ms = batch.due_ms
        if prepared.delays_ms:
            delays = np.array(prepared.delays_ms, np.int64)
            due_ms = np.where(delays < 0, due_ms, np.minimum(now_ms + delays, DUE_MS_MAX))
        queues = queues_of_many(topics, counts, batch.key_hash, self._mastership.next_sequence)
        queues = place_batch(batch, queues, topics)
        with self._using(topics):
            published = await self._publishing.propose_batch(batch, due_ms, queues, now_ms)
        if not published.duplicate:
            self._serving.stats.published += published.count
            self._serving.stats.transactions_committed += 1

    def _topics_of(self, one: Transaction) -> list[Topic]:
        found = []
        for topic_id in one.topic_ids:
            topic = self._shard.views.catalog.find_topic_by_id(topic_id)
            if topic is None or self._catalog_service.is_deleting(topic.topic_id):
                raise errors.UnknownTopic(
                    "a topic of the transaction was deleted: it can only be rolled back"
                )
            found.append(topic)
        return found

    async def read(self, one: Transaction) -> tuple[RecordBatch, Prepared, list[int]]:
        """The PREPARE record, what is in it, and how many messages each topic has.

        Raises:
            Unavailable: it is damaged here, and is being repaired where a replica has its bytes.
        """
        log = self._shard.log
        try:
            if one.size_bytes > _READ_HERE_BYTES:
                batch = await asyncio.to_thread(log.read_batch, one.offset)
            else:
                batch = log.read_batch(one.offset)
        except (errors.CorruptLog, errors.DiskFailed, FileNotFoundError) as error:
            self.withheld.note(one.offset, error)
            raise errors.Unavailable(
                f"the messages of the transaction are damaged on this node: {error}",
                offset=one.offset,
            ) from None
        prepared = Prepared.FromString(bytes(batch.blobs))
        return batch, prepared, batch.rows["message_count"].tolist()

    # -- questions --------------------------------------------------------------------------------

    def find(self, of: TransactionId, topics: Sequence[str]) -> Transaction:
        """One that has no other topics than these. Raises UnknownTransaction."""
        views = self._shard.views
        one = views.transactions.find(of.offset) if of.shard == self._shard.shard_id else None
        if one is None or one.epoch != of.epoch or not self._is_within(one, topics):
            is_past = of.shard == self._shard.shard_id
            is_past &= of.offset <= views.transactions.forgotten_offset
            why = "; it may have been decided long ago" if is_past else ""
            raise errors.UnknownTransaction(f"no such transaction is known{why}")
        return one

    def _is_within(self, one: Transaction, topics: Sequence[str]) -> bool:
        if not topics:
            return True
        found = map(self._shard.views.catalog.find_topic, topics)
        return {topic.topic_id for topic in found if topic} >= set(one.topic_ids)

    def _messages_of(self, one: Transaction) -> list[tuple[str, int]]:
        """(Id, due_ms) of each message of one that is committed."""
        if one.state != TransactionState.COMMITTED:
            return []
        count, base = one.message_count, one.base_sequence
        numbers = np.arange(count, dtype=np.uint64) + np.uint64(base)
        due_ms = self._shard.views.sequences.read_many(numbers)[0].tolist()
        shard, epoch = self._shard.shard_id, one.published_epoch
        return [
            (str(MessageId(shard, epoch, sequence, due)), due)
            for sequence, due in zip(numbers.tolist(), due_ms, strict=True)
        ]

    def describe(self, of: TransactionId) -> tuple[KnownTransaction, list[tuple[str, int]]]:
        """See TransactionPort."""
        self._serving.check()
        one = self.find(of, ())
        return self._named(one), self._messages_of(one)

    def list(
        self, producer_group: str, token: bytes, count_max: int, *, open_only: bool
    ) -> TransactionPage:
        """See TransactionPort."""
        self._serving.check()
        view = self._shard.views.transactions
        found: list[KnownTransaction] = []
        phase, after = _read_token(token)
        offsets = view.offsets_after(after, is_open=phase == _OPEN)
        walked = offsets[:_WALKED_MAX]
        last = after
        for last in walked:
            one = view.find(last)
            if one is not None and producer_group in ("", one.producer_group):
                found.append(self._named(one))
                if len(found) == count_max:
                    break
        next_token = b""
        if walked and last != offsets[-1]:
            next_token = phase + last.to_bytes(8, "big")
        elif phase == _OPEN and not open_only and view.decided_count:
            next_token = _DECIDED + bytes(8)
        return TransactionPage(found, next_token, view.open_count)

    def id_of(self, one: Transaction) -> TransactionId:
        """What it is called."""
        return TransactionId(self._shard.shard_id, one.epoch, one.offset)

    def names_of(self, one: Transaction) -> "tuple[str, ...]":
        """The names of its topics; empty for those that were deleted."""
        found = map(self._shard.views.catalog.find_topic_by_id, one.topic_ids)
        return tuple("" if topic is None else topic.name for topic in found)

    def _named(self, one: Transaction) -> KnownTransaction:
        return KnownTransaction(
            transaction_id=self.id_of(one),
            state=one.state,
            producer_group=one.producer_group,
            topics=self.names_of(one),
            message_count=one.message_count,
            size_bytes=one.size_bytes,
            prepared_ms=one.prepared_ms,
            check_interval_ms=one.check_interval_ms,
            checks_max=one.checks_max,
            age_ms_max=one.age_max_ms,
            checks=one.checks,
            checked_ms=one.checked_ms,
            decided_ms=one.decided_ms,
        )


def _batch_of(parts: Sequence[PreparedPart], gene_spec: int) -> bytes:
    """The messages as an unstamped PUBLISH batch."""
    due_ms = [due for part in parts for due in part.due_ms]
    metas = [meta for part in parts for meta in part.metas]
    genes = [gene for part in parts for gene in part.tag_genes]
    hashes = [key_hash for part in parts for key_hash in part.key_hashes]
    return build_publish(
        due_ms,
        [body for part in parts for body in part.bodies],
        metas=metas if any(metas) else None,
        tag_genes=genes if any(genes) and gene_spec else None,
        key_hashes=hashes if any(hashes) else None,
        gene_spec=gene_spec,
    )


def _read_token(token: bytes) -> tuple[bytes, Offset]:
    if not token:
        return _OPEN, FIRST_OFFSET
    if len(token) != _TOKEN_BYTES or token[:1] not in (_OPEN, _DECIDED):
        raise errors.InvalidArgument("no page token of this call", field="page_token")
    return token[:1], Offset(int.from_bytes(token[1:], "big"))
