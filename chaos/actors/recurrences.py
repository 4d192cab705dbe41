"""Recurring messages under load: some that stay as they are, some that are changed all the time."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from chaos.actors.load import Load
from chaos.actors.transactions import until_answered
from chaos.history import Change, Occurrence
from hourwheel import AsyncAdmin, AsyncConsumer, Message, Times, errors

TOPIC: Final = "delta"
GROUP: Final = "delta-all"
EVERY_MS: Final = 1_000
_STEADY: Final = ("steady-1", "steady-2", "steady-3")
_RESTLESS: Final = ("restless-1", "restless-2", "restless-3")
_PAUSE_MS: Final = 400
_COUNT: Final = 100_000
"""With a count it may come each second."""
_TIMES: Final = Times(every=timedelta(milliseconds=EVERY_MS), count=_COUNT)


class RecurrenceClient:
    """Makes and changes recurrences, and takes them all away in the end."""

    def __init__(self, load: Load, admin: AsyncAdmin) -> None:
        """Nothing recurs yet."""
        self._load, self._admin = load, admin
        self._states = dict.fromkeys((*_STEADY, *_RESTLESS), "gone")

    async def work(self) -> None:
        """Until there shall be no more; then each that goes on must have come once more."""
        load, chooser = self._load, self._load.chooser("recurrences")
        for name in self._states:
            await self._change(name, "put")
        while not load.is_stopping:
            name = chooser.choice(_RESTLESS)
            verbs = {
                "running": ("put", "pause", "pause", "delete"),
                "paused": ("put", "resume", "resume", "delete"),
                "gone": ("put",),
            }
            await self._change(name, chooser.choice(verbs[self._states[name]]))
            await load.pass_ms(_PAUSE_MS * chooser.random() * 2)
        stop_ms = load.clock.wall_ms()
        await load.wait_for(lambda: self._have_come(stop_ms))
        for name, state in self._states.items():
            if state != "gone":
                await self._change(name, "delete")

    def _have_come(self, after_ms: float) -> bool:
        seen = {one.name for one in self._load.history.occurrences if one.due_ms > after_ms}
        return seen >= {name for name, state in self._states.items() if state == "running"}

    async def _change(self, name: str, verb: str) -> None:
        """Asked for again until there is an answer."""
        clock, admin = self._load.clock, self._admin
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "put": partial(admin.put_recurrence, TOPIC, name, Message(b"again"), _TIMES),
            "pause": partial(admin.pause_recurrence, TOPIC, name),
            "resume": partial(admin.resume_recurrence, TOPIC, name),
            "delete": partial(admin.delete_recurrence, TOPIC, name),
        }
        requested_ms = clock.wall_ms()
        answered_ms: float | None = None
        try:
            with suppress(errors.UnknownRecurrence):  # a delete whose first answer was lost
                await until_answered(calls[verb])
            answered_ms = clock.wall_ms()
        finally:
            change = Change(name, verb, requested_ms, answered_ms)
            self._load.history.changes.append(change)
        self._states[name] = {"pause": "paused", "delete": "gone"}.get(verb, "running")


async def watch(load: Load, consumer: AsyncConsumer) -> None:
    """Take down each occurrence that comes, and acknowledge it, for ever; then close."""
    try:
        while True:
            messages = await consumer.receive(64)
            for one in messages:
                said = dict(one.meta.properties)
                name, index = said["hourwheel.recurrence"], int(said["hourwheel.occurrence"])
                found = Occurrence(name, index, one.message_id, one.due_ms)
                load.history.occurrences.append(found)
            with suppress(errors.HourwheelError):  # then they come again
                await consumer.ack(messages)
            load.note()
    finally:
        with suppress(errors.HourwheelError):
            await consumer.close()
