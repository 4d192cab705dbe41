"""A Receive that goes on: its credits, and what of it has not arrived yet, as both sides know it.

    API      grant, look, cut    the client gives credits; there is room again; nothing more is sent
    engine   is_ready, put       leases what is visible, while there are credits, and pushes it

Credits are absolute: the client says how many messages have arrived, and how many more may come
behind those. So what is on its way counts once, and a client may take credits back.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from hourwheel import errors
from hourwheel.limits import RECEIVE_MESSAGE_COUNT_MAX
from node.contracts.answer_budget import AnswerBudget, HeldAnswer

CREDITS_MAX: Final = RECEIVE_MESSAGE_COUNT_MAX
UNCONFIRMED_MAX: Final = 256
"""Of so many answers is known, per stream, which lease they were: the last ones."""
_RECEIVED_COUNT_MAX: Final = 1 << 62
"""Counts that follow still fit the u64 in which the next master gets them."""

DeliveryT = TypeVar("DeliveryT")
"""Leased messages, as who takes them has them."""


class Piece(NamedTuple):
    """Messages of a lease, neighbours in it: what an answer has."""

    lease_id: int
    first: int = 0
    """Ordinal of the first one."""
    size: int | None = None
    """How many; None: all from there on."""
    was_sent: bool = False
    """It may have left the node before."""


class Unconfirmed(NamedTuple):
    """An answer that may not have arrived."""

    end_count: int
    """Messages of the stream, up to its last one."""
    piece: Piece


def _do_nothing() -> None:
    return


class ReceiveStream:
    """See the top of this file. Belongs to one event loop.

    Invariant: `received_count <= sent_count`, and `unsent` are the last answers that were put.
    """

    def __init__(
        self,
        stream_id: int,
        budget: AnswerBudget,
        has_room: Callable[[], bool] = lambda: True,
        owner: str = "",
    ) -> None:
        """Nothing is sent, and there are no credits.

        Args:
            stream_id: to open it again by; 0: it is not.
            budget: of answers that are not read.
            has_room: whether the client's connection takes more answers now.
            owner: who has opened it, and may open it again.
        """
        self.stream_id, self.owner = stream_id, owner
        self.received_count = self.sent_count = 0
        self._until_count = 0
        self._budget, self._has_room = budget, has_room
        self._held = HeldAnswer(budget)
        self.unconfirmed = deque[Unconfirmed](maxlen=UNCONFIRMED_MAX)
        """Answers that were put, the last ones: the client has not said that they arrived."""
        self.unsent = deque[Piece]()
        """Answers of which no byte has left."""
        self.is_cut = False
        """What is in `unsent` will never be sent: its leases are given back."""
        self.is_given_up = False
        """By the client, which will not open it again."""
        self.on_ready: Callable[[], None] = _do_nothing
        """The engine's: to be called when there are credits, or room, again."""

    # -- the client's side ------------------------------------------------------------------------

    def begin(self, received_count: int, credits_count: int) -> None:
        """The client opens it, and has got so many messages of it, from whichever node.

        Raises:
            InvalidArgument: more credits than there may be, or no client can have got so many.
        """
        _check_credits(credits_count)
        if received_count > _RECEIVED_COUNT_MAX:
            raise errors.InvalidArgument(
                f"received_count is {received_count}; up to {_RECEIVED_COUNT_MAX} are possible",
                field="received_count",
                value=received_count,
                most=_RECEIVED_COUNT_MAX,
            )
        self.received_count = self.sent_count = received_count
        self._until_count = received_count + credits_count

    def look(self) -> None:
        """There may be credits, or room, again; of one that is cut nothing more is sent."""
        if not self.is_cut:
            self.on_ready()

    def cut(self, *, is_given_up: bool = False) -> None:
        """Nothing more is put or sent. `is_given_up`: its client wants no more."""
        self.is_cut = True
        self.is_given_up |= is_given_up

    def grant(self, received_count: int, credits_count: int) -> None:
        """So many have arrived, and so many more may come.

        Raises:
            InvalidArgument: that cannot be.
        """
        _check_credits(credits_count)
        if not self.received_count <= received_count <= self.sent_count:
            raise errors.InvalidArgument(
                f"received_count is {received_count}; {self.sent_count} messages were sent,"
                f" and {self.received_count} had arrived before",
                field="received_count",
            )
        self.received_count = received_count
        self._until_count = received_count + credits_count
        while self.unconfirmed and self.unconfirmed[0].end_count <= received_count:
            self.unconfirmed.popleft()
        self.look()

    def note_sent(self) -> None:
        """The oldest answer of `unsent` may reach the client from now on."""
        self.unsent.popleft()

    # -- the engine's side ------------------------------------------------------------------------

    @property
    def credits_count(self) -> int:
        """How many more messages may be put."""
        return max(0, self._until_count - self.sent_count)

    @property
    def is_ready(self) -> bool:
        """Whether another answer may be put now."""
        return not self.is_cut and self._until_count > self.sent_count and self._has_room()

    def take(self, size_bytes: int) -> None:
        """The next answer has so many bytes: as `HeldAnswer.take`."""
        self._held.take(size_bytes)

    def put(self, piece: Piece, count: int) -> HeldAnswer:
        """An answer is on its way: so many messages. Gives what holds its bytes, to be ended."""
        held, self._held = self._held, HeldAnswer(self._budget)
        self.sent_count += count
        self.unconfirmed.append(Unconfirmed(self.sent_count, piece))
        self.unsent.append(piece)
        return held

    def left(self) -> list[Unconfirmed]:
        """Answers that have not arrived, as far as is known, when it ends."""
        sent_count = len(self.unconfirmed) - (len(self.unsent) if self.is_cut else 0)
        return [
            Unconfirmed(end_count, piece._replace(was_sent=piece.was_sent or at < sent_count))
            for at, (end_count, piece) in enumerate(self.unconfirmed)
        ]

    def lost(self, known: Iterable[Unconfirmed]) -> list[Piece]:
        """What of `known`, of the same stream when it was open before, has not arrived."""
        return [one.piece for one in known if one.end_count > self.received_count]


class Push(NamedTuple, Generic[DeliveryT]):
    """A receive stream, and where its answers go."""

    stream: ReceiveStream
    send: Callable[[DeliveryT, HeldAnswer], None]
    """Takes one, and what holds its bytes."""


def _check_credits(count: int) -> None:
    if count > CREDITS_MAX:
        raise errors.InvalidArgument(
            f"credits are {count}; up to {CREDITS_MAX} are allowed",
            field="credits",
            value=count,
            most=CREDITS_MAX,
        )
