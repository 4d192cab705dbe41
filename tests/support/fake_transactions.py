"""The part of `tests.support.fake_engine.FakeEngine` that has transactions: all in a dict."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.transaction_id import TransactionId
from hourwheel.outcomes import TransactionState
from hourwheel.types import FIRST_SHARD, Epoch, Offset
from node.contracts.transactions import (
    Check,
    EndedTransaction,
    KnownTransaction,
    PreparedTransaction,
    Preparing,
    TransactionPage,
)


@dataclass
class FakeTransactions:
    """A `TransactionPort`."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    prepared: dict[TransactionId, Preparing] = field(default_factory=dict)
    states: dict[TransactionId, TransactionState] = field(default_factory=dict)

    async def prepare(self, preparing: Preparing) -> PreparedTransaction:
        """Keep it."""
        self.calls.append(("prepare", preparing))
        for of, known in self.prepared.items():
            if known.token == preparing.token:
                return PreparedTransaction(of, is_duplicate=True)
        of = TransactionId(FIRST_SHARD, Epoch(3), Offset(8 * len(self.prepared)))
        self.prepared[of], self.states[of] = preparing, TransactionState.OPEN
        return PreparedTransaction(of, is_duplicate=False)

    async def end_transaction(
        self, transaction_id: TransactionId, topics: Sequence[str], *, is_commit: bool
    ) -> EndedTransaction:
        """The first outcome stands."""
        self.calls.append(("end", (transaction_id, list(topics), is_commit)))
        wanted = TransactionState.COMMITTED if is_commit else TransactionState.ROLLED_BACK
        state = self.states.get(transaction_id)
        if state is None:
            raise errors.UnknownTransaction
        if state not in (TransactionState.OPEN, wanted):
            raise errors.TransactionDecided(state=state.name)
        self.states[transaction_id] = wanted
        return EndedTransaction(wanted, self._messages(transaction_id), wanted == state)

    def _messages(self, of: TransactionId) -> list[tuple[str, int]]:
        if self.states[of] != TransactionState.COMMITTED:
            return []
        due_ms = [due for part in self.prepared[of].parts for due in part.due_ms]
        return [(f"{0:08x}{3:08x}{at:016x}{due:016x}", due) for at, due in enumerate(due_ms)]

    async def poll_checks(
        self, producer_group: str, topics: Sequence[str], count_max: int, wait_ms: int
    ) -> list[Check]:
        """All that are open, of this group and these topics."""
        self.calls.append(("poll", (producer_group, list(topics), count_max, wait_ms)))
        return [
            self._check(of, one)
            for of, one in self.prepared.items()
            if self.states[of] == TransactionState.OPEN
            and one.producer_group == producer_group
            and {part.topic for part in one.parts} <= set(topics)
        ][:count_max]

    @staticmethod
    def _check(of: TransactionId, one: Preparing) -> Check:
        parts = one.parts
        raw = build_publish(
            [due for part in parts for due in part.due_ms],
            [body for part in parts for body in part.bodies],
            metas=[meta for part in parts for meta in part.metas],
        )
        counts = [(part.topic, len(part.bodies)) for part in parts]
        return Check(of, counts, RecordBatch(raw), one.delays_ms, 1_000, 1, 15)

    def list_transactions(
        self, producer_group: str, token: bytes, count_max: int, *, open_only: bool
    ) -> TransactionPage:
        """One a page."""
        every = [
            self._known(of)
            for of, one in self.prepared.items()
            if producer_group in ("", one.producer_group)
            and (not open_only or self.states[of] == TransactionState.OPEN)
        ]
        at = int.from_bytes(token, "big")
        next_token = (at + 1).to_bytes(4, "big") if at + 1 < len(every) else b""
        return TransactionPage(every[at : at + min(1, count_max)], next_token, len(every))

    def get_transaction(
        self, transaction_id: TransactionId
    ) -> tuple[KnownTransaction, list[tuple[str, int]]]:
        """One of them."""
        if transaction_id not in self.states:
            raise errors.UnknownTransaction
        return self._known(transaction_id), self._messages(transaction_id)

    def _known(self, of: TransactionId) -> KnownTransaction:
        one, state = self.prepared[of], self.states[of]
        topics = [part.topic for part in one.parts]
        count = sum(len(part.bodies) for part in one.parts)
        settings = (one.check_interval_ms, one.checks_max, one.age_ms_max)
        decided_ms = 0 if state == TransactionState.OPEN else 2_000
        return KnownTransaction(
            *(of, state, one.producer_group, topics, count, 96, 1_000, *settings, 0, 0, decided_ms)
        )
