"""What became of a message: a page of its history, as the engine gives it to the API."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.outcomes import EventKind, MessageState


class MessageEvent(NamedTuple):
    """One event; names are empty where there are none, or where they were deleted since."""

    kind: EventKind
    at_ms: int
    """When its record was appended, by the cluster clock; 0: not known any more."""
    group: str = ""
    attempt: int = 0
    due_ms: int = 0
    topic: str = ""
    producer_id: int = 0
    priority: int = 0


@dataclass(slots=True)
class HistoryPage:
    """Some of the events of a message, in the order in which they happened."""

    events: list[MessageEvent] = field(default_factory=list)
    next_token: bytes = b""
    """Empty: this was the last page."""
    is_complete: bool = True
    """Nothing had to be left out so far; False where the log no longer has the message's publish,
    or too much happened to it to be followed."""


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """What is known of one message."""

    state: MessageState
    due_ms: int
    is_damaged: bool = False
    """This node has found its bytes damaged, and has no good ones so far."""
