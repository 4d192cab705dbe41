"""What blocks ordered groups, blocking: a part of `hourwheel.client.blocking.Admin`."""

from collections.abc import Sequence

from hourwheel.client.groups.positions import SkipAdmin
from hourwheel.client.loop_thread import LoopThread
from hourwheel.formats.message_id import MessageId


class BlockingUnblock:
    """Calls of an asyncio administrator, from any thread."""

    _thread: LoopThread
    _twin: SkipAdmin

    def unblock(
        self, group: str, topic: str, message_ids: Sequence[MessageId], action: str = "retry"
    ) -> int:
        """See `AsyncAdmin.unblock`."""
        return self._thread.run(self._twin.unblock(group, topic, message_ids, action))
