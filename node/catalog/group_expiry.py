"""Groups that receiving made and nobody uses: found in slices, and deleted one at a time.

A group is unused if it was made by receiving (`GroupConfig.automatic`), has never resolved a
message, has no lease, filter or dead letter, nobody else receives what it gave back, and no call
has named it for `group_idle_ms`. So nothing is known of it that a new group of its name would not
know as well: whoever receives for it again, makes it again, and gets the same messages.

Who has used what, the master keeps in memory. A new one counts from its own beginning.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from hourwheel.errors import HourwheelError, Internal
from hourwheel.types import topic_queue
from node.catalog.name_uses import NameUses, Use
from node.catalog.service import Configurator, DefaultsConfig
from node.shard.shard import Shard
from node.telemetry import logs
from node.telemetry.stats import EngineStats
from storage.views.catalog_items import Group

_log = logs.get(__name__)

_LOOKED_AT_ONCE: Final = 64
_SUBSCRIPTIONS_MAX: Final = 16
"""A group with more is left alone: it was no typing error, and looking at it would take long."""


class GroupExpiry:
    """Looks for unused groups while this node is the master.

    Invariant: no group is proposed for deletion while a call that names it is under way, nor while
    something is not applied that was appended for it.
    """

    def __init__(
        self,
        shard: Shard,
        configurator: Configurator,
        defaults: DefaultsConfig,
        stats: EngineStats,
        fail: Callable[[HourwheelError], None],
    ) -> None:
        """`fail` is told of what must stop the node."""
        self._shard, self._configurator, self._stats = shard, configurator, stats
        self._fail = fail
        # A group that would not be made again is kept.
        self._idle_ms = defaults.group_idle_ms if defaults.groups_auto_create else 0
        self._now_ms = 0
        self._uses = NameUses()
        self._after = ""
        self._found: tuple[int, int] | None = None
        """(A group that seems unused, the log's end then): what is in flight may be about it."""
        self._task: asyncio.Task[None] | None = None

    def begin(self, now_ms: int) -> None:
        """This node is the master from now on: it knows nothing of what was used before."""
        self._found = None
        self._uses.begin(now_ms)

    def close(self) -> None:
        """Nothing is deleted any more."""
        if self._task is not None:
            self._task.cancel()

    def using(self, group_id: int, now_ms: Callable[[], int]) -> Use:
        """A call that names this group."""
        return self._uses.using(group_id, now_ms)

    # -- finding ----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Look at some groups, and have one deleted that was unused before, too."""
        self._now_ms = now_ms
        if not self._idle_ms or (self._task is not None and not self._task.done()):
            return
        if self._found is None:
            self._found = self._find()
            return
        group_id, end_offset = self._found
        if self._shard.views.applied_offset >= end_offset:
            self._found = None
            self._task = asyncio.get_running_loop().create_task(self._expire(group_id))

    def _find(self) -> tuple[int, int] | None:
        groups = self._shard.views.catalog.groups_after(self._after, _LOOKED_AT_ONCE)
        for group in groups:
            self._after = group.name
            self._uses.saw(group.group_id)
            if group.automatic and self._is_idle(group.group_id):
                # One at a time: to look closely may take a millisecond.
                is_unused = self._is_unused(group)
                return (group.group_id, self._shard.log.end_offset) if is_unused else None
        if len(groups) < _LOOKED_AT_ONCE:
            self._after = ""
            self._uses.turn_over()
        return None

    def _is_idle(self, group_id: int) -> bool:
        return self._uses.is_idle(group_id, self._now_ms - self._idle_ms)

    def _is_unused(self, group: Group) -> bool:
        """See the top."""
        catalog, group_id = self._shard.views.catalog, group.group_id
        if not group.automatic or not self._is_idle(group_id):
            return False
        subscriptions = catalog.subscriptions_of(group_id, count_max=_SUBSCRIPTIONS_MAX + 1)
        if len(subscriptions) > _SUBSCRIPTIONS_MAX:
            return False
        letters = group.dead_letter_topic_id
        start, end = self._shard.views.queues.bounds(topic_queue(letters, 0))
        return (
            start == end
            and not catalog.subscriptions_to(letters)
            and all(one.filter is None for one in subscriptions)
            and not any(catalog.subscriptions_to(one.retry_topic_id) for one in subscriptions)
            and not self._shard.receiver.leases.has_any(group_id)
            and not self._shard.views.acks.has_resolved(group_id)
        )

    async def _expire(self, group_id: int) -> None:
        group = self._shard.views.catalog.find_group_by_id(group_id)
        try:
            if await self._configurator.expire_group(group_id, self._is_unused):
                self._stats.groups_expired += 1
                _log.info("group_expired", group=group.name if group else "")
        except HourwheelError as error:  # not the master any more, or no room: another time
            _log.info("group_expiry_failed", reason=str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._fail(Internal(repr(error)))
