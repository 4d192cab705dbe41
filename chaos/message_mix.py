"""What the messages of a workload are like, and how they are published."""

import random
from dataclasses import dataclass
from typing import Final

from chaos.history import body_of
from hourwheel import AsyncProducer, Columns, Message, PublishedIds
from hourwheel.formats.meta import MessageMeta
from hourwheel.v1 import broker_pb2

FAR_MS: Final = 3_600_000
"""What falls due later than this does so long after the test."""
FAR_MS_MAX: Final = 700 * 86_400_000


@dataclass(frozen=True)
class Mix:
    """What the load is made of."""

    open_max: int = 1_000
    """Messages of one topic that are published and not yet seen by a consumer, those of the far
    future not. With one bound for all topics, consumers that cannot keep up on a slow machine would
    keep other topics' publishers waiting for ever."""
    stream_callers: int = 3
    """Tasks that publish lists over one stream."""
    batch_messages: int = 120
    """Most messages of one list."""
    delay_ms_max: int = 2_500
    """Of most messages; a few wait up to twice as long."""
    far_ratio: float = 0.02
    """Part that falls due long after the test; they stay pending, or are cancelled."""
    cancel_ratio: float = 0.12
    move_ratio: float = 0.08
    """Part that is moved to another due time, or is too late for it."""
    unique_names: int = 12
    """Dedup keys that one caller uses again and again; 0: it is not there."""
    pace: float = 1.0
    """How many times as long as usual the actors pause."""
    has_order: bool = True
    """Whether there are messages with ordering keys."""
    has_recurrences: bool = True
    has_expiry: bool = True
    """Whether there are messages that expire."""
    has_priorities: bool = True
    has_bulk_moves: bool = True
    """Whether what is due long after the test is moved to now, many at once."""
    has_resets: bool = True
    """Whether a group begins anew again and again."""
    has_redrives: bool = True
    """Whether dead letters are given to their group again."""
    has_broadcasts: bool = True
    """Whether each of some consumers gets all, and a group beside them is paused and resumed."""
    has_transactions: bool = True
    give_back_ratio: float = 0.05
    forget_ratio: float = 0.03
    """Part of what is received that is left until its lease ends."""


PLAIN_MIX: Final = Mix(
    open_max=400,
    delay_ms_max=1_200,
    move_ratio=0.0,
    unique_names=0,
    has_order=False,
    has_recurrences=False,
    has_expiry=False,
    has_priorities=False,
    has_bulk_moves=False,
    has_resets=False,
    has_redrives=False,
    has_broadcasts=False,
    has_transactions=False,
)
"""What brokers of the first versions can do: publish, cancel, receive, acknowledge, give back."""
QUICK_MIX: Final = Mix(open_max=250, delay_ms_max=500, forget_ratio=0.01)
"""For tests that want to see an end soon."""


def choose_delay(chooser: random.Random, mix: Mix, *, with_far: bool) -> tuple[int, bool]:
    """(delay in milliseconds, whether it ends long after the test)."""
    chance, longest = chooser.random(), mix.delay_ms_max
    if with_far and chance < mix.far_ratio:
        return chooser.randint(FAR_MS, FAR_MS_MAX), True
    if chance < 0.12:
        return 0, False
    if chance < 0.15:
        return chooser.randint(longest, 2 * longest), False
    return chooser.randint(1, longest // 3 if chance < 0.6 else longest), False


def own_key(body: bytes) -> str:
    """The key that no other message has: of the serial that its body begins with."""
    return f"own-{body[:8].hex()}"


def make_message(body: bytes, at: int, chooser: random.Random, *, is_delay: bool) -> Message:
    """A message with this body and a key of its own, some of them with another key or a tag."""
    keys: tuple[str, ...] = (own_key(body),)
    if chooser.random() < 0.3:
        keys += (f"key-{chooser.randint(0, 9)}",)
    tags = ("red",) if chooser.random() < 0.3 else ()
    if is_delay:
        return Message(body, delay_ms=at, keys=keys, tags=tags)
    return Message(body, due_ms=at, keys=keys, tags=tags)


async def publish_list(
    producer: AsyncProducer,
    topic: str,
    made: tuple[list[bytes], list[int], bool],
    chooser: random.Random,
) -> PublishedIds:
    """Publish (bodies, times, whether those are delays), as messages or as columns."""
    bodies, times, is_delay = made
    if chooser.random() < 0.5:
        columns = Columns(
            bodies=bodies,
            delay_ms=times if is_delay else None,
            due_ms=None if is_delay else times,
            metas=[MessageMeta(keys=(own_key(body),)) for body in bodies],
        )
        return await producer.publish_batch(topic, columns)
    messages = [
        make_message(body, at, chooser, is_delay=is_delay)
        for body, at in zip(bodies, times, strict=True)
    ]
    return await producer.publish_many(topic, messages)


def request_of(
    topic: str, serials: list[int], times: list[int], *, is_delay: bool
) -> broker_pb2.PublishRequest:
    """Messages of one unary call."""
    request = broker_pb2.PublishRequest(topic=topic)
    for serial, at in zip(serials, times, strict=True):
        added = request.messages.add(body=body_of(serial))
        if is_delay:
            added.delay_ms = at
        else:
            added.due_ms = at
    return request
