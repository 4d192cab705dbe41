"""Hourwheel: schedule a message for any moment in the next years; it is delivered then, once.

This package is what other programs import: the vocabulary, the formats on the wire and on disk, and
the client. The server's rooms (`storage`, `timewheel`, `node`, ...) import it; it imports none of
them.

    from hourwheel import App                                      # handlers, run by workers
    from hourwheel import Consumer, Message, Producer              # blocking
    from hourwheel import AsyncConsumer, AsyncProducer, Message    # asyncio

The names below are loaded when they are first used, so that a program which needs only a format
(`hourwheel.formats.record_batch`) does not load gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hourwheel.client.admin import AsyncAdmin
    from hourwheel.client.batch_builder import Columns
    from hourwheel.client.blocking import Admin, Consumer, Producer
    from hourwheel.client.consumer import AsyncConsumer
    from hourwheel.client.groups.membership import Broadcast
    from hourwheel.client.message import Message, ReceivedBatch, ReceivedMessage
    from hourwheel.client.message_ids import DedupAnswer, PublishedIds
    from hourwheel.client.producer import AsyncProducer
    from hourwheel.client.recurring.recurrences import Recurrence, Times
    from hourwheel.client.transactions.blocking import Transactions
    from hourwheel.client.transactions.client import AsyncTransactions, CheckSettings
    from hourwheel.client.transactions.words import CheckedTransaction, RollBack
    from hourwheel.delay_levels import RetryPreset
    from hourwheel.errors import HourwheelError
    from hourwheel.filter_language.inputs import Sql, Tags
    from hourwheel.filter_language.text import FilterExpression
    from hourwheel.formats.message_id import MessageId
    from hourwheel.formats.meta import MessageMeta
    from hourwheel.formats.tag_gene import GeneKind, GeneSpec
    from hourwheel.outcomes import (
        CancelOutcome,
        DeadLetterReason,
        DedupOutcome,
        IfPending,
        MessageState,
        Missed,
        RescheduleOutcome,
        TransactionState,
    )
    from hourwheel.transport.access import Tls
    from hourwheel.transport.channel import Channel
    from hourwheel.workers.app import App
    from hourwheel.workers.handler import MessageContext
    from hourwheel.workers.results import Reject, Retry

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "App",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTransactions",
    "Broadcast",
    "CancelOutcome",
    "Channel",
    "CheckSettings",
    "CheckedTransaction",
    "Columns",
    "Consumer",
    "DeadLetterReason",
    "DedupAnswer",
    "DedupOutcome",
    "FilterExpression",
    "GeneKind",
    "GeneSpec",
    "HourwheelError",
    "IfPending",
    "Message",
    "MessageContext",
    "MessageId",
    "MessageMeta",
    "MessageState",
    "Missed",
    "Producer",
    "PublishedIds",
    "ReceivedBatch",
    "ReceivedMessage",
    "Recurrence",
    "Reject",
    "RescheduleOutcome",
    "Retry",
    "RetryPreset",
    "RollBack",
    "Sql",
    "Tags",
    "Times",
    "Tls",
    "TransactionState",
    "Transactions",
]

_HOMES = {
    "Admin": "client.blocking",
    "App": "workers.app",
    "AsyncAdmin": "client.admin",
    "AsyncConsumer": "client.consumer",
    "AsyncProducer": "client.producer",
    "Broadcast": "client.groups.membership",
    "CancelOutcome": "outcomes",
    "Channel": "transport.channel",
    "Columns": "client.batch_builder",
    "Consumer": "client.blocking",
    "FilterExpression": "filter_language.text",
    "GeneKind": "formats.tag_gene",
    "GeneSpec": "formats.tag_gene",
    "HourwheelError": "errors",
    "Message": "client.message",
    "MessageContext": "workers.handler",
    "MessageId": "formats.message_id",
    "MessageMeta": "formats.meta",
    "DeadLetterReason": "outcomes",
    "DedupAnswer": "client.message_ids",
    "DedupOutcome": "outcomes",
    "IfPending": "outcomes",
    "MessageState": "outcomes",
    "Missed": "outcomes",
    "Producer": "client.blocking",
    "PublishedIds": "client.message_ids",
    "ReceivedBatch": "client.message",
    "ReceivedMessage": "client.message",
    "Recurrence": "client.recurring.recurrences",
    "Reject": "workers.results",
    "RescheduleOutcome": "outcomes",
    "Retry": "workers.results",
    "RetryPreset": "delay_levels",
    "Sql": "filter_language.inputs",
    "Tags": "filter_language.inputs",
    "AsyncTransactions": "client.transactions.client",
    "CheckSettings": "client.transactions.client",
    "CheckedTransaction": "client.transactions.words",
    "RollBack": "client.transactions.words",
    "Times": "client.recurring.recurrences",
    "Tls": "transport.access",
    "TransactionState": "outcomes",
    "Transactions": "client.transactions.blocking",
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
