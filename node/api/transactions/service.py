"""TransactionService: messages that are prepared, then published or not; and check-backs."""

import asyncio
from functools import partial
from typing import Final

import numpy as np

from hourwheel import errors, limits
from hourwheel.formats.expiry_field import EXPIRES_BYTES, expires_field, pack_expires
from hourwheel.formats.transaction_id import TransactionId
from hourwheel.v1 import transaction_pb2 as wire
from hourwheel.v1.broker_pb2 import OutgoingMessage
from node.access.control import AccessControl
from node.access.permissions import RULES
from node.api.admission import Admission
from node.api.calls import CallContext
from node.api.checks import check_at_least, check_at_most, check_topic
from node.api.producer import PUBLISH_COUNT_MAX, Producer
from node.api.quota_gate import QuotaGate
from node.contracts.broker import EnginePort
from node.contracts.transactions import (
    Check,
    KnownTransaction,
    PreparedPart,
    PreparedTransaction,
    Preparing,
)
from storage.views.transactions import TOKEN_BYTES

CHECK_INTERVAL_MS_MIN: Final = 1_000
_CHECKS_DEFAULT: Final = 16
_CHECKS_MAX: Final = 100
_PAGE_SIZE_DEFAULT: Final = 100
_BUILT_AT_ONCE: Final = 200
_ANSWER_MARGIN_S: Final = 0.5
_POLL_RULE: Final = RULES["hourwheel.v1.TransactionService.PollChecks"]


class Transactions:
    """The service's methods."""

    def __init__(
        self,
        engine: EnginePort,
        producer: Producer,
        admission: Admission,
        access: AccessControl,
        quotas: QuotaGate,
    ) -> None:
        """Messages are read by `producer`; `admission` counts what waits."""
        self._engine, self._producer = engine, producer
        self._admission, self._access, self._quotas = admission, access, quotas

    async def prepare(
        self, request: wire.PrepareRequest, _context: CallContext
    ) -> wire.PrepareResponse:
        """Accept messages that are not visible before the commit, all of them or none."""
        preparing = self._read(request)
        if self._quotas.is_on:
            done = await self._prepare_within_quota(preparing)
        else:
            done = await self._engine.transactions.prepare(preparing)
        return wire.PrepareResponse(
            transaction_id=str(done.transaction_id), duplicate=done.is_duplicate
        )

    async def _prepare_within_quota(self, preparing: Preparing) -> PreparedTransaction:
        parts = preparing.parts
        size = sum(sum(map(len, part.bodies)) + sum(map(len, part.metas)) for part in parts)
        due_ms = [due for part in parts for due in part.due_ms]
        with self._quotas.publishing(len(due_ms), size, partial(np.array, due_ms, np.int64)):
            return await self._engine.transactions.prepare(preparing)

    def _read(self, request: wire.PrepareRequest) -> Preparing:
        _check_group(request.producer_group)
        if len(request.token) != TOKEN_BYTES:
            raise errors.InvalidArgument(f"a token has {TOKEN_BYTES} bytes", field="token")
        _check_settings(request)
        names = [part.topic for part in request.parts]
        if not 0 < len(names) <= limits.TRANSACTION_TOPICS_MAX or len(set(names)) < len(names):
            raise errors.InvalidArgument(
                f"a transaction has 1 to {limits.TRANSACTION_TOPICS_MAX} topics, each once",
                field="parts",
            )
        counts = [len(part.messages) for part in request.parts]
        if not min(counts) or sum(counts) > PUBLISH_COUNT_MAX:
            raise errors.TooManyItems(
                f"{sum(counts)} messages; 1 to {PUBLISH_COUNT_MAX} are allowed, and each topic"
                " has one",
                count=sum(counts),
                count_max=PUBLISH_COUNT_MAX,
            )
        parts: list[PreparedPart] = []
        for part in request.parts:
            check_topic(part.topic)
            if any(one.dedup_key or one.if_pending for one in part.messages):
                raise errors.InvalidArgument("messages of a transaction have no dedup keys")
            one = self._producer.read(part.topic, part.messages)
            metas = one.metas
            if request.delays_from_prepare:
                metas = list(map(_expiring_from_now, part.messages, one.due_ms, metas))
            parts.append(
                PreparedPart(
                    one.topic, one.due_ms, one.bodies, metas, one.tag_genes, one.key_hashes
                )
            )
        self._producer.check_size(
            sum(sum(map(len, one.bodies)) + sum(map(len, one.metas)) for one in parts)
        )
        return Preparing(
            producer_group=request.producer_group,
            parts=parts,
            delays_ms=[] if request.delays_from_prepare else _delays_of(request),
            token=request.token,
            check_interval_ms=request.check_interval_ms,
            checks_max=request.checks_max,
            age_ms_max=request.age_ms_max,
        )

    async def end_transaction(
        self, request: wire.EndTransactionRequest, _context: CallContext
    ) -> wire.EndTransactionResponse:
        """Commit or roll back."""
        of = TransactionId.parse(request.transaction_id)
        check_at_most("topics", len(request.topics), limits.BATCH_TOPIC_COUNT_MAX)
        ended = await self._engine.transactions.end_transaction(
            of, request.topics, is_commit=request.commit
        )
        response = wire.EndTransactionResponse(
            state=wire.TransactionState.Name(ended.state), duplicate=ended.is_duplicate
        )
        for message_id, due_ms in ended.messages:
            response.messages.add(message_id=message_id, due_ms=due_ms)
        return response

    async def poll_checks(
        self, request: wire.PollChecksRequest, context: CallContext
    ) -> wire.PollChecksResponse:
        """Wait for transactions that are to be asked about."""
        _check_group(request.producer_group)
        check_at_least("topics", len(request.topics), 1)
        check_at_most("topics", len(request.topics), limits.BATCH_TOPIC_COUNT_MAX)
        check_at_most("wait_ms", request.wait_ms, limits.RECEIVE_WAIT_MS_MAX)
        check_at_most("max_checks", request.max_checks, _CHECKS_MAX)
        found: list[Check] = []
        self._admission.begin_poll()
        try:
            waiting = self._access.until_revoked(_POLL_RULE, request)
            with self._admission.until_drain(), waiting:
                found = await self._engine.transactions.poll_checks(
                    request.producer_group,
                    list(request.topics),
                    request.max_checks or _CHECKS_DEFAULT,
                    _wait_ms(request, context),
                )
        finally:
            self._admission.end_poll()
        return wire.PollChecksResponse(checks=map(_check_to_wire, found))

    async def list_transactions(
        self, request: wire.ListTransactionsRequest, _context: CallContext
    ) -> wire.ListTransactionsResponse:
        """A page of transactions."""
        count = request.page_size or _PAGE_SIZE_DEFAULT
        check_at_most("page_size", count, limits.TRANSACTIONS_PAGE_SIZE_MAX)
        page = self._engine.transactions.list_transactions(
            request.producer_group, request.page_token, count, open_only=request.open_only
        )
        response = wire.ListTransactionsResponse(
            next_page_token=page.next_token, open_count=page.open_count
        )
        for ordinal, one in enumerate(page.transactions, 1):
            response.transactions.append(_info_to_wire(one))
            if not ordinal % _BUILT_AT_ONCE:
                await asyncio.sleep(0)
        return response

    async def get_transaction(
        self, request: wire.GetTransactionRequest, _context: CallContext
    ) -> wire.GetTransactionResponse:
        """One of them, and its messages where it is committed."""
        of = TransactionId.parse(request.transaction_id)
        one, messages = self._engine.transactions.get_transaction(of)
        response = wire.GetTransactionResponse(transaction=_info_to_wire(one))
        for message_id, due_ms in messages:
            response.messages.add(message_id=message_id, due_ms=due_ms)
        return response


def _check_group(name: str) -> None:
    if not 0 < len(name.encode()) <= limits.PRODUCER_GROUP_BYTES_MAX:
        raise errors.InvalidArgument(
            f"a producer group has 1 to {limits.PRODUCER_GROUP_BYTES_MAX} bytes",
            field="producer_group",
            bytes_max=limits.PRODUCER_GROUP_BYTES_MAX,
        )


def _check_settings(request: wire.PrepareRequest) -> None:
    interval_ms = request.check_interval_ms
    if interval_ms:
        check_at_least("check_interval_ms", interval_ms, CHECK_INTERVAL_MS_MIN)
    check_at_most("check_interval_ms", interval_ms, limits.TRANSACTION_CHECK_INTERVAL_MS_MAX)
    check_at_most("checks_max", request.checks_max, limits.TRANSACTION_CHECKS_MAX)
    if request.age_ms_max:
        check_at_least("age_ms_max", request.age_ms_max, CHECK_INTERVAL_MS_MIN)
    check_at_most("age_ms_max", request.age_ms_max, limits.TRANSACTION_AGE_MS_MAX)


def _expiring_from_now(message: OutgoingMessage, due_ms: int, meta: bytes) -> bytes:
    """Metadata whose length of time after which the message expires has become an instant.

    It counts from when the delay does, which is the prepare; else it would from the commit.
    """
    expires_ms = expires_field(meta)
    if expires_ms >= 0 or message.HasField("due_ms"):
        return meta
    return pack_expires(due_ms - message.delay_ms - expires_ms) + meta[EXPIRES_BYTES:]


def _delays_of(request: wire.PrepareRequest) -> list[int]:
    """Of each message its delay, or -1; empty where none has one."""
    found = [
        message.delay_ms if message.HasField("delay_ms") else -1
        for part in request.parts
        for message in part.messages
    ]
    return found if max(found) >= 0 else []


def _wait_ms(request: wire.PollChecksRequest, context: CallContext) -> int:
    """As asked, but so that the answer arrives before the call's deadline."""
    remaining_s = context.time_remaining()
    if remaining_s is None:
        return request.wait_ms
    return max(0, min(request.wait_ms, int((remaining_s - _ANSWER_MARGIN_S) * 1_000)))


def _check_to_wire(check: Check) -> wire.TransactionCheck:
    found = wire.TransactionCheck(
        transaction_id=str(check.transaction_id),
        prepared_ms=check.prepared_ms,
        number=check.number,
        checks_max=check.checks_max,
    )
    batch, at = check.batch, 0
    due_ms, metas_len, bodies_len = (
        column.tolist() for column in (batch.due_ms, batch.meta_len, batch.body_len)
    )
    blobs, ordinal = batch.blobs, 0
    for topic, count in check.topics:
        part = found.parts.add(topic=topic)
        for _ in range(count):
            middle = at + metas_len[ordinal]
            end = middle + bodies_len[ordinal]
            message = part.messages.add(body=bytes(blobs[middle:end]))
            if middle > at:
                message.meta.ParseFromString(bytes(blobs[at:middle]))
            if check.delays_ms and check.delays_ms[ordinal] >= 0:
                message.delay_ms = check.delays_ms[ordinal]
            else:
                message.due_ms = due_ms[ordinal]
            at, ordinal = end, ordinal + 1
    return found


def _info_to_wire(one: KnownTransaction) -> wire.TransactionInfo:
    return wire.TransactionInfo(
        transaction_id=str(one.transaction_id),
        state=wire.TransactionState.Name(one.state),
        producer_group=one.producer_group,
        topics=one.topics,
        message_count=one.message_count,
        prepared_ms=one.prepared_ms,
        checks=one.checks,
        checks_max=one.checks_max,
        checked_ms=one.checked_ms,
        check_interval_ms=one.check_interval_ms,
        age_ms_max=one.age_ms_max,
        decided_ms=one.decided_ms,
        size_bytes=one.size_bytes,
    )
