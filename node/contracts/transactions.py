"""The engine's calls about transactions, as the API makes them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.transaction_id import TransactionId
from hourwheel.outcomes import TransactionState


class PreparedPart(NamedTuple):
    """Messages for one topic: as `node.contracts.broker.IncomingMessages`."""

    topic: str
    due_ms: Sequence[int]
    bodies: Sequence[bytes]
    metas: Sequence[bytes]
    tag_genes: Sequence[int]
    key_hashes: Sequence[int]


class Preparing(NamedTuple):
    """A Prepare, checked against every limit but the horizon's."""

    producer_group: str
    parts: Sequence[PreparedPart]
    """A topic each."""
    delays_ms: Sequence[int]
    """Of each message of all parts the delay that counts from the commit, or -1; empty: none."""
    token: bytes
    check_interval_ms: int = 0
    """This and the next two: 0 for the node's setting."""
    checks_max: int = 0
    age_ms_max: int = 0


class PreparedTransaction(NamedTuple):
    """What became of a Prepare."""

    transaction_id: TransactionId
    is_duplicate: bool


class EndedTransaction(NamedTuple):
    """How a transaction has ended."""

    state: TransactionState
    messages: Sequence[tuple[str, int]]
    """(Id, due_ms) of each message, where it is committed."""
    is_duplicate: bool


class Check(NamedTuple):
    """A transaction whose outcome is asked for."""

    transaction_id: TransactionId
    topics: Sequence[tuple[str, int]]
    """(Name, messages) of each topic, in order."""
    batch: RecordBatch
    """The messages; their due times are instants."""
    delays_ms: Sequence[int]
    """As in `Preparing`."""
    prepared_ms: int
    number: int
    """1 for the first check."""
    checks_max: int


class KnownTransaction(NamedTuple):
    """What is known of a transaction, in words."""

    transaction_id: TransactionId
    state: TransactionState
    producer_group: str
    topics: Sequence[str]
    """Empty names are of topics that were deleted."""
    message_count: int
    size_bytes: int
    prepared_ms: int
    check_interval_ms: int
    checks_max: int
    age_ms_max: int
    checks: int
    checked_ms: int
    decided_ms: int


class TransactionPage(NamedTuple):
    """A page of transactions."""

    transactions: Sequence[KnownTransaction]
    next_token: bytes
    open_count: int


class TransactionPort(Protocol):
    """`EnginePort.transactions`."""

    async def prepare(self, preparing: Preparing) -> PreparedTransaction:
        """Store messages that are not visible before the commit.

        Raises:
            FeatureLevelTooLow: not all nodes know of it. TooManyTransactions. DiskFull.
            As `EnginePort.publish_messages`.
        """
        ...

    async def end_transaction(
        self, transaction_id: TransactionId, topics: Sequence[str], *, is_commit: bool
    ) -> EndedTransaction:
        """Commit or roll back.

        Args:
            transaction_id: which.
            topics: it must have no others; empty: it may have any.
            is_commit: which of the two.

        Raises:
            UnknownTransaction: there is none, or none that the caller may see.
            TransactionDecided: it has the other outcome.
            UnknownTopic: a topic of it was deleted: it cannot be committed.
            DiskFull.
        """
        ...

    async def poll_checks(
        self, producer_group: str, topics: Sequence[str], count_max: int, wait_ms: int
    ) -> list[Check]:
        """Transactions that are to be asked about; waits for the first as long as was asked."""
        ...

    def list_transactions(
        self, producer_group: str, token: bytes, count_max: int, *, open_only: bool
    ) -> TransactionPage:
        """Those that are known, page by page. Raises InvalidArgument for a token that is none."""
        ...

    def get_transaction(
        self, transaction_id: TransactionId
    ) -> tuple[KnownTransaction, list[tuple[str, int]]]:
        """One of them, and its messages where it is committed. Raises UnknownTransaction."""
        ...
