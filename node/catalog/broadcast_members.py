"""Members of broadcasts: each is a group of its own, made by joining, and gone when it is unused.

join    the group "%BROADCAST%<group>|<member>" and its subscription, in one commit; it begins
        with what is released from then on. Where there is one, it goes on where it was.
fence   each start of a member joins with a token of its own, which stands in its group: polls
        that have another one are refused. So the last who joined by a name has it, also behind
        a takeover.
expiry  no call has named the group for as long as it says, and it holds no lease: it is
        deleted with its retries and dead letters. Time in which no member could call does not
        count: a new master, and one that was cut off for a while, begin anew.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.member_group import MEMBER_PREFIX, SEPARATOR, membership_of
from hourwheel.limits import MEMBER_IDLE_MS_DEFAULT
from hourwheel.types import GroupId
from node.catalog import positions
from node.catalog.changes import DefaultsConfig, check_room
from node.catalog.filter_cache import read_filter
from node.catalog.name_uses import NameUses, Use
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.catalog.subscriptions import find_replaced, stored
from node.contracts.broadcast import Joining
from node.contracts.broker import GroupSettings
from node.telemetry import logs
from replication.control_state.catalog_commands import MEMBER_RULES
from storage.views.catalog_items import START_NOW_MS, Group

_LOOKED_AT_ONCE: Final = 256
"""Members, in a look: a tenth of a millisecond."""
_GAP_MS: Final = 5_000
"""Where no look came for so long, this node was away itself."""
_log = logs.get(__name__)


class BroadcastMembers:
    """See the top of this file. Of one mastership, on the event loop's thread."""

    def __init__(
        self, serving: Serving, catalog_service: CatalogService, defaults: DefaultsConfig
    ) -> None:
        """Nothing is known of what was used before this mastership."""
        self._serving, self._service, self._defaults = serving, catalog_service, defaults
        self._shard = serving.mastership.shard
        self._leases = serving.mastership.receiver.leases
        self._uses = NameUses()
        now_ms = serving.now_ms()
        self._uses.begin(now_ms)
        self._counted_from_ms = self._looked_ms = now_ms
        self._after = ""
        """The member that a walk looked at last."""
        self._task: asyncio.Task[None] | None = None

    def close(self, _: HourwheelError) -> None:
        """Nothing is deleted any more."""
        if self._task is not None:
            self._task.cancel()

    def using(self, group_id: GroupId, now_ms: Callable[[], int]) -> Use:
        """A call that names this member's group."""
        return self._uses.using(group_id, now_ms)

    # -- join and leave ---------------------------------------------------------------------------

    async def join(self, joining: Joining) -> bool:
        """See `BroadcastPort.join_broadcast`."""
        service, catalog = self._service, self._shard.views.catalog
        kept = None if joining.filter is None else stored(await read_filter(joining.filter))
        async with service.changing():
            self._check(joining)
            known: Group | None = catalog.find_group(joining.group)
            if known is None:
                self._check_new(joining)
            else:
                await self._begin_again(known, joining)
            topic = catalog.find_topic(joining.topic)
            is_new = (
                known is None
                or topic is None
                or catalog.find_subscription(known.group_id, topic.topic_id) is None
            )
            group_id = await self._subscribe(joining, kept)
            with self.using(group_id, self._serving.now_ms):
                return is_new

    async def _subscribe(self, joining: Joining, kept: FilterExpression | None) -> GroupId:
        service = self._service
        settings = GroupSettings(
            start_ms=joining.start_ms,
            idle_ms_max=joining.idle_ms_max,
            member_token=joining.token,
        )
        subscription, group = await service.make_subscription(
            joining.group, joining.topic, kept, service.topic_to_receive, settings=settings
        )
        await service.change_filter(subscription, kept)
        return group.group_id

    def _check(self, joining: Joining) -> None:
        name = membership_of(joining.group).group
        if joining.start_ms > START_NOW_MS:
            positions.check_start(self._shard, joining.start_ms, self._serving.now_ms())
        if self._service.control_rules < MEMBER_RULES:
            raise errors.FeatureLevelTooLow(
                "a node of an earlier version is in the cluster, which knows no broadcasts",
                rules=self._service.control_rules,
                rules_min=MEMBER_RULES,
            )
        topic = self._shard.views.catalog.find_topic(joining.topic)
        if topic is not None and topic.internal:
            raise errors.InvalidTopic("a broadcast has none of the cluster's own", topic=topic.name)
        if self._shard.views.catalog.find_group(name) is not None:
            raise errors.FailedPrecondition(
                f"{name!r} is a group whose consumers share its messages: name the broadcast"
                " otherwise, or delete that group",
                group=name,
            )

    def _check_new(self, joining: Joining) -> None:
        defaults, catalog = self._defaults, self._shard.views.catalog
        if not defaults.groups_auto_create:
            raise errors.UnknownGroup(
                "groups.auto_create is off, and joining a broadcast would make a group",
                group=joining.group,
            )
        count = catalog.count_groups(MEMBER_PREFIX)
        check_room("broadcast_members", count, defaults.members_max)
        if count >= defaults.members_per_broadcast_max:
            check_room(
                "members_per_broadcast",
                self._count_of(membership_of(joining.group).group, count),
                defaults.members_per_broadcast_max,
            )

    def _count_of(self, broadcast: str, member_count: int) -> int:
        """How many of all members are those of one broadcast."""
        prefix = f"{MEMBER_PREFIX}{broadcast}{SEPARATOR}"
        found = self._shard.views.catalog.groups_after(prefix, member_count)
        names = [one.name.removeprefix(prefix) for one in found if one.name.startswith(prefix)]
        return sum(SEPARATOR not in name for name in names)  # else of a longer name

    async def _begin_again(self, known: Group, joining: Joining) -> None:
        """The last who joins has the name; polls of those before are refused."""
        changed = replace(
            known,
            member_token=joining.token,
            idle_ms_max=joining.idle_ms_max,
            start_ms=joining.start_ms,  # for topics that are new to it
        )
        if changed != known:
            await self._service.change_group(changed, known)

    async def leave(self, group: str, token: int) -> None:
        """See `BroadcastPort.leave_broadcast`."""
        known = self._shard.views.catalog.find_group(group)
        if known is None:
            return
        replaced = find_replaced(self._shard.views.catalog, known.group_id, token)
        if replaced is not None:
            raise replaced
        await self._service.expire_group(known.group_id, lambda one: one.member_token == token)

    # -- expiry -----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Once a second, while this node may act: look at some members."""
        if now_ms - self._looked_ms > _GAP_MS:
            self._counted_from_ms = now_ms
        self._looked_ms = now_ms
        if self._task is not None and not self._task.done():
            return
        unused = [one.group_id for one in self._walk() if self._is_unused(one)]
        if unused:
            self._task = asyncio.get_running_loop().create_task(self._expire(unused))

    def _walk(self) -> list[Group]:
        after = self._after or MEMBER_PREFIX
        found = self._shard.views.catalog.groups_after(after, _LOOKED_AT_ONCE)
        found = [one for one in found if one.is_member]
        for one in found:
            self._uses.saw(one.group_id)
        self._after = found[-1].name if len(found) == _LOOKED_AT_ONCE else ""
        if not self._after:
            self._uses.turn_over()
        return found

    def _is_unused(self, group: Group) -> bool:
        before_ms = self._looked_ms - (group.idle_ms_max or MEMBER_IDLE_MS_DEFAULT)
        return (
            self._counted_from_ms <= before_ms
            and self._uses.is_idle(group.group_id, before_ms)
            and not self._leases.has_any(group.group_id)
        )

    async def _expire(self, unused: list[GroupId]) -> None:
        """One at a time: others may join in between."""
        try:
            for group_id in unused:
                if await self._service.expire_group(group_id, self._is_unused):
                    self._serving.stats.members_expired += 1
                    _log.info("broadcast_member_expired", group_id=group_id)
        except HourwheelError as error:  # not the master any more, or no room: another time
            _log.info("broadcast_member_expiry_failed", reason=str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._serving.fail(errors.Internal(repr(error)))
