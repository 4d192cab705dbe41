"""Calls about transactions, passed on to the current mastership."""

from collections.abc import Callable, Sequence

from hourwheel.formats.transaction_id import TransactionId
from node.broker.master_service import MasterService
from node.contracts.transactions import (
    Check,
    EndedTransaction,
    KnownTransaction,
    PreparedTransaction,
    Preparing,
    TransactionPage,
)


class TransactionGate:
    """Is a `TransactionPort`."""

    def __init__(self, master: Callable[[], MasterService]) -> None:
        """`master` raises ShuttingDown or NotMaster where there is none here."""
        self._master = master

    async def prepare(self, preparing: Preparing) -> PreparedTransaction:
        """See TransactionPort."""
        master = self._master()
        return await master.answer(master.transactions.prepare(preparing))

    async def end_transaction(
        self, transaction_id: TransactionId, topics: Sequence[str], *, is_commit: bool
    ) -> EndedTransaction:
        """See TransactionPort."""
        master = self._master()
        return await master.answer(
            master.transactions.end(transaction_id, topics, is_commit=is_commit)
        )

    async def poll_checks(
        self, producer_group: str, topics: Sequence[str], count_max: int, wait_ms: int
    ) -> list[Check]:
        """See TransactionPort."""
        master = self._master()
        return await master.answer(
            master.check_back_service.poll(producer_group, topics, count_max, wait_ms)
        )

    def list_transactions(
        self, producer_group: str, token: bytes, count_max: int, *, open_only: bool
    ) -> TransactionPage:
        """See TransactionPort."""
        service = self._master().transactions
        return service.list(producer_group, token, count_max, open_only=open_only)

    def get_transaction(
        self, transaction_id: TransactionId
    ) -> tuple[KnownTransaction, list[tuple[str, int]]]:
        """See TransactionPort."""
        return self._master().transactions.describe(transaction_id)
