"""A receive stream as one call of a session: what the API pushes into it, and what its client sets.

engine --push--> StreamCall --bytes--> outlet (node/api/session.py) --frame--> client
^______________ credits, given up ______________|
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from hourwheel.v1.consumer_pb2 import ReceiveResponse
from hourwheel.v1.session_pb2 import ReceiveStreamRequest, SessionAnswer
from node.access.control import CALLER
from node.access.permissions import RULES
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from node.contracts.receive_stream import ReceiveStream

RECEIVE_RULE: Final = RULES["hourwheel.v1.ConsumerService.Receive"]
_RECEIVE: Final = SessionAnswer.DESCRIPTOR.fields_by_name["receive"].number
_RECEIVE_TAG: Final = bytes([_RECEIVE << 3 | 2])
_VARINT_MASK: Final = 0x7F
_VARINT_MORE: Final = 0x80


class Outlet(Protocol):
    """Where answers go: the session."""

    @property
    def has_room(self) -> bool:
        """Whether the client reads what it is sent, as far as is known."""
        ...

    def push(self, raw: bytes, held: HeldAnswer, call: "StreamCall") -> None:
        """Write an answer of a stream, in its turn."""
        ...

    def drop(self, streams: Collection["StreamCall"]) -> None:
        """Nothing more of these streams is written."""
        ...


class StreamCall:
    """The context of one stream: see `CallContext`."""

    size_bytes = 0
    """It takes none while it is open."""
    is_waiting = True
    """It may take its time."""

    def __init__(
        self,
        call_id: int,
        request: ReceiveStreamRequest,
        outlet: Outlet,
        peer: Callable[[], str],
    ) -> None:
        """`request.receive` is the business of who serves it."""
        self._outlet, self.peer = outlet, peer
        self._head = SessionAnswer(call_id=call_id).SerializeToString() + _RECEIVE_TAG
        """What each answer begins with."""
        self._opening = request.stream_id, request.received_count, request.credits
        self.reads = RECEIVE_RULE.resources(request.receive)
        """What its caller must be allowed to read, for each answer."""
        self._stream: ReceiveStream | None = None
        self.is_ending = False
        """It is answered as one that has come to its end, whatever ends it."""

    def time_remaining(self) -> float | None:
        """As long as it takes."""
        return None

    def add_done_callback(self, callback: Callable[..., None]) -> None:
        """Each answer has what holds it: no callback is left to be called."""

    def end(self) -> None:
        """Likewise."""

    def open(self, budget: AnswerBudget) -> ReceiveStream:
        """As its client wants it. Raises `InvalidArgument`."""
        stream_id, received_count, credits_count = self._opening
        owner = CALLER.get().name
        stream = ReceiveStream(stream_id, budget, lambda: self._outlet.has_room, owner)
        stream.begin(received_count, credits_count)
        self._stream = stream
        return stream

    def push(self, answer: ReceiveResponse, held: HeldAnswer) -> None:
        """One answer of many."""
        body = answer.SerializeToString()  # once: a SessionAnswer would copy it first
        self._outlet.push(b"".join((self._head, varint(len(body)), body)), held, self)

    def revoke(self) -> None:
        """Its caller may not have any more of it: what waits to be written is not, either."""
        self._outlet.drop([self])

    # -- of the session ---------------------------------------------------------------------------

    def grant(self, received_count: int, credits_count: int) -> None:
        """The client sets credits. Raises `InvalidArgument`: they make no sense."""
        if self._stream is None:  # it is being opened
            self._opening = self._opening[0], received_count, credits_count
        else:
            self._stream.grant(received_count, credits_count)

    def look(self) -> None:
        """There is room again."""
        if self._stream is not None:
            self._stream.look()

    def note_sent(self) -> None:
        """Its oldest answer is being written."""
        if self._stream is not None:
            self._stream.note_sent()

    def cut(self, *, is_given_up: bool = False) -> None:
        """Nothing more is sent of it. `is_given_up`: its client wants no more, and knows that."""
        self.is_ending |= is_given_up
        if self._stream is not None:
            self._stream.cut(is_given_up=is_given_up)


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    found = bytearray()
    while number > _VARINT_MASK:
        found.append(number & _VARINT_MASK | _VARINT_MORE)
        number >>= 7
    found.append(number)
    return bytes(found)
