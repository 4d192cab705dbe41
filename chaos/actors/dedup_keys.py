"""Messages with dedup keys under load: of few keys, each with one of the things to do."""

from typing import Final

from chaos.actors.load import Load
from chaos.history import Unique, body_of
from hourwheel import (
    AsyncProducer,
    DedupAnswer,
    DedupOutcome,
    IfPending,
    Message,
    MessageId,
    errors,
)

_TOPIC: Final = "beta"
_PAUSE_MS: Final = 50


async def publish_unique(load: Load, producer: AsyncProducer) -> None:
    """One message a call, until there shall be no more."""
    chooser = load.chooser("unique")
    known: dict[MessageId, int] = {}
    while not load.is_stopping:
        (serial,), (at,), is_delay = load.make(_TOPIC, 1, chooser, with_far=False)
        message = Message(
            body_of(serial),
            delay_ms=at if is_delay else None,
            due_ms=None if is_delay else at,
            dedup_key=f"name-{chooser.randrange(load.mix.unique_names)}",
            if_pending=chooser.choice(list(IfPending)),
        )
        try:
            with load.asking():
                answer = await producer.publish_unique(_TOPIC, message)
        except errors.HourwheelError as error:
            load.given_up.append(error)
            load.fail([serial], error)
        else:
            _take_down(load, serial, message.dedup_key, answer, known)
            if answer.outcome in {DedupOutcome.PUBLISHED, DedupOutcome.REPLACED}:
                load.accept([serial], [answer.message_id], chooser)
        await load.pass_ms(_PAUSE_MS)


def _take_down(
    load: Load,
    serial: int,
    name: str,
    answer: DedupAnswer,
    known: dict[MessageId, int],
) -> None:
    """`known`: the messages with dedup keys that are stored."""
    pending_id = answer.replaced_id
    if answer.outcome in {DedupOutcome.REJECTED, DedupOutcome.KEPT}:
        pending_id = answer.message_id
        load.close(serial)
        load.history.refused.add(serial)
        load.note()
    else:
        known[answer.message_id] = serial
    if answer.replaced_id is not None:
        load.close(known.get(answer.replaced_id, -1))
    load.history.uniques.append(Unique(serial, name, answer.outcome, pending_id))
