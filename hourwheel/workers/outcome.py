"""Tells the broker what became of a message."""

import logging

from hourwheel import errors, limits
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import ReceivedMessage
from hourwheel.workers.results import Result, ResultKind

_log = logging.getLogger("hourwheel.worker")


async def tell(
    consumer: AsyncConsumer, message: ReceivedMessage, result: Result, handler_name: str
) -> None:
    """Acknowledge it soon, give it back or reject it, and log what is not done."""
    if result.kind is ResultKind.DONE:
        consumer.ack_soon(message)
        return
    _log.log(
        logging.INFO if result.kind is ResultKind.RETRY else logging.WARNING,
        "%s %s attempt %d of %s: %s",
        result.kind.name.lower(),
        message.message_id,
        message.attempt,
        handler_name,
        result.error,
        extra={
            "hourwheel_message_id": str(message.message_id),
            "hourwheel_topic": message.topic,
            "hourwheel_attempt": message.attempt,
            "hourwheel_handler": handler_name,
            "hourwheel_result": result.kind.name.lower(),
        },
    )
    await give_back(consumer, message, result)


async def give_back(consumer: AsyncConsumer, message: ReceivedMessage, result: Result) -> None:
    """Give it to the group again, or to its dead letters, as the result says."""
    try:
        if result.kind is ResultKind.REJECTED:
            raw = result.error.encode(errors="replace")[: limits.NACK_REASON_BYTES_MAX]
            reason = raw.decode(errors="ignore")
            await consumer.nack([message], dead_letter=True, reason=reason)
        else:
            await consumer.nack([message], result.delay_ms, not_begun=not result.was_begun)
    except errors.StaleReceipt:
        return  # its lease is over, and so it comes again in any case
    except errors.HourwheelError as error:
        _log.warning("%s comes again when its lease ends: %s", message.message_id, error)
