"""Bulk moves under load: what is due long after the test is moved to now, by filter or by key."""

from functools import partial
from typing import Final

from chaos.actors.load import Load
from chaos.actors.transactions import until_answered
from chaos.history import Accepted, History, Sent, Sweep, body_of
from chaos.message_mix import FAR_MS, FAR_MS_MAX
from hourwheel import AsyncAdmin, AsyncProducer, Message, errors

TOPIC: Final = "eta"
QUEUES: Final = 2
GROUP: Final = "eta-all"
ATTEMPTS_MAX: Final = 64
_LIST: Final = 40
_AHEAD_MS: Final = 1_500
_PAUSE_MS: Final = 500


class RescheduleClient:
    """Publishes lists of messages, half of which it moves by what they have in common."""

    def __init__(self, load: Load, producer: AsyncProducer, admin: AsyncAdmin) -> None:
        """Nothing is published yet."""
        self._load, self._producer, self._admin = load, producer, admin
        self._chooser = load.chooser("reschedules")

    async def work(self) -> None:
        """Until there shall be no more. What is moved is moved to its end."""
        load, number = self._load, 0
        while not load.is_stopping:
            number += 1
            serials = [load.history.next_serial() for _ in range(_LIST)]
            try:
                await self._publish(serials, number)
            except errors.HourwheelError as error:
                load.given_up.append(error)
                load.fail(serials, error)
            else:
                await self._move(serials[::2], number)
            await load.pass_ms(_PAUSE_MS * self._chooser.random() * 2)

    async def _publish(self, serials: list[int], number: int) -> None:
        load, now_ms = self._load, int(self._load.clock.wall_ms())
        times = [now_ms + self._chooser.randint(FAR_MS, FAR_MS_MAX) for _ in serials]
        for serial, due_ms in zip(serials, times, strict=True):
            load.history.sent[serial] = Sent(TOPIC, due_ms, now_ms)
        messages = [
            Message(
                body_of(serial),
                due_ms=due_ms,
                tags=(f"{'left' if at % 2 else 'moved'}-{number}",),
                keys=(f"{'left' if at % 2 else 'moved'}-{number}-{serial}",),
            )
            for at, (serial, due_ms) in enumerate(zip(serials, times, strict=True))
        ]
        with load.asking():
            ids = await self._producer.publish_many(TOPIC, messages)
        for serial, one in zip(serials, ids, strict=True):
            load.history.accepted[serial] = Accepted(one, load.clock.wall_ms())
        load.note()

    async def _move(self, serials: list[int], number: int) -> None:
        """Asked for again until there is an answer: to the same instant, which is safe."""
        load = self._load
        due_ms = int(load.clock.wall_ms()) + self._chooser.randint(0, _AHEAD_MS)
        wanted, key_prefix = (None, f"moved-{number}-") if number % 2 else (f"moved-{number}", "")
        requested_ms = load.clock.wall_ms()
        move = partial(
            self._admin.reschedule_pending, TOPIC, wanted, due_ms=due_ms, key_prefix=key_prefix
        )
        answered_ms: float | None = None
        try:
            with load.asking():
                await until_answered(move)
            answered_ms = load.clock.wall_ms()
        finally:
            load.history.sweeps.append(Sweep(tuple(serials), due_ms, requested_ms, answered_ms))
        load.note()


def check_moved(history: History, moved: dict[int, int]) -> list[tuple[str, str]]:
    """I6: what a bulk move says it has moved is where it was moved to, and nothing else is.

    Args:
        history: of the run.
        moved: sequence -> due time, by the log, of what was moved.
    """
    found = []
    for sweep in history.sweeps:
        if sweep.answered_ms is None:
            continue
        for serial in sweep.serials:
            sequence = history.accepted[serial].message_id.sequence
            # Later where it was past: then it is "at once".
            if moved.get(sequence, -1) < sweep.due_ms:
                text = f"{serial} was moved to {sweep.due_ms}, and is due at {moved.get(sequence)}"
                found.append(("reschedule", text))
    return found
