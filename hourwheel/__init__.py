"""Hourwheel: schedule a message for any moment in the next years; it is delivered then, once.

This package is what other programs import: the vocabulary, the formats on the wire and on disk, and
the client. The server's rooms (`storage`, `timewheel`, `node`, ...) import it; it imports none of
them.

    from hourwheel import Consumer, Message, Producer              # blocking
    from hourwheel import AsyncConsumer, AsyncProducer, Message    # asyncio

The names below are loaded when they are first used, so that a program which needs only a format
(`hourwheel.record_batch`) does not load gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hourwheel.admin import AsyncAdmin
    from hourwheel.batch_builder import Columns
    from hourwheel.blocking import Admin, Consumer, Producer
    from hourwheel.channel import Channel
    from hourwheel.consumer import AsyncConsumer
    from hourwheel.errors import HourwheelError
    from hourwheel.filter_given import Sql, Tags
    from hourwheel.filter_text import FilterExpression
    from hourwheel.message import Message, ReceivedBatch, ReceivedMessage
    from hourwheel.message_id import MessageId
    from hourwheel.meta import MessageMeta
    from hourwheel.outcomes import CancelOutcome, DeadLetterReason, MessageState
    from hourwheel.producer import AsyncProducer
    from hourwheel.published import PublishedIds
    from hourwheel.tag_gene import GeneKind, GeneSpec

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "CancelOutcome",
    "Channel",
    "Columns",
    "Consumer",
    "DeadLetterReason",
    "FilterExpression",
    "GeneKind",
    "GeneSpec",
    "HourwheelError",
    "Message",
    "MessageId",
    "MessageMeta",
    "MessageState",
    "Producer",
    "PublishedIds",
    "ReceivedBatch",
    "ReceivedMessage",
    "Sql",
    "Tags",
]

_HOMES = {
    "Admin": "blocking",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "CancelOutcome": "outcomes",
    "Channel": "channel",
    "Columns": "batch_builder",
    "Consumer": "blocking",
    "FilterExpression": "filter_text",
    "GeneKind": "tag_gene",
    "GeneSpec": "tag_gene",
    "HourwheelError": "errors",
    "Message": "message",
    "MessageId": "message_id",
    "MessageMeta": "meta",
    "DeadLetterReason": "outcomes",
    "MessageState": "outcomes",
    "Producer": "blocking",
    "PublishedIds": "published",
    "ReceivedBatch": "message",
    "ReceivedMessage": "message",
    "Sql": "filter_given",
    "Tags": "filter_given",
}


if not TYPE_CHECKING:  # a type checker would take it as "any name is fine"

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first asked for."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'hourwheel' has no attribute {name!r}")
        value = getattr(import_module(f"hourwheel.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
