"""Messages that expire under load: of short lives and long ones, and some that do not expire.

Two groups read them: one that drops what has expired, and one that keeps it as dead letters.
"""

from typing import Final

from chaos.actors.load import Load
from chaos.history import body_of
from hourwheel import AsyncProducer, Message

TOPIC: Final = "epsilon"
QUEUES: Final = 2
KEEPER: Final = "epsilon-keep"
GROUPS: Final = ("epsilon-drop", KEEPER)
ATTEMPTS_MAX: Final = 64
_LIVES_MS: Final = (0, 5, 40, 300, 2_000, 20_000)
"""How long after its due time a message expires; 0: never."""
_LIST_MAX: Final = 10
_PAUSE_MS: Final = 150


async def publish_expiring(load: Load, producer: AsyncProducer) -> None:
    """Lists of messages, most of which expire, until there shall be no more."""
    chooser, history = load.chooser("expiry"), load.history
    while not load.is_stopping:
        serials, times, is_delay = load.make(
            TOPIC, chooser.randint(1, _LIST_MAX), chooser, with_far=False
        )
        messages = []
        for serial, at in zip(serials, times, strict=True):
            load.close(serial)  # perhaps it is never delivered
            history.lives[serial] = life_ms = chooser.choice(_LIVES_MS)
            messages.append(
                Message(
                    body_of(serial),
                    delay_ms=at if is_delay else None,
                    due_ms=None if is_delay else at,
                    expire_after_ms=life_ms or None,
                )
            )
        await load.publish_together(producer, TOPIC, serials, messages, chooser)
        await load.pass_ms(_PAUSE_MS)
