"""Where drafts wait until enough of one kind are there for a batch, or until they waited enough.

Pure: time comes in as `now_ms`. A *kind* is a topic together with "delays" or "instants", since a
batch has one topic and one flag for its times. Drafts of a kind leave in the order they came; of
several kinds that may leave, the one that has waited longest goes first.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hourwheel.client.batch_builder import Draft

Token = TypeVar("Token")


class Piece(NamedTuple, Generic[Token]):
    """A draft and what its owner wants to have back with the answer."""

    draft: Draft
    token: Token
    added_ms: float


@dataclass(slots=True)
class _Waiting(Generic[Token]):
    """Drafts of one kind. Invariant: count and bytes are the sums over `pieces`."""

    topic: str
    pieces: deque[Piece[Token]]
    count: int = 0
    batch_bytes: int = 0


class Accumulator(Generic[Token]):
    """Collects drafts into batches of up to `messages_max` messages and about `bytes_max` bytes."""

    def __init__(self, *, messages_max: int, bytes_max: int, linger_ms: float) -> None:
        """`linger_ms`: how long a draft waits for others to fill its batch; 0: not at all."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._kinds: dict[tuple[str, bool], _Waiting[Token]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._kinds)

    def add(self, topic: str, draft: Draft, token: Token, now_ms: float) -> None:
        """Take a draft in, which by itself must be within the limits (`batch_builder.cut`)."""
        kind = (topic, draft.is_relative)
        waiting = self._kinds.get(kind)
        if waiting is None:
            waiting = self._kinds[kind] = _Waiting(topic, deque())
        waiting.pieces.append(Piece(draft, token, now_ms))
        waiting.count += draft.count
        waiting.batch_bytes += draft.batch_bytes

    def take(
        self, now_ms: float, *, is_flushing: bool = False
    ) -> tuple[str, list[Piece[Token]]] | None:
        """The topic and the drafts of the next batch, if there is one to be sent now.

        Args:
            now_ms: now.
            is_flushing: nothing needs to wait any longer.
        """
        ready = [
            (kind, waiting)
            for kind, waiting in self._kinds.items()
            if is_flushing or self._is_ready(waiting, now_ms)
        ]
        if not ready:
            return None
        kind, waiting = min(ready, key=lambda item: item[1].pieces[0].added_ms)
        taken, count, batch_bytes = [waiting.pieces.popleft()], 0, 0
        while True:
            count += taken[-1].draft.count
            batch_bytes += taken[-1].draft.batch_bytes
            if not waiting.pieces:
                del self._kinds[kind]
                break
            following = waiting.pieces[0].draft
            if (
                count + following.count > self._messages_max
                or batch_bytes + following.batch_bytes > self._bytes_max
            ):
                break
            taken.append(waiting.pieces.popleft())
        waiting.count -= count
        waiting.batch_bytes -= batch_bytes
        return waiting.topic, taken

    def find_next_wakeup_ms(self) -> float | None:
        """When `take` may next have something, if nothing is added; None: nothing waits."""
        if not self._kinds:
            return None
        return self._linger_ms + min(waiting.pieces[0].added_ms for waiting in self._kinds.values())

    def take_all(self) -> list[Piece[Token]]:
        """All that waits, to be given up."""
        left = [piece for waiting in self._kinds.values() for piece in waiting.pieces]
        self._kinds.clear()
        return left

    def _is_ready(self, waiting: _Waiting[Token], now_ms: float) -> bool:
        return (
            waiting.count >= self._messages_max
            or waiting.batch_bytes >= self._bytes_max
            or now_ms - waiting.pieces[0].added_ms >= self._linger_ms
        )
