"""Dead letters as they pass between the engine and the API."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import DeadLetterReason


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """A message as a group's dead letter."""

    group: str
    topic: str
    """Which it was published to; empty if that was deleted since."""
    attempts: int
    """Deliveries to the group."""
    reason: DeadLetterReason


@dataclass(frozen=True, slots=True)
class DeadLettersInfo:
    """Where a message is a dead letter."""

    letters: Sequence[DeadLetterInfo] = ()
    """One for each group, by name."""
    is_complete: bool = True
    """All was looked at: where nothing was found, there is nothing."""


@dataclass(frozen=True, slots=True)
class DeadLetterQuery:
    """Which of a group's dead letters are meant."""

    group: str
    topic: str = ""
    """That they were published to; empty: any."""
    filter: FilterExpression | None = None
    """None: everything."""
    ids: frozenset[MessageId] | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A dead letter, and where it came from."""

    message_id: MessageId
    """With the due time that was asked for."""
    topic: str
    """That it was published to; empty if that was deleted since."""
    last_due_ms: int
    """When its last delivery was due."""
    attempts: int
    reason: DeadLetterReason
    body_bytes: int
    meta: bytes = b""
    body: bytes = b""
    """Empty where it was not asked for."""
    is_corrupt: bool = False
    rejected_because: str = ""
    """Why a consumer rejected it, as far as the master remembers."""


@dataclass(slots=True)
class DeadLettersPage:
    """A page of them, in the order in which they became dead letters."""

    messages: list[DeadLetterMessage] = field(default_factory=list)
    scanned_count: int = 0
    next_token: bytes = b""
    """Empty: this was the last page."""


@dataclass(slots=True)
class RedrivenPage:
    """What became of a page of them."""

    redriven_count: int = 0
    unsubscribed_count: int = 0
    """Left alone: the group does not read the topic that they came from."""
    corrupt_count: int = 0
    """Left alone: a filter cannot be checked."""
    scanned_count: int = 0
    next_token: bytes = b""
    """Empty: done."""
