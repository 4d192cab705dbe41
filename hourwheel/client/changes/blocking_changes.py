"""Changes of messages, blocking: a part of `hourwheel.client.blocking.Producer`."""

from collections.abc import Sequence

from hourwheel.client.changes.cancellation import Ids, KeyCancelled
from hourwheel.client.changes.rescheduling import KeyRescheduled, Rescheduled
from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId


class BlockingChanges:
    """Calls of an asyncio producer, from any thread."""

    _thread: LoopThread
    _twin: AsyncProducer

    def publish_unique(self, topic: str, message: Message) -> DedupAnswer:
        """See `AsyncProducer.publish_unique`."""
        return self._thread.run(self._twin.publish_unique(topic, message))

    def debounce(self, topic: str, key: str, message: Message) -> DedupAnswer:
        """See `AsyncProducer.debounce`."""
        return self._thread.run(self._twin.debounce(topic, key, message))

    def cancel_by_key(self, topic: str, key: str) -> KeyCancelled:
        """See `AsyncProducer.cancel_by_key`."""
        return self._thread.run(self._twin.cancel_by_key(topic, key))

    def cancel_by_keys(self, topic: str, keys: Sequence[str]) -> list[KeyCancelled]:
        """See `AsyncProducer.cancel_by_keys`."""
        return self._thread.run(self._twin.cancel_by_keys(topic, keys))

    def reschedule(self, message_id: MessageId | str, **when: int | None) -> Rescheduled:
        """See `AsyncProducer.reschedule`."""
        return self._thread.run(self._twin.reschedule(message_id, **when))

    def reschedule_many(self, ids: Ids, **when: int | Sequence[int] | None) -> list[Rescheduled]:
        """See `AsyncProducer.reschedule_many`."""
        return self._thread.run(self._twin.reschedule_many(ids, **when))

    def reschedule_by_key(self, topic: str, key: str, **when: int | None) -> KeyRescheduled:
        """See `AsyncProducer.reschedule_by_key`."""
        return self._thread.run(self._twin.reschedule_by_key(topic, key, **when))

    def reschedule_by_keys(
        self, topic: str, keys: Sequence[str], **when: int | Sequence[int] | None
    ) -> list[KeyRescheduled]:
        """See `AsyncProducer.reschedule_by_keys`."""
        return self._thread.run(self._twin.reschedule_by_keys(topic, keys, **when))
