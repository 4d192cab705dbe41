"""Messages that a request names by id, and of which topics they are."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.formats import message_id

May: TypeAlias = Callable[[str], bool]
"""Whether a caller may, on a topic."""


class MessageTopics(NamedTuple):
    """Of n messages."""

    names: list[str]
    """Of topics that there are."""
    ordinals: NDArray[np.int64]
    """int64[n]: which of `names` is that of each; -1: there is no such message, or none any more
    whose topic is known."""

    def are_allowed(self, may: May) -> NDArray[np.bool_]:
        """bool[n]: of which there is a topic, and `may` says yes to it."""
        allowed: NDArray[np.bool_] = np.array([*map(may, self.names), False])[self.ordinals]
        return allowed


class TopicsPort(Protocol):
    """A part of `node.contracts.broker.EnginePort`."""

    async def topics_of(self, ids: NDArray[np.void], may: May) -> MessageTopics:
        """Of which topics n messages are.

        Args:
            ids: array[n] of ID_DTYPE.
            may: whether the caller may know of a message of this topic. What is done for one of
                another topic, wherever that message is, is what is done for an id of none.

        Raises:
            NotMaster, ShuttingDown: see `EnginePort`.
            Overloaded: too many such look-ups wait.
        """
        ...


def ids_of(request: Any) -> NDArray[np.void]:
    """array[n] of ID_DTYPE: the ids that a cancel or reschedule names.

    Raises:
        InvalidMessageId, InvalidArgument, TooManyItems: they are none, or more than allowed.
    """
    texts, packed = request.message_ids, request.packed_message_ids
    if texts and packed:
        raise errors.InvalidArgument("message_ids and packed_message_ids exclude each other")
    check_count(len(texts) or len(packed) // message_id.ID_BYTES, "message ids")
    return message_id.parse_many(texts) if texts else message_id.unpack_many(packed)


def check_count(count: int, what: str) -> None:
    """Raises TooManyItems where one call names too many."""
    if count > limits.CANCEL_COUNT_MAX:
        raise errors.TooManyItems(
            f"{count} {what}; at most {limits.CANCEL_COUNT_MAX} are allowed",
            count=count,
            count_max=limits.CANCEL_COUNT_MAX,
        )
