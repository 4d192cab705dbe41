"""Polls of several topics by one consumer: which topics, and which of them is asked next.

A line of topics: each poll asks the first and puts it to the end, whether it had messages or not.
So no topic keeps others waiting, however many messages it has. While there are no more topics than
polls, each has a long poll of its own. With more of them polls are short, and go round: with ten
thousand topics and 64 polls it takes about half a minute until all were asked, and costs the nodes
a few hundred polls a second and no more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from hourwheel import errors
from hourwheel.client.message import ReceivedBatch
from hourwheel.client.poll import Poll
from hourwheel.limits import LIST_PAGE_SIZE_MAX, NAME_BYTES_MAX
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import LIST_TOPICS
from hourwheel.transport.retry import Pace
from hourwheel.v1 import admin_pb2, consumer_pb2

TOPICS_MAX: Final = 10_000
"""Topics of one consumer; of a pattern that matches more, the first ones by name."""
TOPIC_POLLS: Final = 64
"""Polls that a consumer of several topics has under way."""
SHORT_WAIT_MS: Final = 200.0
"""Of a poll where topics have to share polls."""
REFRESH_MS: Final = 30_000.0
"""So often the topics of a pattern are looked up."""


class TopicChoice:
    """Which topics: named, or by a pattern in which * stands for any text and ? for a character."""

    def __init__(self, topics: Sequence[str] = (), pattern: str = "") -> None:
        """Raises InvalidArgument: not one of the two, too many, or none that a topic could have."""
        if isinstance(topics, str) or bool(topics) == bool(pattern):
            raise errors.InvalidArgument("a consumer has a topic, a list of topics, or a pattern")
        if len(topics) > TOPICS_MAX:
            raise errors.InvalidArgument(f"{len(topics):,} topics; at most {TOPICS_MAX:,}")
        if len(pattern) > NAME_BYTES_MAX:
            raise errors.InvalidArgument(f"a pattern has at most {NAME_BYTES_MAX} characters")
        self.names = tuple(dict.fromkeys(topics))
        self.pattern = pattern

    @classmethod
    def of(cls, topic: str, topics: Sequence[str], pattern: str) -> "TopicChoice | None":
        """What a consumer says of its topics; None: it has one. Raises InvalidArgument."""
        if topic and not (topics or pattern):
            return None
        choice = cls(topics, pattern)
        if topic:
            raise errors.InvalidArgument("give a topic, a list of topics, or a pattern")
        return choice

    def matches(self, name: str) -> bool:
        """Whether a name fits the pattern: in time that grows with the product of their lengths."""
        pattern, at, on, star, mark = self.pattern, 0, 0, -1, 0
        while at < len(name):
            if on < len(pattern) and pattern[on] == "*":
                star, mark, on = on, at, on + 1
            elif on < len(pattern) and pattern[on] in ("?", name[at]):
                on, at = on + 1, at + 1
            elif star >= 0:  # the last star takes one more
                mark += 1
                on, at = star + 1, mark
            else:
                return False
        return not pattern[on:].strip("*")


class TopicPolls:
    """As `Poll`, of several topics. Belongs to one event loop."""

    def __init__(
        self, channel: Channel, choice: TopicChoice, poll_of: Callable[[str], Poll], polls: int
    ) -> None:
        """`poll_of` makes the polls of a topic; `polls`: how many may be under way."""
        self._channel, self._choice, self._poll_of, self._polls = channel, choice, poll_of, polls
        self._by_topic: dict[str, Poll] = {}
        self._gone: list[Poll] = []
        """Of topics that are left out now: there may be unread answers."""
        self._line: deque[str] = deque()
        self._refused: set[str] = set()
        """Topics that a node would not give us: they get into the line by the next look-up."""
        self._is_filled = asyncio.Event()
        self._refresh_at_ms = 0.0
        self._refreshing = asyncio.Lock()
        self._set_topics(choice.names)

    @property
    def filtered_count(self) -> int:
        """Messages that came and did not match."""
        return sum(one.filtered_count for one in self._all())

    @property
    def topics(self) -> list[str]:
        """Those that are asked now, by name."""
        return sorted(self._by_topic.keys() - self._refused)

    async def poll(
        self, count: int, wait_ms: float, pace: Pace, *, is_urgent: bool = True
    ) -> ReceivedBatch | None:
        """An answer of the topic whose turn it is, or None."""
        await self._refresh_if_due()
        topic = await self._next(wait_ms)
        if topic is None:
            return None
        poll = self._by_topic[topic]
        wait_ms = wait_ms if len(self._by_topic) <= self._polls else min(wait_ms, SHORT_WAIT_MS)
        try:
            return await poll.poll(count, wait_ms, pace, is_urgent=is_urgent)
        except (errors.UnknownTopic, errors.PermissionDenied):
            if not self._choice.pattern:
                raise
            if self._by_topic.get(topic) is poll:
                self._refused.add(topic)
            return None
        finally:
            if topic not in self._refused and self._by_topic.get(topic) is poll:
                self._line.append(topic)
                self._is_filled.set()

    async def _next(self, wait_ms: float) -> str | None:
        """The topic whose turn it is, which leaves the line; None: none came within the wait."""
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                while not self._line:
                    self._is_filled.clear()
                    await self._is_filled.wait()
        except TimeoutError:
            return None
        return self._line.popleft()

    async def _refresh_if_due(self) -> None:
        """Look up which topics fit the pattern; one call does, and the others go on."""
        if not self._choice.pattern or self._refreshing.locked():
            return
        async with self._refreshing:
            now_ms = self._channel.clock.monotonic_ms()
            if now_ms < self._refresh_at_ms:
                return
            self._set_topics(await self._find_topics())
            self._refresh_at_ms = now_ms + REFRESH_MS

    async def _find_topics(self) -> list[str]:
        found: list[str] = []
        request = admin_pb2.ListTopicsRequest(page_size=LIST_PAGE_SIZE_MAX)
        while len(found) < TOPICS_MAX:
            answer = await self._channel.call(LIST_TOPICS, request)
            found += [one.name for one in answer.topics if self._choice.matches(one.name)]
            request.page_token = answer.next_page_token
            if not request.page_token:
                break
        return found[:TOPICS_MAX]

    def _set_topics(self, names: Sequence[str]) -> None:
        """From now on these; those that are new come first, and once."""
        known = self._by_topic
        self._by_topic = {name: known.get(name) or self._poll_of(name) for name in names}
        self._gone += [poll for name, poll in known.items() if name not in self._by_topic]
        waiting = [name for name in self._line if name in self._by_topic]
        fresh = [name for name in names if name not in known or name in self._refused]
        self._refused.clear()
        self._line = deque([*fresh, *waiting])
        if self._line:
            self._is_filled.set()

    async def settle(self) -> None:
        """See `Poll.settle`."""
        await asyncio.gather(*(poll.settle() for poll in self._all()))

    def take_unseen(self) -> list[consumer_pb2.ReceiptRange]:
        """What was leased to us lately and no caller here will see: to be given back."""
        return [one for poll in self._all() for one in poll.take_unseen()]

    def _all(self) -> list[Poll]:
        return [*self._by_topic.values(), *self._gone]
