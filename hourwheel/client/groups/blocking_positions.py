"""Where groups begin anew, and what blocks ordered ones: a part of the blocking `Admin`."""

from collections.abc import Sequence
from datetime import datetime

from hourwheel.client.groups.positions import GroupReset, SkipAdmin
from hourwheel.client.loop_thread import LoopThread
from hourwheel.formats.message_id import MessageId


class BlockingPositions:
    """Calls of an asyncio administrator, from any thread."""

    _thread: LoopThread
    _twin: SkipAdmin

    def reset_group(
        self,
        group: str,
        topic: str,
        to: str | int | datetime | None = None,
        *,
        positions: Sequence[int] = (),
        count_only: bool = False,
    ) -> GroupReset:
        """See `AsyncAdmin.reset_group`."""
        return self._thread.run(
            self._twin.reset_group(group, topic, to, positions=positions, count_only=count_only)
        )

    def unblock(
        self, group: str, topic: str, message_ids: Sequence[MessageId], action: str = "retry"
    ) -> int:
        """See `AsyncAdmin.unblock`."""
        return self._thread.run(self._twin.unblock(group, topic, message_ids, action))
