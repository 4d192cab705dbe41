"""What is scheduled, counted and changed, blocking: a part of `hourwheel.client.blocking.Admin`."""

from typing import Any

from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.pending import (
    PendingAdmin,
    PendingCancelled,
    PendingCount,
    PendingRescheduled,
)
from hourwheel.filter_language.text import FilterExpression


class BlockingPending:
    """Calls of an asyncio administrator, from any thread."""

    _thread: LoopThread
    _twin: PendingAdmin

    def count_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **settings: Any,
    ) -> PendingCount:
        """See `AsyncAdmin.count_pending`."""
        return self._thread.run(self._twin.count_pending(topic, filter, **settings))

    def cancel_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **settings: Any,
    ) -> PendingCancelled:
        """See `AsyncAdmin.cancel_pending`; `on_progress` is called in the client's own thread."""
        return self._thread.run(self._twin.cancel_pending(topic, filter, **settings))

    def reschedule_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **settings: Any,
    ) -> PendingRescheduled:
        """See `AsyncAdmin.reschedule_pending`; `on_progress` is called in the client's thread."""
        return self._thread.run(self._twin.reschedule_pending(topic, filter, **settings))
