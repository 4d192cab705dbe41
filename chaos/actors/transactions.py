"""Transactions under load: committed, rolled back, asked for twice, or left to the check-back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from chaos.history import serial_of
from hourwheel import AsyncTransactions, CheckSettings, Message, errors
from hourwheel.client.transactions.words import EndedTransaction
from hourwheel.formats.message_id import MessageId

_CHECKS: Final = CheckSettings(interval_ms=1_000, checks_max=100, age_ms_max=3_600_000)
_AGAIN_S: Final = 0.2
_WAIT_MS: Final = 2_000
_FATES: Final = 5

T = TypeVar("T")


class TransactionClient:
    """Ends the transactions that it prepares, by itself or when it is asked.

    What becomes of one follows from how many were before it: so few of them have all fates.
    """

    def __init__(
        self,
        client: AsyncTransactions,
        topic: str,
        accept: Callable[[list[int], list[MessageId]], None],
        fail: Callable[[list[int], errors.HourwheelError], None],
        contradictions: list[str],
    ) -> None:
        """`accept` and `fail` hear what became of messages.

        `contradictions` gets the transactions that were answered with two outcomes.
        """
        self._client, self._topic = client, topic
        self._accept, self._fail = accept, fail
        self._numbers: dict[int, int] = {}
        """First serial of a transaction -> how many were before it."""
        self._in_hand: set[int] = set()
        """First serials of transactions that it ends by itself."""
        self._left: dict[int, list[int]] = {}
        """First serial -> all serials, of those that wait for the check-back."""
        self._ended: set[int] = set()
        """First serials of those that have an outcome: a check-back may come late."""
        self._contradictions = contradictions

    async def run(self, serials: list[int], messages: Sequence[Message]) -> None:
        """Prepare these, and end them; or leave that to the check-back."""
        first, number = serials[0], len(self._numbers)
        self._numbers[first] = number
        self._in_hand.add(first)
        try:
            one = await self._client.prepare({self._topic: messages}, checks=_CHECKS)
            if number % _FATES == 0:
                self._left[first] = serials
            else:
                await self._end(one.transaction_id, serials, is_commit=number % _FATES > 1)
        except errors.HourwheelError as error:  # where it is prepared, it is asked about
            self._fail(serials, error)
        finally:
            self._in_hand.discard(first)

    async def answer(self) -> None:
        """Answer check-backs, for ever."""
        while True:
            found = await until_answered(
                lambda: self._client.poll_checks([self._topic], wait_ms=_WAIT_MS)
            )
            for check in found:
                body = check.messages[self._topic][0].body
                first = serial_of(body)
                if first is None or first in self._in_hand or first in self._ended:
                    continue
                serials = self._left.pop(first, None)
                if serials is None:  # the prepare's answer was lost: it is not waited for
                    forget = partial(self._client.roll_back, check.transaction_id, [self._topic])
                    await until_answered(forget)
                else:
                    await self._end(
                        check.transaction_id, serials, is_commit=self._numbers[first] % 2 == 0
                    )

    async def _end(self, of: str, serials: list[int], *, is_commit: bool) -> None:
        """End it, and ask for the other outcome as well."""
        topics = [self._topic]
        ends = (self._client.commit, self._client.roll_back)
        end, other = ends if is_commit else ends[::-1]
        ended: EndedTransaction = await until_answered(lambda: end(of, topics))
        self._ended.add(serials[0])
        if is_commit:
            self._accept(serials, list(ended.message_ids))
        else:
            self._fail(serials, errors.TransactionDecided())
        try:
            second = await until_answered(lambda: other(of, topics))
        except errors.TransactionDecided:
            return
        self._contradictions.append(f"{of}: {ended.state.name} and {second.state.name}")


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Ask again while nodes are away, slow or full. Raises what else they say."""
    while True:
        try:
            return await call()
        except (errors.Unavailable, errors.Timeout, errors.ResourceExhausted):
            await asyncio.sleep(_AGAIN_S)
