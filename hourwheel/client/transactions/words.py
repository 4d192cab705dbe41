"""What programs get to know of transactions."""

from dataclasses import dataclass

from hourwheel.client.message import Message
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import TransactionState


class RollBack(Exception):
    """Raised inside of `begin`: your own work is not done, and the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """How a transaction has ended."""

    state: TransactionState
    """COMMITTED; or ROLLED_BACK, or EXPIRED: its outcome was not reported in time."""
    message_ids: tuple[MessageId, ...] = ()
    """Of a commit: topic by topic, in the order of the prepare."""


@dataclass(frozen=True, slots=True)
class CheckedTransaction:
    """A transaction whose outcome the cluster asks for."""

    transaction_id: str
    messages: dict[str, list[Message]]
    """Topic -> its messages. Their keys and properties say which work of yours they belong to."""
    prepared_ms: int
    """When it was prepared, epoch milliseconds."""
    number: int
    """Which check this is: 1 for the first."""
    checks_max: int
    """After so many it is rolled back."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What is known of a transaction."""

    transaction_id: str
    state: TransactionState
    group: str
    """Of the producers that are asked."""
    topics: tuple[str, ...]
    """Empty names are of topics that were deleted."""
    message_count: int
    size_bytes: int
    """In the log."""
    prepared_ms: int
    check_interval_ms: int
    checks_max: int
    age_ms_max: int
    checks: int
    """How often its producers were asked."""
    checked_ms: int | None
    """When they were asked last."""
    decided_ms: int | None
