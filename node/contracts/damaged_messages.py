"""Messages that a node cannot read, as they pass between the engine and the API."""

from dataclasses import dataclass

from hourwheel.formats.message_id import MessageId


@dataclass(frozen=True, slots=True)
class DamagedInfo:
    """A message that a group should get, and that this node cannot read."""

    message_id: MessageId
    group: str
    topic: str
    """That it was published to."""
    stands_in: str
    """The same, or the topic of the group's retries or dead letters."""
    due_ms: int
    attempt: int
    body_bytes: int
    place: str
    """Where its bytes are, and what is wrong with them."""
    found_ms: int
    tries: int
    """How often good bytes were looked for since, in vain."""


@dataclass(frozen=True, slots=True)
class DamagedPage:
    """A page of them, in the order in which they were found."""

    messages: list[DamagedInfo]
    next_token: bytes = b""
    """Empty: this was the last page."""
