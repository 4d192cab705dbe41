"""Recurrences, blocking: a part of `hourwheel.client.blocking.Admin`."""

from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Recurrence, RecurrenceAdmin, Times
from hourwheel.outcomes import Missed


class BlockingRecurrences:
    """Calls of an asyncio administrator, from any thread."""

    _thread: LoopThread
    _twin: RecurrenceAdmin

    def put_recurrence(
        self,
        topic: str,
        name: str,
        message: Message,
        times: Times,
        *,
        missed: Missed = Missed.ALL,
        expected_version: int | None = None,
    ) -> int:
        """See `AsyncAdmin.put_recurrence`."""
        return self._thread.run(
            self._twin.put_recurrence(
                topic, name, message, times, missed=missed, expected_version=expected_version
            )
        )

    def get_recurrence(self, topic: str, name: str) -> Recurrence:
        """See `AsyncAdmin.get_recurrence`."""
        return self._thread.run(self._twin.get_recurrence(topic, name))

    def recurrences(self, topic: str = "") -> list[Recurrence]:
        """See `AsyncAdmin.recurrences`."""
        return self._thread.run(self._twin.recurrences(topic))

    def pause_recurrence(self, topic: str, name: str) -> int:
        """See `AsyncAdmin.pause_recurrence`."""
        return self._thread.run(self._twin.pause_recurrence(topic, name))

    def resume_recurrence(self, topic: str, name: str) -> int:
        """See `AsyncAdmin.resume_recurrence`."""
        return self._thread.run(self._twin.resume_recurrence(topic, name))

    def delete_recurrence(self, topic: str, name: str) -> None:
        """See `AsyncAdmin.delete_recurrence`."""
        self._thread.run(self._twin.delete_recurrence(topic, name))

    def next_times(self, topic: str, of: str | Times, count: int = 10) -> list[int]:
        """See `AsyncAdmin.next_times`."""
        return self._thread.run(self._twin.next_times(topic, of, count))
