"""Dead letters that are re-driven under load, again and again, until their messages are done with.

The consumer of the group rejects many of its messages, also those that come again; another actor
gives the group its dead letters back. No other actor reads the topic.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

from chaos.actors.load import Load, publish_lists
from chaos.actors.resets import lease_of
from chaos.actors.transactions import until_answered
from chaos.history import Chance, History, Redrive, Stored, serial_of
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Channel,
    ReceivedMessage,
    errors,
)
from hourwheel.transport.retry import is_undecided

TOPIC: Final = "iota"
QUEUES: Final = 2
GROUP: Final = "iota-again"
TOPICS_AGAIN: Final = frozenset({f"%RETRY%{GROUP}|{TOPIC}", f"%DLQ%{GROUP}"})
"""A message stands here as often as it was re-driven."""
_ATTEMPTS_MAX: Final = 64
_INVISIBLE_MS: Final = 1_500
_REJECT_RATIO: Final = 0.4
_LISTS_PAUSE_MS: Final = 150
_REDRIVES_PAUSE_MS: Final = (100, 900)


async def publish_rejected(load: Load, producer: AsyncProducer) -> None:
    """Lists of few messages, until there shall be no more."""
    await publish_lists(load, producer, TOPIC, "doomed", pause_ms=_LISTS_PAUSE_MS)


async def serve(load: Load, channel: Channel, admin: AsyncAdmin) -> None:
    """Reject some of what comes, and be done with the rest, for ever; then close."""
    await until_answered(
        lambda: admin.put_group(
            GROUP, attempts_max=_ATTEMPTS_MAX, invisible_ms=_INVISIBLE_MS, retry_delay_ms=50
        )
    )
    chooser = load.chooser("reject")
    consumer = AsyncConsumer(
        channel, group=GROUP, topic=TOPIC, unavailable_ms_max=load.hang_s * 1_000
    )
    try:
        while True:
            messages = await consumer.receive(64)
            ends: dict[str, list[ReceivedMessage]] = {"reject": [], "ack": []}
            for one in messages:
                is_rejected = not load.is_stopping and chooser.random() < _REJECT_RATIO
                ends["reject" if is_rejected else "ack"].append(one)
                load.close(serial_of(one.body) or 0)
            for end, some in ends.items():
                if some:
                    await _finish(load, consumer, end, some)
    finally:
        with suppress(errors.HourwheelError):
            await consumer.close()


async def _finish(
    load: Load, consumer: AsyncConsumer, end: str, messages: list[ReceivedMessage]
) -> None:
    requested_ms, is_ok = load.clock.wall_ms(), False
    try:
        # Of some of them it may be done all the same, or an answer was lost.
        with suppress(errors.HourwheelError), load.asking():
            if end == "ack":
                await consumer.ack(messages)
            else:
                await consumer.nack(messages, dead_letter=True, reason="by chance")
            is_ok = True
    finally:
        at_ms = requested_ms, load.clock.wall_ms()
        for one in messages:
            seen = serial_of(one.body) or 0, one.attempt, *lease_of(one), one.receive_ms
            load.history.chances.append(Chance(*seen, end, is_ok, *at_ms))
    load.note()


async def redrive(load: Load, admin: AsyncAdmin) -> None:
    """All dead letters, again and again; once more when there shall be no more messages."""
    chooser = load.chooser("redrive")
    while not load.is_stopping:
        await load.pass_ms(chooser.randint(*_REDRIVES_PAUSE_MS))
        await _redrive(load, admin)
    while not await _redrive(load, admin):
        await load.pass_ms(_REDRIVES_PAUSE_MS[0])


async def _redrive(load: Load, admin: AsyncAdmin) -> bool:
    """Once; what failed may be done in part. Whether it is done."""
    requested_ms = load.clock.wall_ms()
    answered_ms: float | None = None
    count, is_refused = 0, False
    try:
        with load.asking():
            count = (await admin.redrive(GROUP, "*")).redriven_count
        answered_ms = load.clock.wall_ms()
    except errors.HourwheelError as error:
        is_refused = not is_undecided(error)
    finally:
        if not is_refused:
            load.history.redrives.append(Redrive(count, requested_ms, answered_ms))
    load.note()
    return answered_ms is not None


def check_redrives(
    history: History, stored: Stored, clock_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I10: each dead letter comes again once for each re-drive, and what is done with never."""
    chances: dict[int, list[Chance]] = defaultdict(list)
    for one in history.chances:
        chances[one.serial].append(one)
    for some in chances.values():
        some.sort(key=lambda one: (one.receive_ms, one.attempt))
        yield from _too_often(some, clock_ms)
        if not history.is_cut_off:
            yield from _never_again(some, history.redrives)
    for entry in () if history.is_cut_off else stored.queued:
        kept = stored.messages.get(entry.sequence)
        if entry.topic == TOPIC and kept is not None and kept.serial not in chances:
            yield "not delivered", f"{kept.serial} never came to {GROUP}"


def _too_often(chances: list[Chance], clock_ms: float) -> Iterator[tuple[str, str]]:
    """Only a re-drive has the attempts begin anew, and only what was rejected is re-driven."""
    begun_count = 0
    for before, after in pairwise(chances):
        is_same = after.attempt == before.attempt and after.epoch == before.epoch
        if after.attempt < before.attempt or is_same:
            begun_count += 1
            rejected = [
                one
                for one in chances
                if one.end == "reject" and one.requested_ms <= after.receive_ms + clock_ms
            ]
            if begun_count > len(rejected):
                yield "re-driven twice", f"rejected {len(rejected)} times: {before}, then {after}"
    for ack in chances:
        for one in chances:
            is_later = one.receive_ms > ack.answered_ms + clock_ms
            if ack.end == "ack" and ack.is_ok and is_later:
                yield "delivered after ack", f"{ack} and then {one}"


def _never_again(chances: list[Chance], redrives: list[Redrive]) -> Iterator[tuple[str, str]]:
    last = chances[-1]
    if last.end != "reject" or not last.is_ok:
        return
    for one in redrives:
        if one.answered_ms is not None and one.requested_ms > last.answered_ms:
            yield "not re-driven", f"{last} was a dead letter, and nothing came of {one}"
            return
