"""Where drafts wait until enough are there for a batch, or until they waited enough.

Pure: time comes in as `now_ms`. A *kind* is a topic together with "delays" or "instants" and with
or without dedup keys (`Draft.form`). A batch has one form, and one topic, or several where the node
takes that (`Joining`). Drafts
of a kind leave in the order they came; of several kinds that may leave, the one that has waited
longest goes first, and takes others along in the order of their waiting.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from hourwheel.client.batch_builder import FORMS, Draft, Form

Token = TypeVar("Token")


class Piece(NamedTuple, Generic[Token]):
    """A draft and what its owner wants to have back with the answer."""

    topic: str
    draft: Draft
    token: Token
    added_ms: float


class Joining(NamedTuple):
    """Which topics may share a batch."""

    topic_count_max: int
    """So many, at most."""
    lane_of: Callable[[str], Hashable]
    """Topics of the same lane may; None: this one goes by itself."""


ALONE: Final = Joining(1, lambda _: None)
"""Each batch has one topic."""


@dataclass(slots=True)
class _Waiting(Generic[Token]):
    """Drafts of one kind. Invariant: count and bytes are the sums over `pieces`."""

    topic: str
    pieces: deque[Piece[Token]]
    count: int = 0
    batch_bytes: int = 0


@dataclass(slots=True)
class _Taken(Generic[Token]):
    """A batch that is being filled. Invariant: count and bytes are the sums over `pieces`."""

    pieces: list[Piece[Token]]
    count: int = 0
    batch_bytes: int = 0


class Accumulator(Generic[Token]):
    """Collects drafts into batches of up to `messages_max` messages and about `bytes_max` bytes.

    Invariant: `_count[f]` and `_batch_bytes[f]` are the sums over the kinds of form f.
    """

    def __init__(self, *, messages_max: int, bytes_max: int, linger_ms: float) -> None:
        """`linger_ms`: how long a draft waits for others to fill its batch; 0: not at all."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._kinds: dict[tuple[str, Form], _Waiting[Token]] = {}
        self._count = dict.fromkeys(FORMS, 0)
        self._batch_bytes = dict.fromkeys(FORMS, 0)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._kinds)

    def add(self, topic: str, draft: Draft, token: Token, now_ms: float) -> None:
        """Take a draft in, which by itself must be within the limits (`batch_builder.cut`)."""
        kind = (topic, draft.form)
        waiting = self._kinds.get(kind)
        if waiting is None:
            waiting = self._kinds[kind] = _Waiting(topic, deque())
        waiting.pieces.append(Piece(topic, draft, token, now_ms))
        self._change(waiting, draft.count, draft.batch_bytes, form=draft.form)

    def take(
        self, now_ms: float, joining: Joining = ALONE, *, is_flushing: bool = False
    ) -> list[Piece[Token]] | None:
        """The drafts of the next batch, those of a topic together, if one is to be sent now.

        Args:
            now_ms: now.
            joining: which topics it may have.
            is_flushing: nothing needs to wait any longer.
        """
        is_shared = joining.topic_count_max > 1
        ready = [
            (waiting.pieces[0].added_ms, kind)
            for kind, waiting in self._kinds.items()
            if is_flushing or self._is_ready(kind, waiting, now_ms, is_shared=is_shared)
        ]
        if not ready:
            return None
        _, first = min(ready, key=lambda item: item[0])
        taken: _Taken[Token] = _Taken([])
        is_all_taken = self._take_from(first, taken)
        lane = joining.lane_of(first[0]) if is_shared and is_all_taken else None
        if lane is not None:
            self._join(lane, joining, taken, form=first[1])
        return taken.pieces

    def _join(self, lane: Hashable, joining: Joining, taken: _Taken[Token], *, form: Form) -> None:
        """Fill the batch up with other kinds of the lane, those that wait longest first."""
        others = [
            (waiting.pieces[0].added_ms, kind)
            for kind, waiting in self._kinds.items()
            if kind[1] == form
        ]
        others.sort(key=lambda item: item[0])
        topic_count = 1
        for _, kind in others:
            if topic_count == joining.topic_count_max:
                return
            if joining.lane_of(kind[0]) == lane:
                if not self._take_from(kind, taken):
                    return
                topic_count += 1

    def _take_from(self, kind: tuple[str, Form], taken: _Taken[Token]) -> bool:
        """Move drafts of a kind into the batch, while there is room. Whether that was all of it."""
        waiting = self._kinds[kind]
        pieces, count, batch_bytes = waiting.pieces, taken.count, taken.batch_bytes
        while pieces:
            draft = pieces[0].draft
            if taken.pieces and (
                taken.count + draft.count > self._messages_max
                or taken.batch_bytes + draft.batch_bytes > self._bytes_max
            ):
                break
            taken.pieces.append(pieces.popleft())
            taken.count += draft.count
            taken.batch_bytes += draft.batch_bytes
        self._change(
            waiting,
            count - taken.count,
            batch_bytes - taken.batch_bytes,
            form=kind[1],
        )
        if not pieces:
            del self._kinds[kind]
        return not pieces

    def find_next_wakeup_ms(self) -> float | None:
        """When `take` may next have something, if nothing is added; None: nothing waits."""
        if not self._kinds:
            return None
        return self._linger_ms + min(waiting.pieces[0].added_ms for waiting in self._kinds.values())

    def take_all(self) -> list[Piece[Token]]:
        """All that waits, to be given up."""
        left = [piece for waiting in self._kinds.values() for piece in waiting.pieces]
        self._kinds.clear()
        self._count = dict.fromkeys(FORMS, 0)
        self._batch_bytes = dict.fromkeys(FORMS, 0)
        return left

    def _change(
        self, waiting: _Waiting[Token], count: int, batch_bytes: int, *, form: Form
    ) -> None:
        waiting.count += count
        waiting.batch_bytes += batch_bytes
        self._count[form] += count
        self._batch_bytes[form] += batch_bytes

    def _is_ready(
        self, kind: tuple[str, Form], waiting: _Waiting[Token], now_ms: float, *, is_shared: bool
    ) -> bool:
        """Whether it has waited enough, or enough is there for a batch: of itself, or of all."""
        return (
            now_ms - waiting.pieces[0].added_ms >= self._linger_ms
            or waiting.count >= self._messages_max
            or waiting.batch_bytes >= self._bytes_max
            or (
                is_shared
                and (
                    self._count[kind[1]] >= self._messages_max
                    or self._batch_bytes[kind[1]] >= self._bytes_max
                )
            )
        )
