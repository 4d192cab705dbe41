"""Recurrences that a program brings with it: put when its worker begins.

A recurrence is known by topic and name. What the program says of it is in a property of its
messages, as a digest: where that is the same nothing is done, so several workers may begin at once,
and again, without taking back what is planned. Where it is another the program has changed, and
the recurrence is defined anew. None is deleted: one that a program does not name any more goes on.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Times
from hourwheel.outcomes import Missed
from hourwheel.priorities import NO_PRIORITY
from hourwheel.workers.handler import about

DEFINITION: Final = "hourwheel.definition"
"""The property with the digest of what the program says."""
AGAIN_S: Final = 1.0
_TRIES_MAX: Final = 10
"""Others may put the same recurrence at the same time; each of them is through after a few."""
_log = logging.getLogger("hourwheel.worker")


@dataclass(frozen=True, slots=True)
class Recurring:
    """A message that is to be published again and again."""

    topic: str
    name: str
    times: Times
    body: bytes = b""
    content_type: str = ""
    missed: Missed = Missed.ALL
    priority: int = NO_PRIORITY

    def digest(self) -> str:
        """The same for the same definition, in all processes."""
        times = self.times.to_wire().SerializeToString(deterministic=True).hex()
        said = [times, self.body.hex(), self.content_type, int(self.missed)]
        said += [self.priority] if self.priority else []
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]

    def message(self) -> Message:
        """What is published each time."""
        return Message(
            self.body,
            properties={DEFINITION: self.digest()},
            content_type=self.content_type,
            priority=self.priority,
        )


async def put_all(admin: AsyncAdmin, recurring: Sequence[Recurring]) -> None:
    """Have all of them be as the program says. Topics that are missing are made.

    Raises:
        InvalidRecurrence: the times of one cannot be.
        HourwheelError: see `AsyncAdmin.put_recurrence`.
    """
    for one in recurring:
        try:
            await _put(admin, one)
        except errors.HourwheelError as error:
            raise about(f"recurrence {one.name!r} of topic {one.topic!r}", error) from error


async def put_patiently(
    admin: AsyncAdmin, recurring: Sequence[Recurring], stopping: asyncio.Event
) -> None:
    """As `put_all`, tried until the nodes are there, or `stopping` is set."""
    while recurring and not stopping.is_set():
        try:
            await put_all(admin, recurring)
        except errors.HourwheelError as error:
            if not error.retriable:
                raise
            _log.warning("recurrences are not put yet: %s", error)
        else:
            return
        await asyncio.sleep(AGAIN_S)


async def _put(admin: AsyncAdmin, one: Recurring) -> None:
    for _ in range(_TRIES_MAX):
        try:
            found = await admin.get_recurrence(one.topic, one.name)
        except errors.UnknownRecurrence:
            version = 0
        except errors.UnknownTopic:
            await _make_topic(admin, one.topic)
            version = 0
        else:
            if dict(found.meta.properties).get(DEFINITION) == one.digest():
                return
            version = found.version
        try:
            await admin.put_recurrence(
                one.topic,
                one.name,
                one.message(),
                one.times,
                missed=one.missed,
                expected_version=version,
            )
        except errors.RecurrenceChanged:
            continue  # another worker was first: is it as we say?
        except errors.UnknownTopic:
            await _make_topic(admin, one.topic)
            continue
        _log.info("recurrence %s of topic %s is put", one.name, one.topic)
        return
    raise errors.RecurrenceChanged(f"{one.name!r} of topic {one.topic!r} is changed all the time")


async def _make_topic(admin: AsyncAdmin, name: str) -> None:
    with suppress(errors.AlreadyExists):  # somebody else was first, who knows better
        await admin.create_topic(name)
