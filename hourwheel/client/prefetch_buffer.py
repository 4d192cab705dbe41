"""What a consumer holds: messages leased and not yet handed out, and ranges to be acknowledged.

Pure: no socket, no clock; a lock, since callers that block take messages in threads of their own.
A message whose lease is over is never handed out: the node will deliver it again, and it could
not be acknowledged any more. Each such delivery counts as an attempt, so a consumer that holds more
than it can handle would make dead letters of unread messages. It learns to hold less.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from hourwheel import errors
from hourwheel.client.message import ReceivedBatch, ReceivedMessage

_GROWTH_PARTS: Final = 4

Finishable: TypeAlias = ReceivedMessage | ReceivedBatch | Iterable[ReceivedMessage]
"""What can be acknowledged: one message, a whole answer, or any messages."""


class Selection(NamedTuple):
    """Messages [first, end) of all that one answer delivered."""

    batch: ReceivedBatch
    first: int
    end: int


def selections_of(batch: ReceivedBatch, first: int = 0, end: int | None = None) -> list[Selection]:
    """The messages [first, end) of those in `batch`, as ranges of what was delivered."""
    return [Selection(batch, low, high) for low, high in batch.runs(first, end)]


class _Held(NamedTuple):
    """An answer, and when it came."""

    batch: ReceivedBatch
    arrived_ms: float
    taken_before: int
    """Messages that had been handed out by then."""


class PrefetchBuffer:
    """Messages received ahead. All methods may be called from any thread.

    What it holds and asks for are its *credits*: `messages_max` of them, until a lease ends before
    its messages were asked for. Then there are half as many as were handed out in the time of that
    lease, one at least. They grow by a quarter whenever an answer is used up and the next message
    is asked for, if so many would be handed out in half a lease, at the pace since that answer.

    Invariant: what is here and what is asked for are together at most `messages_max`.
    """

    def __init__(self, messages_max: int, poll_messages: int) -> None:
        """`messages_max`: how many to hold; `poll_messages`: how many one poll asks for at most."""
        self._lock = threading.Lock()
        self._messages_max = messages_max
        self.poll_messages = poll_messages
        """How many one answer may bring."""
        self._head: ReceivedBatch | None = None
        """The answer that is being handed out: its messages [_first, _end) are still here. They are
        counted as it counts: where the client checks a filter, only those that match."""
        self._first = 0
        self._end = 0
        self._behind: deque[_Held] = deque()
        self._credits = messages_max
        self._taken = 0
        """Messages handed out so far."""
        self._current: _Held | None = None
        """What the head was when it came."""
        self._used: _Held | None = None
        """The answer that was used up last, until the next message is asked for."""
        self._count = 0
        self._requested = 0
        self.expired_count = 0
        """Messages that were dropped because their lease ended before anyone asked for them."""

    def __len__(self) -> int:
        """How many messages are held."""
        return self._count

    @property
    def has_room(self) -> bool:
        """Whether another poll may begin.

        Room that is small against a poll is left to grow, so that answers do not get ever smaller.
        """
        room = self._credits - self._count - self._requested
        return room > 0 and 2 * room >= min(self.poll_messages, self._credits)

    def reserve(self) -> int:
        """How many messages to ask for in a poll that begins now; 0: wait, there is no room."""
        with self._lock:
            if not self.has_room:
                return 0
            requested = min(self._credits - self._count - self._requested, self.poll_messages)
            self._requested += requested
            return requested

    @property
    def is_overfull(self) -> bool:
        """Whether more is asked for than there is room for by now."""
        return self._count + self._requested > self._credits

    def take_back(self, requested: int) -> int:
        """How many of those that are asked for, of `requested`, are asked for no more: too many."""
        with self._lock:
            surplus = self._count + self._requested - self._credits
            surplus = max(0, min(surplus, requested))
            self._requested -= surplus
            return surplus

    def add(self, requested: int, batch: ReceivedBatch | None) -> None:
        """A poll for `requested` messages is over, with these or with none."""
        with self._lock:
            self._requested -= requested
            if batch is not None:
                arrived_ms = batch.lease_until_ms - batch.lease_ms
                self._behind.append(_Held(batch, arrived_ms, self._taken))
                self._count += len(batch)

    def take(self, count: int, now_ms: float) -> list[ReceivedMessage]:
        """Up to `count` messages, in order, from one answer.

        Raises:
            InvalidArgument: `count` is not positive; waiting would be in vain.
        """
        if count < 1:
            raise errors.InvalidArgument(f"{count} messages are asked for; at least 1 is needed")
        with self._lock:
            if not self._find_head(now_ms):
                return []
            head, first, end = self._head, self._first, min(self._end, self._first + count)
            self._hand_out(end)
        return head.messages(first, end) if head is not None else []

    def find_one(self, now_ms: float) -> ReceivedMessage | None:
        """The next message."""
        with self._lock:
            head, first = self._head, self._first
            if head is None or first == self._end or head.lease_until_ms <= now_ms:
                if not self._find_head(now_ms):
                    return None
                head, first = self._head, self._first
            self._hand_out(first + 1)
        return None if head is None else head[first]

    def find_batch(self, now_ms: float) -> ReceivedBatch | None:
        """The next answer of which nothing was handed out yet."""
        with self._lock:
            self._grow(now_ms)
            while self._behind:
                held = self._behind.popleft()
                batch = held.batch
                self._count -= len(batch)
                if batch.lease_until_ms > now_ms:
                    self._taken += len(batch)
                    self._used = held
                    return batch
                self._drop(len(batch), held)
        return None

    def take_all(self) -> list[Selection]:
        """All that is held."""
        with self._lock:
            held = []
            if self._head is not None and self._first < self._end:
                held += selections_of(self._head, self._first, self._end)
            for one in self._behind:
                held += selections_of(one.batch)
            self._behind.clear()
            self._head, self._count = None, 0
            return held

    def _find_head(self, now_ms: float) -> bool:
        """Whether there is a message; then it is the first one of the head."""
        self._grow(now_ms)
        while True:
            if self._head is not None and self._first < self._end:
                if self._head.lease_until_ms > now_ms:
                    return True
                self._count -= self._end - self._first
                self._drop(self._end - self._first, self._current)
            if not self._behind:
                self._head, self._first, self._end = None, 0, 0
                return False
            self._current = self._behind.popleft()
            self._head = self._current.batch
            self._first, self._end = 0, len(self._head)

    def _hand_out(self, end: int) -> None:
        """The head's messages up to `end` are somebody's now."""
        self._count -= end - self._first
        self._taken += end - self._first
        self._first = end
        if end == self._end:
            self._used = self._current

    def _drop(self, count: int, held: _Held | None) -> None:
        """So many messages of an answer were held for too long."""
        self.expired_count += count
        taken = 0 if held is None else self._taken - held.taken_before
        self._credits = max(1, min(self._credits, taken // 2))

    def _grow(self, now_ms: float) -> None:
        """Messages are asked for."""
        used, self._used = self._used, None
        taken = 0 if used is None else self._taken - used.taken_before
        if used is None or not taken or self._credits >= self._messages_max:
            return
        grown = self._credits + max(1, self._credits // _GROWTH_PARTS)
        needed_ms = grown * (now_ms - used.arrived_ms) / taken
        if 2 * needed_ms <= used.batch.lease_ms:
            self._credits = min(self._messages_max, grown)


class AckBuffer:
    """Messages that are done with, as few ranges."""

    def __init__(self) -> None:
        """Begin with none."""
        self._runs: list[Selection] = []
        self._batch: ReceivedBatch | None = None
        """The run that grows: messages [_first, _end) of this answer."""
        self._first = 0
        self._end = 0
        self.count = 0
        """How many messages, those added twice counted twice."""

    def __len__(self) -> int:
        """See `count`."""
        return self.count

    def add(self, messages: Finishable) -> None:
        """Add messages."""
        if isinstance(messages, ReceivedMessage):
            if messages.batch is self._batch and messages.index == self._end:
                self._end += 1
                self.count += 1
                return
            self.add_range(messages.batch, messages.index, messages.index + 1)
        elif isinstance(messages, ReceivedBatch):
            for chosen in selections_of(messages):
                self.add_range(*chosen)
        else:
            self._add_each(messages)

    def _add_each(self, messages: Iterable[ReceivedMessage]) -> None:
        """Runs of neighbours are found here, without a call for each message."""
        batch: ReceivedBatch | None = None
        first = end = 0
        for message in messages:
            if message.batch is batch and message.index == end:
                end += 1
                continue
            if batch is not None:
                self.add_range(batch, first, end)
            batch, first, end = message.batch, message.index, message.index + 1
        if batch is not None:
            self.add_range(batch, first, end)

    def add_range(self, batch: ReceivedBatch, first: int, end: int) -> None:
        """Add the messages [first, end) of all that an answer delivered."""
        self.count += end - first
        if batch is self._batch and first == self._end:
            self._end = end
            return
        self._finish_run()
        self._batch, self._first, self._end = batch, first, end

    def take(self, ranges_max: int) -> list[Selection]:
        """Up to `ranges_max` ranges, answer by answer, those that touch joined; the rest stays."""
        self._finish_run()
        by_batch: dict[int, list[Selection]] = {}
        for run in self._runs:
            by_batch.setdefault(id(run.batch), []).append(run)
        joined: list[Selection] = []
        for runs in by_batch.values():
            joined += _join(runs)
        self._runs = joined[ranges_max:]
        self.count = sum(run.end - run.first for run in self._runs)
        return joined[:ranges_max]

    def _finish_run(self) -> None:
        if self._batch is not None:
            self._runs.append(Selection(self._batch, self._first, self._end))
            self._batch = None


def _join(runs: list[Selection]) -> list[Selection]:
    """Ranges of one answer in order, those that touch or overlap as one."""
    if len(runs) == 1:
        return runs
    runs.sort(key=lambda run: run.first)
    joined = [runs[0]]
    for run in runs[1:]:
        last = joined[-1]
        if run.first <= last.end:
            joined[-1] = Selection(last.batch, last.first, max(last.end, run.end))
        else:
            joined.append(run)
    return joined


def select(messages: Finishable) -> list[Selection]:
    """The ranges of `messages`."""
    buffer = AckBuffer()
    buffer.add(messages)
    return buffer.take(len(buffer))
