"""A group that is reset under load, further back or further on, again and again.

Another group reads the same messages, some of which have priorities, and is never reset: to it
nothing may happen. What the first one must get: chaos/actors/reset_checks.py.
"""

import random
from typing import Any, Final

from chaos.actors.load import Load, publish_lists
from chaos.history import Reset
from hourwheel import AsyncAdmin, AsyncProducer, ReceivedMessage, errors
from hourwheel.formats import receipt
from hourwheel.transport.retry import is_undecided

TOPIC: Final = "theta"
QUEUES: Final = 2
AGAIN: Final = "theta-again"
GROUPS: Final = (AGAIN, "theta-once")
READERS: Final = (AGAIN, AGAIN, "theta-once")
"""A group for each consumer."""
ATTEMPTS_MAX: Final = 64
WORK_MS_MAX: Final = 300.0
"""So long a consumer of the group is busy with what it got: resets come meanwhile."""
_PRIORITIES: Final = (0, 0, 0, 4, 9)
_LISTS_PAUSE_MS: Final = 200
_RESETS_PAUSE_MS: Final = (300, 2_500)
_BACK_MS_MAX: Final = 6_000
_LAST_BACK_MS: Final = 60_000
_STEP_MAX: Final = 40
"""By how many positions a group is set back or on."""
_SPARSE: Final = 1 << 63
"""Says of a lease's id in a receipt that a filter picked its messages."""


def lease_of(message: ReceivedMessage) -> tuple[int, int]:
    """(epoch, number of the lease in it) with which a message came."""
    handle = receipt.parse(message.batch.receipt)
    return handle.epoch, handle.lease_id & ~_SPARSE


async def publish_before_resets(load: Load, producer: AsyncProducer) -> None:
    """Lists of few messages, until there shall be no more."""
    await publish_lists(
        load, producer, TOPIC, "reread", pause_ms=_LISTS_PAUSE_MS, priorities=_PRIORITIES
    )


class ResetClient:
    """Resets the group, one reset after the other."""

    def __init__(self, load: Load, admin: AsyncAdmin) -> None:
        """Nothing was reset yet."""
        self._load, self._admin = load, admin
        self._chooser = load.chooser("reset")
        self._positions: tuple[int, ...] = (0,) * QUEUES
        """Where it began the last time."""

    async def work(self) -> None:
        """Until there shall be no more messages. In the end the group gets much once more."""
        while not self._load.is_stopping:
            await self._load.pass_ms(self._chooser.randint(*_RESETS_PAUSE_MS))
            now_ms = int(self._load.clock.wall_ms())
            await self._reset(_choose(self._chooser, self._positions, now_ms))
        back_ms = int(self._load.clock.wall_ms()) - _LAST_BACK_MS
        while not await self._reset({"to": back_ms}):
            await self._load.pass_ms(_RESETS_PAUSE_MS[0])

    async def _reset(self, where: dict[str, Any]) -> bool:
        """Once: what is refused is not done, and what has no answer may be. Whether it is."""
        load, reported, is_refused, resets = self._load, None, False, self._load.history.resets
        requested_ms = load.clock.wall_ms()
        try:
            reported = (await self._admin.reset_group(AGAIN, TOPIC, **where)).positions
            self._positions = reported
        except errors.HourwheelError as error:
            is_refused = not is_undecided(error)
            if isinstance(error, errors.DiskFull):
                is_refused, resets = False, load.history.unwritten_resets
        finally:  # what is cut off is unknown, too
            if not is_refused:
                at_ms = requested_ms, load.clock.wall_ms()
                resets.append(Reset(AGAIN, reported, *at_ms))
        load.note()
        return reported is not None


def _choose(chooser: random.Random, last: tuple[int, ...], now_ms: int) -> dict[str, Any]:
    """Where to begin: of all kinds, and rarely with everything."""
    chance = chooser.random()
    if chance < 0.08:
        return {"to": "first"}
    if chance < 0.25:
        return {"to": "now"}
    if chance < 0.65:
        return {"to": now_ms - chooser.randint(1, _BACK_MS_MAX)}
    return {"positions": [max(0, at + chooser.randint(-_STEP_MAX, _STEP_MAX)) for at in last]}
