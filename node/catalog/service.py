"""The catalog service: makes, changes and deletes topics, groups and subscriptions.

`node/catalog/owner.py` knows who decides about them, and `node/catalog/listing.py` reads them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Final

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.member_group import is_member_group
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.types import DISPATCH_TOPIC, GroupId, TopicId, topic_queue
from node.catalog import positions
from node.catalog.changes import (
    DefaultsConfig,
    check_alike,
    check_may_read,
    check_order,
    check_retention,
    check_room,
    check_version,
    given,
    group_config,
    with_settings,
)
from node.catalog.filter_cache import read_filter
from node.catalog.listing import Listing
from node.catalog.log_changes import NO_NUMBER, LogChanges
from node.catalog.owner import CatalogOwner, gone
from node.catalog.serving import Serving
from node.catalog.subscriptions import Subscribed, check_member, find_mismatch, stored
from node.contracts.broker import (
    CatalogUpdate,
    GroupInfo,
    GroupSettings,
    NewTopic,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.control import CatalogControl
from node.shard.group_queue import GroupQueue
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription, Topic
from storage.views.catalog_names import (
    DEAD_LETTER_PREFIX,
    dead_letter_topic_name,
    retry_topic_name,
    validate_group_name,
    validate_known_group_name,
    validate_topic_name,
)

_WOKEN_AT_ONCE: Final = 128
"""Subscriptions whose polls look again in one turn of the loop."""


class CatalogService:
    """Changes what there is, by the owner of the catalog (`CatalogOwner`): one thing at a time.

    But topics that publishing makes come together, as their first messages do. What is appended is
    used at once: a topic's CONFIG record stands before the PUBLISH.
    """

    def __init__(
        self,
        serving: Serving,
        defaults: DefaultsConfig,
        resolve_filtered: Callable[[int, GroupQueue], object],
        on_filter: Callable[[GroupId, TopicId], object],
        control: CatalogControl | None = None,
    ) -> None:
        """Propose what `serving` appends.

        `resolve_filtered`: puts a group's filtered ranges of a queue into the log; `on_filter` is
        called with the group and topic of a subscription whose filter has changed; `control`
        decides about topics and groups (None: the log alone does).
        """
        self._mastership = serving.mastership
        self._shard, self._receiver = self._mastership.shard, self._mastership.receiver
        self._now_ms, self._propose = serving.now_ms, serving.propose
        self._defaults, self._on_filter = defaults, on_filter
        self._resolve_filtered = resolve_filtered
        self.listing = Listing(self._shard, self._receiver)
        self._lock = asyncio.Lock()
        self._log = LogChanges(serving)
        self.reset_subscription = self._log.reset_subscription
        self._owner = CatalogOwner(serving, self._log, self._lock, control, self._drop_group)
        self._making: dict[str, asyncio.Task[None]] = {}
        """Topics that publishing makes, and that the control plane has to decide about first."""
        self._expiring, self._expiring_topic = 0, ""
        """Number of the unused group, and name of the unused topic, that is being deleted."""
        self._starting: set[tuple[str, str]] = set()
        """Group and topic of a subscription that is made, and not yet where it begins."""
        self._unsettled: dict[str, int] = {}
        """Unused topic that is being deleted -> 1, and one for each call that waits for it."""

    @property
    def control_rules(self) -> int:
        """By which the control state decides about groups; 0: the log alone does."""
        return self._owner.control_rules

    def resume(self) -> None:
        """This node may act, or a second has gone by: what the log lacks is appended."""
        self._owner.resume()

    def close(self, error: errors.HourwheelError) -> None:
        """The mastership is over."""
        self._owner.close(error)

    def _drop_group(self, group_id: GroupId) -> None:
        self._receiver.leases.drop_group(group_id)
        self._receiver.ordered.drop_group(group_id)
        self._receiver.filtered_ranges.drop_group(group_id)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """One change of a kind at a time, made when who decides knows all that there is."""
        async with self._lock:
            await self._owner.make_ready()
            yield

    @property
    def _catalog(self) -> Catalog:
        return self._shard.views.catalog

    # -- topics -----------------------------------------------------------------------------------

    async def settle_topic(self, name: str) -> None:
        """Wait while the topic of this name is being deleted as unused, or made.

        Calls that wait go on in the order in which they came, each up to where it waits next.

        Raises:
            Unavailable: it is to be made, and cannot be for now; nothing was done.
            LimitReached: it is to be made, and there are too many.
        """
        if name in self._unsettled:
            with self._unsettling(name):
                async with self._lock:
                    pass
        if self.has_to_wait(name):
            await self._make_for_publishing(name)

    def has_to_wait(self, name: str) -> bool:
        """Whether publishing to this topic waits for something before it is appended."""
        if name in self._unsettled:
            return True
        if self._owner.is_log_alone or not self._defaults.topics_auto_create:
            return False
        topic = self._log.find_topic(name)
        return topic is None or self._log.is_deleting(topic.topic_id)

    async def _make_for_publishing(self, name: str) -> None:
        """Have a topic made by who decides. All who publish to it wait for one command."""
        validate_topic_name(name)
        if not self._owner.is_ready:
            async with self.changing():
                pass
        if self._owner.is_log_alone or not self.has_to_wait(name):
            return
        making = self._making.get(name)
        if making is None:
            self._check_topic_room(len(self._making))
            count = self._defaults.topic_queue_count
            topic = Topic(TopicId(NO_NUMBER), name, count, automatic=True)
            loop = asyncio.get_running_loop()
            making = self._making[name] = loop.create_task(self._owner.make_topic(topic))
            making.add_done_callback(lambda done: self._made(name, done))
        await asyncio.shield(making)

    def _made(self, name: str, done: "asyncio.Task[None]") -> None:
        del self._making[name]
        if not done.cancelled():
            done.exception()  # who asked may have gone

    def _check_topic_room(self, making_count: int) -> None:
        count = self._catalog.topic_count + self._log.new_topic_count + making_count
        check_room("topics", count, self._defaults.topics_max)

    @contextmanager
    def _unsettling(self, name: str) -> Iterator[None]:
        self._unsettled[name] = self._unsettled.get(name, 0) + 1
        try:
            yield
        finally:
            self._unsettled[name] -= 1
            if not self._unsettled[name]:
                del self._unsettled[name]

    def topic_to_publish(self, name: str, *, now_ms: int | None = None) -> Topic:
        """The topic of this name; the log alone makes it here, if need be.

        Args:
            name: its name.
            now_ms: when a record that makes it is stored; None: by the clock. A caller who has
                read the clock for its own record gives that: store times never go back.

        Raises:
            InvalidTopic: an illegal name, or one of the cluster's own topics.
            UnknownTopic: there is none, and none is made.
            TopicPaused: nothing may be published to it.
            Unavailable: it has gone since `settle_topic`.
        """
        topic = self._log.find_topic(name)
        is_alone = self._owner.is_log_alone
        if topic is not None and not is_alone and self._log.is_deleting(topic.topic_id):
            topic = None
        if not is_alone and name == self._expiring_topic:
            raise gone()  # what it was when the caller had waited for it is unknown
        if topic is not None and not topic.internal:
            if topic.is_paused:
                raise errors.TopicPaused(f"topic {name!r} is paused", topic=name)
            return topic
        validate_topic_name(name)
        if topic is not None:
            raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
        if not self._defaults.topics_auto_create:
            raise errors.UnknownTopic(f"there is no topic {name!r}", topic=name)
        if not is_alone:  # it was there when the caller had waited for it
            raise gone()
        self._check_topic_room(0)
        number, count = self._log.next_topic_id(), self._defaults.topic_queue_count
        topic = Topic(number, name, count, automatic=True, version=self._log.next_version())
        _ = self._log.put_topic(topic, now_ms=now_ms)
        return topic

    async def topic_to_receive(self, name: str) -> Topic:
        """The topic of this name, internal ones included; made only if the configuration says so.

        Else a typing error would make a topic, and wait for it for ever.
        """
        topic = self._log.find_topic(name)
        if topic is not None:
            return topic
        validate_topic_name(name)
        if not self._defaults.topics_auto_create_by_receiving:
            raise errors.UnknownTopic(
                f"there is no topic {name!r}: receiving does not make one, publishing to it does",
                topic=name,
            )
        return await self._make_unknown(name, automatic=True)

    async def _topic_to_subscribe(self, name: str) -> Topic:
        """The topic of this name, made if need be. The caller has the lock."""
        topic = self._log.find_topic(name)
        return topic or await self._make_unknown(name, automatic=False)

    async def _make_unknown(self, name: str, *, automatic: bool) -> Topic:
        validate_topic_name(name)
        if not self._defaults.topics_auto_create:
            raise errors.UnknownTopic(f"there is no topic {name!r}", topic=name)
        self._check_topic_room(0)
        count = self._defaults.topic_queue_count
        topic = Topic(TopicId(NO_NUMBER), name, count, automatic=automatic)
        return (await self._owner.add_topic(topic, None))[0]

    def gene_spec(self, name: str) -> GeneSpec:
        """How the genes of a topic's messages are made, also of one that publishing will make."""
        topic = self._log.find_topic(name)
        return DEFAULT_SPEC if topic is None else topic.gene

    async def create_topic(
        self, name: str, queue_count: int, wanted: NewTopic | None = None
    ) -> TopicInfo:
        """See EnginePort."""
        validate_topic_name(name)
        gene, retention_ms = wanted or NewTopic()
        async with self.changing():
            await self._log.settle()
            found = self._catalog.find_topic(name)
            count = queue_count or self._defaults.topic_queue_count
            if found is None:
                self._check_topic_room(0)
                number = TopicId(NO_NUMBER)
                plain = Topic(number, name, count, gene=gene or DEFAULT_SPEC)
                topic = replace(plain, retention_ms=retention_ms or 0)
                check_retention(self._shard.views, plain, topic)
                found = await self._owner.put_topic(topic, None)
            check_alike(found, queue_count, NewTopic(gene, retention_ms))
            if found.automatic:  # an operator asks for it now
                found = await self._owner.put_topic(replace(found, automatic=False), found)
            return self.listing.topic_info(found)

    async def update_topic(self, name: str, update: CatalogUpdate) -> TopicInfo:
        """See EnginePort. The topic is an operator's from then on."""
        async with self.changing():
            await self._log.settle()
            if name == DISPATCH_TOPIC:
                await asyncio.gather(*self._log.own_topic(name)[1])
            found = self._catalog.get_topic(name)
            if found.internal and name != DISPATCH_TOPIC:
                raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
            check_version(found.version, update)
            changed = replace(found, automatic=False, **given(update))
            check_retention(self._shard.views, found, changed)
            if found.internal:  # the shard's own affair
                changed = replace(changed, version=self._log.next_version())
                if not await self._log.put_topic(changed):
                    raise gone()
            else:
                await self._owner.put_topic(changed, found)
            return self.listing.topic_info(self._catalog.get_topic(name))

    async def expire_topic(self, topic_id: TopicId, is_unused: Callable[[Topic], bool]) -> bool:
        """Delete a topic if it `is_unused` when the call has the lock. Returns whether it did.

        A publish to it waits from now on (`settle_topic`) and makes it anew; a receive waits, too.
        """
        async with self.changing():
            topic: Topic | None = self._catalog.find_topic_by_id(topic_id)
            if topic is None or not is_unused(topic):
                return False
            with self._unsettling(topic.name):
                self._expiring_topic = topic.name
                try:
                    return await self._owner.expire(topic)
                finally:
                    self._expiring_topic = ""

    async def delete_topic(self, name: str) -> None:
        """See EnginePort."""
        async with self.changing():
            topic = self._catalog.get_topic(name)
            group = name.removeprefix(DEAD_LETTER_PREFIX)
            is_left = group != name and self._catalog.find_group(group) is None
            if topic.internal and not is_left:
                raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
            await self._owner.delete_topic(topic)

    def is_deleting(self, topic_id: TopicId) -> bool:
        """Whether what is appended now stands behind the deletion of this topic, or may do so."""
        if self._expiring_topic and not self._owner.is_log_alone:
            topic = self._catalog.find_topic(self._expiring_topic)
            if topic is not None and topic.topic_id == topic_id:
                return True
        return self._log.is_deleting(topic_id)

    # -- groups -----------------------------------------------------------------------------------

    async def put_group(self, name: str, settings: GroupSettings) -> GroupInfo:
        """See EnginePort."""
        if settings.start_ms:
            positions.check_start(self._shard, settings.start_ms, self._now_ms())
        async with self.changing():
            await self._log.settle()
            check_order(self._shard.views, name, settings)
            group, making = await self._make_group(name, settings)
            await self._wake_polls(making, group)
            return self.listing.put_group_info(self._catalog.get_group(name))

    async def update_group(
        self, name: str, update: CatalogUpdate, settings: GroupSettings
    ) -> GroupInfo:
        """See EnginePort. The group is an operator's from then on."""
        if settings.start_ms:
            positions.check_start(self._shard, settings.start_ms, self._now_ms())
        async with self.changing():
            await self._log.settle()
            found = self._catalog.get_group(name)
            check_version(found.version, update)
            check_order(self._shard.views, name, settings)
            changed = replace(found, automatic=False, **given(update))
            await self.change_group(with_settings(changed, settings), found)
            return self.listing.put_group_info(self._catalog.get_group(name))

    async def change_group(self, changed: Group, found: Group) -> None:
        """Put a group that there is; its polls look again. The caller is `changing`."""
        changed, applying = await self._owner.put_group(changed, found)
        await self._wake_polls(applying, changed)

    async def _wake_polls(self, applying: list["asyncio.Future[bool]"], group: Group) -> None:
        """A caller that goes away leaves no poll asleep. Raises Unavailable: it has gone."""
        waking = asyncio.ensure_future(self._wake_behind(asyncio.gather(*applying), group))
        if not await asyncio.shield(waking):
            raise gone()

    async def _wake_behind(self, changing: "asyncio.Future[list[bool]]", group: Group) -> bool:
        """Whether the change of `group` was applied; if so, its polls look again."""
        is_applied = all(await changing)
        if is_applied and not group.is_paused:
            for count, one in enumerate(self._catalog.subscriptions_of(group.group_id), 1):
                self._on_filter(one.group_id, one.topic_id)
                if not count % _WOKEN_AT_ONCE:
                    await asyncio.sleep(0)
        return is_applied

    async def _make_group(
        self, name: str, settings: GroupSettings, *, automatic: bool = False
    ) -> tuple[Group, list["asyncio.Future[bool]"]]:
        """Make a group with its topic for dead letters: see `CatalogOwner.put_group`."""
        (validate_known_group_name if settings.member_token else validate_group_name)(name)
        catalog, defaults = self._catalog, self._defaults
        old: Group | None = catalog.find_group(name)
        if old is None:
            check_room("groups", catalog.group_count, defaults.groups_max)
        config = group_config(name, settings, defaults, old, version=0, automatic=automatic)
        return await self._owner.put_group(Group.read(config), old)

    # -- subscriptions ----------------------------------------------------------------------------

    async def subscribe(
        self,
        group: str,
        topic: str,
        wanted: FilterExpression | None = None,
        *,
        member_token: int = 0,
    ) -> Subscribed:
        """The subscription of a group to a topic, made with all that it needs.

        Args:
            group: its name.
            topic: its name.
            wanted: the group's filter as the caller knows it; None: the subscription's.
            member_token: of the member of a broadcast; nothing is made for one.

        Raises:
            InvalidFilter: before anything else.
            MemberReplaced, FailedPrecondition: see `check_member`.
            InvalidGroup, InvalidTopic: illegal names.
            UnknownGroup, UnknownTopic: there is none, and none is made.
            SubscriptionMismatch: the group's subscription says something else.
        """
        requested = None if wanted is None else await read_filter(wanted)
        catalog = self._catalog
        found_group, found_topic = catalog.find_group(group), catalog.find_topic(topic)
        if is_member_group(group):
            if found_group is not None and found_group.group_id == self._expiring:
                async with self._lock:
                    pass
            check_member(catalog, group, topic, member_token)
        is_own_call = found_topic is not None and found_topic.internal
        kept = None if is_own_call else requested
        known: Subscription | None = None
        if found_group is not None and found_topic is not None:
            known = catalog.find_subscription(found_group.group_id, found_topic.topic_id)
        is_going = topic in self._unsettled or (known and known.group_id == self._expiring)
        is_going = is_going or (group, topic) in self._starting
        if known is None or found_group is None or is_going or not found_group.dead_letter_topic_id:
            async with self.changing():
                known, found_group = await self.make_subscription(
                    group, topic, stored(kept), self.topic_to_receive, settings=None
                )
        if kept is not None:
            mismatch = find_mismatch(catalog, known.group_id, known.topic_id, kept)
            if mismatch is not None:
                raise mismatch
        return Subscribed(known, found_group, kept, stored(requested) if is_own_call else None)

    async def put_subscription(
        self, group: str, topic: str, wanted: FilterExpression
    ) -> SubscriptionInfo:
        """See EnginePort."""
        kept = stored(await read_filter(wanted))
        async with self.changing():
            found_topic: Topic | None = self._catalog.find_topic(topic)
            if kept is not None and found_topic is not None and found_topic.internal:
                raise errors.InvalidArgument(
                    "on the cluster's own topics each Receive says what it wants", topic=topic
                )
            known, found_group = await self.make_subscription(
                group, topic, kept, self._topic_to_subscribe, settings=GroupSettings()
            )
            changes: list[asyncio.Future[bool]] = []
            if found_group.automatic:  # an operator asks for it now
                kept_group = replace(found_group, automatic=False)
                _, changes = await self._owner.put_group(kept_group, found_group)
            await self.change_filter(known, kept, changes)
        return SubscriptionInfo(topic, kept)

    async def change_filter(
        self,
        known: Subscription,
        kept: FilterExpression | None,
        changes: "Sequence[asyncio.Future[bool]]" = (),
    ) -> None:
        """A subscription gets this filter, behind `changes`. The caller is `changing`."""
        if known.filter == kept:
            await asyncio.gather(*changes)
            return
        # What was filtered stays so: it stands in the log before the change.
        for queue in self._receiver.queues_of(known.group_id, known.topic_id):
            self._resolve_filtered(self._now_ms(), GroupQueue(known.group_id, queue))
        changing = self._log.put_subscription(replace(known, filter=kept))
        if not all(await asyncio.gather(*changes, changing)):
            raise gone()
        self._on_filter(known.group_id, known.topic_id)

    async def make_subscription(
        self,
        group: str,
        topic: str,
        wanted: FilterExpression | None,
        find_topic: Callable[[str], Awaitable[Topic]],
        *,
        settings: GroupSettings | None,
    ) -> tuple[Subscription, Group]:
        """The subscription; where there is none, one with this filter is made, in one commit.

        `settings`: of the group, if it is made; None: that is made by receiving. The caller is
        `changing`.
        """
        catalog, defaults = self._catalog, self._defaults
        found_topic = await find_topic(topic)
        found_group: Group | None = catalog.find_group(group)
        made: list[asyncio.Future[bool]] = []
        if found_group is None:
            if not defaults.groups_auto_create:
                raise errors.UnknownGroup(f"there is no group {group!r}", group=group)
        else:
            check_may_read(found_group, found_topic)
            found_group = await self._with_letters(found_group)
            known = catalog.find_subscription(found_group.group_id, found_topic.topic_id)
            if known is not None:
                return known, found_group
        check_room("subscriptions", catalog.subscription_count, defaults.subscriptions_max)
        if found_group is None:
            making = self._make_group(group, settings or GroupSettings(), automatic=not settings)
            found_group, made = await making
        retries, made_retries = self._log.own_topic(retry_topic_name(group, topic))
        subscription = Subscription(
            found_group.group_id, found_topic.topic_id, retries.topic_id, wanted
        )
        now_ms = self._now_ms()
        starts = await positions.rows_to_start(self._shard, found_group, found_topic, now_ms)
        self._starting.add((group, topic))
        try:
            changing = [*made, *made_retries, self._log.put_subscription(subscription)]
            if len(starts):  # right behind: one write has both
                skipping: asyncio.Future[list[int]] = self._propose(
                    lambda now, token: self._mastership.resolve(starts, now, token)
                )
                await asyncio.shield(skipping)
            await asyncio.gather(*changing)
        finally:
            self._starting.discard((group, topic))
        applied: Group | None = catalog.find_group(group)
        now_topic: Topic | None = catalog.find_topic(topic)
        if applied is not None and now_topic is not None:
            known = catalog.find_subscription(applied.group_id, now_topic.topic_id)
            if known is not None:
                return known, applied
        raise gone()

    async def _with_letters(self, group: Group) -> Group:
        """The group with a topic for its dead letters, which is made where it was deleted.

        Else they would go where no group can read them. Earlier versions let it be deleted.
        """
        if group.dead_letter_topic_id:
            return group
        letters, made = self._log.own_topic(dead_letter_topic_name(group.name))
        mended = replace(group, dead_letter_topic_id=letters.topic_id)
        await asyncio.gather(*made, self._log.put_group(mended, self._owner.revision))
        found: Group | None = self._catalog.find_group_by_id(group.group_id)
        if found is None:
            raise gone()
        return found

    async def delete_group(self, name: str) -> None:
        """See EnginePort."""
        async with self.changing():
            group = self._catalog.get_group(name)
            await self._owner.delete_group(group)
            await self._delete_letters(group)

    async def expire_group(self, group_id: GroupId, is_unused: Callable[[Group], bool]) -> bool:
        """Delete a group if it `is_unused` when the call has the lock. Returns whether it did.

        A receive waits from now on, and makes the group anew.
        """
        async with self.changing():
            group: Group | None = self._catalog.find_group_by_id(group_id)
            if group is None or not is_unused(group):
                return False
            self._expiring = group_id
            try:
                is_gone = await self._owner.expire(group)
                if is_gone:
                    await self._delete_letters(group, with_old_ones=True)
            finally:
                self._expiring = 0
            return is_gone

    async def _delete_letters(self, group: Group, *, with_old_ones: bool = False) -> None:
        """Delete the dead-letter topic of a group that is gone, if it is empty and has no reader.

        `with_old_ones`: also if dead letters are in it, which are past retention.
        """
        letters = self._catalog.find_topic_by_id(group.dead_letter_topic_id)
        if letters is None or self._catalog.subscriptions_to(letters.topic_id):
            return
        start, end = self._shard.views.queues.bounds(topic_queue(letters.topic_id, 0))
        if with_old_ones or start == end:
            await self._log.delete_topic(letters.topic_id)
