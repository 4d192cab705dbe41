"""Transactions for asyncio: prepare, commit, roll back; and the answers to check-backs."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from hourwheel import errors
from hourwheel.client.message import Message
from hourwheel.client.transactions.wire import check_from_wire, info_from_wire, parts_to_wire
from hourwheel.client.transactions.words import (
    CheckedTransaction,
    EndedTransaction,
    RollBack,
    TransactionDescription,
)
from hourwheel.formats.message_id import MessageId, parse
from hourwheel.limits import RECEIVE_WAIT_MS_MAX, TRANSACTIONS_PAGE_SIZE_MAX
from hourwheel.outcomes import TransactionState
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import CALL_TIMEOUT_MS, SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.transport.methods import (
    END_TRANSACTION,
    GET_TRANSACTION,
    LIST_TRANSACTIONS,
    POLL_CHECKS,
    PREPARE,
)
from hourwheel.v1 import transaction_pb2 as wire

Messages: TypeAlias = Mapping[str, Sequence[Message] | Message]
"""Topic -> what is for it."""
Decide: TypeAlias = Callable[[CheckedTransaction], Awaitable[bool | None]]
"""What became of a transaction: True: commit it; False: roll it back; None: not known yet."""
WAIT_MS: Final = 20_000
REST_MS: Final = 1_000.0
PASSES: Final = (
    errors.Unavailable,
    errors.Timeout,
    errors.ResourceExhausted,
    errors.NotFound,
    errors.TransactionDecided,
    errors.DataLoss,
    errors.Internal,
)
"""What ends no answering: another node, or a later time, or somebody else does it."""


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """When the cluster asks what became of a transaction; 0: as the nodes are configured."""

    interval_ms: int = 0
    """So long after the prepare, and again so long after each time; 1,000 at least."""
    checks_max: int = 0
    """After so many times, and an interval more, it is rolled back."""
    age_ms_max: int = 0
    """So long after the prepare it is rolled back, whether anybody could be asked or not."""


@dataclass(frozen=True, slots=True)
class AsyncTransaction:
    """A transaction that is prepared: durable, and not visible."""

    transaction_id: str
    """For your own books: with it anybody of the program may end it, now or after a restart."""
    topics: tuple[str, ...]
    _owner: "AsyncTransactions"

    async def commit(self) -> EndedTransaction:
        """Publish its messages; see `AsyncTransactions.commit`."""
        return await self._owner.commit(self.transaction_id, self.topics)

    async def roll_back(self) -> EndedTransaction:
        """Forget its messages; see `AsyncTransactions.roll_back`."""
        return await self._owner.roll_back(self.transaction_id, self.topics)


class AsyncTransactions:
    """Publishes messages together with a commit of your own, or never.

        async with AsyncTransactions("127.0.0.1:7400", group="orders-service") as transactions:
            async with transactions.begin({"orders": Message(b"...", delay_ms=1_800_000)}):
                ...  # your own work, up to its commit; `raise RollBack` rolls back

    Where your program ends in between, the cluster asks another process of the `group`: see
    `answer_checks`. Belongs to one event loop.
    """

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        group: str,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """Prepare a client; it connects when it is first used.

        Args:
            server: see `Channel`; or a channel to be shared (and closed) by the caller.
            group: which programs are asked what became of a transaction: those that know the same
                database. 1 to 127 bytes; it need not exist.
            tls: see `Channel`.
            token: see `Channel`.
            user: see `Channel`.
        """
        self._owns_channel = not isinstance(server, Channel)
        self._channel = (
            server
            if isinstance(server, Channel)
            else Channel(server, tls=tls, token=token, user=user)
        )
        self._group = group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. What is prepared stays so."""
        if self._owns_channel:
            await self._channel.close()

    # -- prepare and end --------------------------------------------------------------------------

    async def prepare(
        self,
        messages: Messages,
        *,
        delays_from_prepare: bool = False,
        checks: CheckSettings | None = None,
    ) -> AsyncTransaction:
        """Store messages durably that are not visible before the commit.

        Args:
            messages: topic -> its messages; up to 16 topics, 1,000 messages.
            delays_from_prepare: delays, and times after which messages expire, count from now, and
                not from the commit.
            checks: when the cluster asks; None: as the nodes are configured.

        Raises:
            InvalidArgument: a message or a topic cannot be accepted as it is.
            TooManyTransactions: as many are open as the cluster takes.
            HourwheelError: nothing was prepared; or it is, and is rolled back as no client ends it.
        """
        settings = checks or CheckSettings()
        request = wire.PrepareRequest(
            producer_group=self._group,
            parts=parts_to_wire(messages),
            token=secrets.token_bytes(16),
            delays_from_prepare=delays_from_prepare,
            check_interval_ms=settings.interval_ms,
            checks_max=settings.checks_max,
            age_ms_max=settings.age_ms_max,
        )
        answer = await self._channel.call(PREPARE, request)
        return AsyncTransaction(answer.transaction_id, tuple(messages), self)

    @asynccontextmanager
    async def begin(
        self,
        messages: Messages,
        *,
        delays_from_prepare: bool = False,
        checks: CheckSettings | None = None,
    ) -> AsyncIterator[AsyncTransaction]:
        """Prepare; commit at the end of the block; roll back where that raises `RollBack`.

        `RollBack` ends here. Whatever else the block raises leaves the transaction open, for your
        own commit may have been done all the same; and a commit of the transaction that fails
        raises, and does not mean that nothing is published. In both cases the cluster asks what
        became of it, and `answer_checks` tells it. Do your own commit inside the block, as its
        last step.
        """
        one = await self.prepare(messages, delays_from_prepare=delays_from_prepare, checks=checks)
        try:
            yield one
        except RollBack:
            with suppress(*PASSES):  # the check-back does it
                await one.roll_back()
        else:
            await one.commit()

    async def commit(self, transaction_id: str, topics: Sequence[str] = ()) -> EndedTransaction:
        """Publish the messages of a transaction. Again: the same answer.

        Args:
            transaction_id: which.
            topics: its topics; none: the permission to publish to all topics is needed.

        Raises:
            TransactionDecided: it was rolled back: `params["state"]` says how.
            UnknownTransaction: there is none, or it was decided long ago.
            HourwheelError: the outcome is not known; calling again is safe.
        """
        return await self._end(transaction_id, topics, is_commit=True)

    async def roll_back(self, transaction_id: str, topics: Sequence[str] = ()) -> EndedTransaction:
        """Its messages are never published. Again: the same answer. Raises as `commit`."""
        return await self._end(transaction_id, topics, is_commit=False)

    async def _end(
        self, transaction_id: str, topics: Sequence[str], *, is_commit: bool
    ) -> EndedTransaction:
        request = wire.EndTransactionRequest(
            transaction_id=transaction_id, topics=topics, commit=is_commit
        )
        answer = await self._channel.call(END_TRANSACTION, request)
        ids = tuple(parse(one.message_id) for one in answer.messages)
        return EndedTransaction(TransactionState(answer.state), ids)

    # -- check-backs ------------------------------------------------------------------------------

    async def poll_checks(
        self, topics: Sequence[str], *, wait_ms: int = WAIT_MS, count_max: int = 16
    ) -> list[CheckedTransaction]:
        """Transactions of the group that the cluster asks about; waits for the first.

        Only those that have no other topics than these. Answer with `commit` or `roll_back`; who
        does not know says nothing.
        """
        wait_ms = min(wait_ms, RECEIVE_WAIT_MS_MAX)
        request = wire.PollChecksRequest(
            producer_group=self._group, topics=topics, wait_ms=wait_ms, max_checks=count_max
        )
        answer = await self._channel.call(
            POLL_CHECKS, request, timeout_ms=wait_ms + CALL_TIMEOUT_MS
        )
        return [check_from_wire(one) for one in answer.checks]

    async def answer_checks(self, topics: Sequence[str], decide: Decide) -> None:
        """Answer check-backs until the task is cancelled, through any failover.

        Args:
            topics: as in `poll_checks`.
            decide: looks into your own database. What it raises is raised here, and the cluster
                asks again.

        Raises:
            PermissionDenied, Unauthenticated: it may not ask, or not answer.
            InvalidArgument: no such group or topics can be.
        """
        while True:
            try:
                found = await self.poll_checks(topics)
            except PASSES:
                await asyncio.sleep(REST_MS / 1_000)
                continue
            for one in found:
                outcome = await decide(one)
                if outcome is not None:
                    await self._answer(one, is_commit=outcome)

    async def _answer(self, one: CheckedTransaction, *, is_commit: bool) -> None:
        topics = tuple(one.messages)
        with suppress(*PASSES):  # somebody else was first, or the cluster asks again
            await self._end(one.transaction_id, topics, is_commit=is_commit)

    # -- for operators ----------------------------------------------------------------------------

    async def list(
        self, *, group: str = "", open_only: bool = False
    ) -> AsyncIterator[TransactionDescription]:
        """Those that are open, oldest first; then those that were decided last.

        Args:
            group: of one group; "": of all.
            open_only: leave out the others.
        """
        token = b""
        while True:
            request = wire.ListTransactionsRequest(
                producer_group=group,
                open_only=open_only,
                page_size=TRANSACTIONS_PAGE_SIZE_MAX,
                page_token=token,
            )
            answer = await self._channel.call(LIST_TRANSACTIONS, request)
            for one in answer.transactions:
                yield info_from_wire(one)
            token = answer.next_page_token
            if not token:
                return

    async def describe(
        self, transaction_id: str
    ) -> tuple[TransactionDescription, tuple[MessageId, ...]]:
        """One of them, and the ids of its messages where it is committed.

        Raises:
            UnknownTransaction: as `commit`.
        """
        request = wire.GetTransactionRequest(transaction_id=transaction_id)
        answer = await self._channel.call(GET_TRANSACTION, request)
        ids = tuple(parse(one.message_id) for one in answer.messages)
        return info_from_wire(answer.transaction), ids
