"""Ordering keys under load: few hot ones and many others, and an operator of blocked messages.

The topic is read by ordered groups of both kinds, and by one that has limits and no order.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from chaos.actors.load import Load
from chaos.history import History, body_of
from hourwheel import AsyncAdmin, AsyncProducer, Message, errors

TOPIC: Final = "gamma"
QUEUES: Final = 2


class Rules(NamedTuple):
    """How a group is made."""

    order: str = "none"
    attempts_max: int = 3
    in_flight_max: int = 0
    per_second_max: int = 0


GROUPS: Final = {
    "gamma-block": Rules("block"),
    "gamma-dead": Rules("dead-letter"),
    "gamma-slow": Rules(attempts_max=64, in_flight_max=4, per_second_max=60),
}
ORDERED: Final = tuple(name for name, one in GROUPS.items() if one.order != "none")
READERS: Final = (*GROUPS, *GROUPS)
"""A group for each consumer."""
WORK_MS_MAX: Final = 60.0
"""So long a consumer of a group with limits is busy with what it got."""
OPEN_MAX: Final = 150
"""Messages with a new key."""
_POISON: Final = 53
_HOT_KEYS: Final = ("hot-1", "hot-2")
_HOT_RATIO: Final = 0.35
_LIST_MAX: Final = 10
_PAUSE_MS: Final = 150
_LOOK_S: Final = 0.25


def is_poison(serial: int) -> bool:
    """Whether no consumer of an ordered group can cope with this message."""
    return serial % _POISON == 0


async def publish_in_order(load: Load, producer: AsyncProducer) -> None:
    """Lists of messages with ordering keys, until there shall be no more."""
    chooser, history = load.chooser("order"), load.history
    while not load.is_stopping:
        if load.open_in(TOPIC) < OPEN_MAX:
            count = chooser.randint(1, _LIST_MAX)
            serials, times, is_delay = load.make(TOPIC, count, chooser, with_far=False)
            history.keys.update({serial: _key(serial, chooser) for serial in serials})
            messages = [
                Message(
                    body_of(serial),
                    delay_ms=at if is_delay else None,
                    due_ms=None if is_delay else at,
                    ordering_key=history.keys[serial],
                )
                for serial, at in zip(serials, times, strict=True)
            ]
            await load.publish_together(producer, TOPIC, serials, messages, chooser)
        await load.pass_ms(_PAUSE_MS)


def _key(serial: int, chooser: random.Random) -> str:
    return chooser.choice(_HOT_KEYS) if chooser.random() < _HOT_RATIO else f"key-{serial // 3}"


async def decide(admin: AsyncAdmin, history: History, chooser: random.Random) -> None:
    """Let keys go on that a message blocks, for ever: it is skipped, or a dead letter."""
    while True:
        await asyncio.sleep(_LOOK_S)
        for group in ORDERED:
            await _try(partial(_unblock, admin, history, group, chooser))


async def _unblock(admin: AsyncAdmin, history: History, group: str, chooser: random.Random) -> None:
    for lag in (await admin.get_group(group)).lags:
        if lag.blocked_message_ids:
            action = chooser.choice(("skip", "dead-letter"))
            if action == "skip":  # noted first: it may be done though no answer comes
                history.skips.update((group, one.sequence) for one in lag.blocked_message_ids)
            await admin.unblock(group, TOPIC, list(lag.blocked_message_ids), action)


async def _try(call: Callable[[], Awaitable[None]]) -> None:
    """It is asked for again soon."""
    try:
        await call()
    except errors.HourwheelError:
        return
