"""A broadcast under load, and beside it a group that is paused again and again.

The members of the broadcast have names. They go and come back by them; the second one comes when
there are messages already, and begins with the first of all.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from chaos.actors.load import Load, publish_lists
from chaos.actors.transactions import until_answered
from chaos.history import Heard, History, Pause, Stored, serial_of
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Broadcast,
    Channel,
    errors,
)
from hourwheel.formats.member_group import member_group_name

TOPIC: Final = "kappa"
QUEUES: Final = 2
PAUSED: Final = "kappa-paused"
ATTEMPTS_MAX: Final = 64
BROADCAST: Final = "kappa-news"
MEMBERS: Final = ("early", "late")
MEMBER_GROUPS: Final = tuple(member_group_name(BROADCAST, one) for one in MEMBERS)
_LATE_MS: Final = 1_500
_IDLE_MS: Final = 86_400_000
_ANSWERS_MAX: Final = 30
"""After so many at most a member goes, and comes back."""
_LISTS_PAUSE_MS: Final = 150
_PAUSES_MS: Final = (200, 1_500)


async def publish_broadcast(load: Load, producer: AsyncProducer) -> None:
    """Lists of few messages, until there shall be no more."""
    await publish_lists(load, producer, TOPIC, "news", pause_ms=_LISTS_PAUSE_MS)


async def listen(load: Load, channel: Channel, member: str) -> None:
    """Take down what a member gets, for ever; now and then it goes and comes back."""
    chooser = load.chooser(f"member {member}")
    if member != MEMBERS[0]:
        await load.pass_ms(_LATE_MS)
    while True:
        consumer = AsyncConsumer(
            channel,
            group=BROADCAST,
            topic=TOPIC,
            broadcast=Broadcast(member=member, start="first", idle_ms=_IDLE_MS),
            unavailable_ms_max=load.hang_s * 1_000,
        )
        try:
            await until_answered(consumer.open)
            for _ in range(chooser.randint(1, _ANSWERS_MAX)):
                await _hear(load, consumer, member)
        finally:
            with suppress(errors.HourwheelError):
                await consumer.close()


async def _hear(load: Load, consumer: AsyncConsumer, member: str) -> None:
    messages = await consumer.receive(64, wait_ms=1_000)
    done_ms: float | None = None
    try:
        with suppress(errors.HourwheelError), load.asking():  # then they come again
            await consumer.ack(messages)
            done_ms = load.clock.wall_ms()
    finally:
        load.history.heard += [
            Heard(member, serial_of(one.body) or 0, one.receive_ms, done_ms) for one in messages
        ]
    load.note()


async def pause_and_resume(load: Load, admin: AsyncAdmin) -> None:
    """The group beside it, until there shall be no more messages; in the end it is not paused."""
    chooser, is_paused = load.chooser("pause"), False
    while not load.is_stopping or is_paused:
        await load.pass_ms(chooser.randint(*_PAUSES_MS))
        is_paused = not is_paused
        requested_ms = load.clock.wall_ms()
        answered_ms: float | None = None
        change = partial(admin.update_group, PAUSED, is_paused=is_paused)
        try:
            with load.asking():
                await until_answered(change)
            answered_ms = load.clock.wall_ms()
        finally:
            load.history.pauses.append(Pause(is_paused, requested_ms, answered_ms))
        load.note()


def check_members(
    history: History, stored: Stored, clock_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I1: each member of a broadcast gets each message, and none that it is done with."""
    if not history.heard:
        return
    released = {one.sequence for one in stored.queued if one.topic == TOPIC}
    serials = {stored.messages[one].serial for one in released & stored.messages.keys()}
    for member in MEMBERS:
        heard = [one for one in history.heard if one.member == member]
        for serial in serials - {one.serial for one in heard} if not history.is_cut_off else ():
            yield "missed by a member", f"{serial} never came to {member}"
        done = {one.serial: one.done_ms for one in heard if one.done_ms is not None}
        for one in heard:
            if one.receive_ms > done.get(one.serial, one.receive_ms) + clock_ms:
                yield "delivered after ack", f"{member} was done with it: {one}"


def check_pauses(history: History, clock_ms: float = 0.0) -> Iterator[tuple[str, str]]:
    """I10: a group that was paused gets nothing until its resumption is requested."""
    pauses = history.pauses
    came = [one for one in history.deliveries if one.group == PAUSED]
    for at, pause in enumerate(pauses):
        if not pause.is_paused or pause.answered_ms is None:
            continue
        end_ms = pauses[at + 1].requested_ms if at + 1 < len(pauses) else float("inf")
        for one in came:
            if pause.answered_ms + clock_ms < one.receive_ms < end_ms - clock_ms:
                yield "while paused", f"{pause}, and then came {one}"
