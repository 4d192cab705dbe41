"""Transactions for programs without asyncio: `AsyncTransactions`, blocking."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.transactions.client import (
    PASSES,
    AsyncTransactions,
    CheckSettings,
    Messages,
)
from hourwheel.client.transactions.words import (
    CheckedTransaction,
    EndedTransaction,
    RollBack,
    TransactionDescription,
)
from hourwheel.formats.message_id import MessageId
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.transport.endpoints import Servers


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is prepared: see `AsyncTransaction`."""

    transaction_id: str
    topics: tuple[str, ...]
    _owner: "Transactions"

    def commit(self) -> EndedTransaction:
        """Publish its messages."""
        return self._owner.commit(self.transaction_id, self.topics)

    def roll_back(self) -> EndedTransaction:
        """Forget its messages."""
        return self._owner.roll_back(self.transaction_id, self.topics)


class Transactions:
    """Publishes messages together with a commit of your own, or never.

    with Transactions("127.0.0.1:7400", group="orders-service") as transactions:
        with transactions.begin({"orders": Message(b"...", delay_ms=1_800_000)}):
            ...  # your own work, up to its commit; `raise RollBack` rolls back

    All methods may be called from any thread.
    """

    def __init__(self, server: Servers = SERVER_DEFAULT, **settings: Any) -> None:
        """`settings`: see `AsyncTransactions`."""
        self._twin = AsyncTransactions(server, **settings)
        self._thread = LoopThread(self._twin.close)
        weakref.finalize(self, self._thread.abandon).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See `AsyncTransactions.close`."""
        self._thread.finish(self._twin.close())

    def prepare(
        self,
        messages: Messages,
        *,
        delays_from_prepare: bool = False,
        checks: CheckSettings | None = None,
    ) -> Transaction:
        """See `AsyncTransactions.prepare`."""
        one = self._thread.run(
            self._twin.prepare(messages, delays_from_prepare=delays_from_prepare, checks=checks)
        )
        return Transaction(one.transaction_id, one.topics, self)

    @contextmanager
    def begin(
        self,
        messages: Messages,
        *,
        delays_from_prepare: bool = False,
        checks: CheckSettings | None = None,
    ) -> Iterator[Transaction]:
        """See `AsyncTransactions.begin`."""
        one = self.prepare(messages, delays_from_prepare=delays_from_prepare, checks=checks)
        try:
            yield one
        except RollBack:
            with suppress(*PASSES):  # the check-back does it
                one.roll_back()
        else:
            one.commit()

    def commit(self, transaction_id: str, topics: Sequence[str] = ()) -> EndedTransaction:
        """See `AsyncTransactions.commit`."""
        return self._thread.run(self._twin.commit(transaction_id, topics))

    def roll_back(self, transaction_id: str, topics: Sequence[str] = ()) -> EndedTransaction:
        """See `AsyncTransactions.roll_back`."""
        return self._thread.run(self._twin.roll_back(transaction_id, topics))

    def poll_checks(self, topics: Sequence[str], **how: int) -> list[CheckedTransaction]:
        """See `AsyncTransactions.poll_checks`."""
        return self._thread.run(self._twin.poll_checks(topics, **how))

    def answer_checks(
        self,
        topics: Sequence[str],
        decide: Callable[[CheckedTransaction], bool | None],
        is_over: threading.Event,
    ) -> None:
        """See `AsyncTransactions.answer_checks`; until `is_over` is set, which is seen in time.

        `decide` is called in a thread of its own.
        """

        async def in_thread(one: CheckedTransaction) -> bool | None:
            return await asyncio.to_thread(decide, one)

        async def until_over() -> None:
            answering = asyncio.ensure_future(self._twin.answer_checks(topics, in_thread))
            over = asyncio.ensure_future(asyncio.to_thread(is_over.wait))
            await asyncio.wait([answering, over], return_when=asyncio.FIRST_COMPLETED)
            is_over.set()
            if answering.done():
                answering.result()
            answering.cancel()

        self._thread.run(until_over())

    def list(self, *, group: str = "", open_only: bool = False) -> list[TransactionDescription]:
        """See `AsyncTransactions.list`."""

        async def collect() -> "list[TransactionDescription]":
            return [one async for one in self._twin.list(group=group, open_only=open_only)]

        return self._thread.run(collect())

    def describe(self, transaction_id: str) -> tuple[TransactionDescription, tuple[MessageId, ...]]:
        """See `AsyncTransactions.describe`."""
        return self._thread.run(self._twin.describe(transaction_id))
