"""Messages with priorities under load: bursts of all ranks that fall due at once.

The group that reads them is slow, and may hold few: so for a second or so there is a choice, and
what it gets says how the node has chosen.
"""

import random
from typing import Final

from chaos.actors.load import Load
from chaos.actors.ordered_keys import Rules
from chaos.history import Sent, body_of
from hourwheel import AsyncProducer, Message

TOPIC: Final = "zeta"
QUEUES: Final = 2
GROUPS: Final = {"zeta-slow": Rules(attempts_max=64, in_flight_max=4)}
WORK_MS_MAX: Final = 200.0
"""So long a consumer is busy with what it got."""
_RANKS: Final = (0, 0, 0, 1, 4, 5, 9)
_BURST: Final = 40
_DELAYS_MS: Final = (0, 100, 700)
_OPEN_MAX: Final = 20
"""With more left of the bursts before, another one comes later."""
_PAUSE_MS: Final = 1_500


async def publish_prioritized(load: Load, producer: AsyncProducer) -> None:
    """A burst after the other, until there shall be no more."""
    chooser = load.chooser("priorities")
    while not load.is_stopping:
        if load.open_in(TOPIC) < _OPEN_MAX:
            await _publish(load, producer, chooser)
        await load.pass_ms(_PAUSE_MS)


async def _publish(load: Load, producer: AsyncProducer, chooser: random.Random) -> None:
    """One burst."""
    history = load.history
    now_ms = int(load.clock.wall_ms())
    due_ms = now_ms + chooser.choice(_DELAYS_MS)
    serials = [history.next_serial() for _ in range(_BURST)]
    for serial in serials:
        history.sent[serial] = Sent(TOPIC, due_ms, now_ms)
        history.ranks[serial] = chooser.choice(_RANKS)
    load.expect(serials)
    messages = [
        Message(body_of(serial), due_ms=due_ms, priority=history.ranks[serial])
        for serial in serials
    ]
    await load.publish_together(producer, TOPIC, serials, messages, chooser)
