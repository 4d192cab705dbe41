"""The catalog service: makes, changes and deletes topics, groups and subscriptions.

`node/catalog/listing.py` reads them.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.record_batch import RESOLVE_ROW
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.internal.v1.state_pb2 import ConfigChange
from hourwheel.types import DISPATCH_TOPIC, GroupId, TopicId, topic_queue
from node.catalog import positions
from node.catalog.changes import (
    DefaultsConfig,
    check_may_read,
    check_order,
    check_room,
    check_version,
    given,
    group_config,
    with_settings,
)
from node.catalog.filter_cache import read_filter
from node.catalog.listing import Listing
from node.catalog.serving import Serving
from node.catalog.subscriptions import Subscribed, find_mismatch, stored
from node.contracts.broker import (
    CatalogUpdate,
    GroupInfo,
    GroupSettings,
    SubscriptionInfo,
    TopicInfo,
)
from node.shard.group_queue import GroupQueue
from storage.views.catalog import (
    DEAD_LETTER_PREFIX,
    Catalog,
    dead_letter_topic_name,
    retry_topic_name,
    validate_group_name,
    validate_topic_name,
)
from storage.views.catalog_items import START_NOW_MS, Group, Subscription, Topic

_DELETED_AT_ONCE: Final = 32
"""Subscriptions that one record may take with it: a millisecond or two."""
_WOKEN_AT_ONCE: Final = 128
"""Subscriptions whose polls look again in one turn of the loop."""


class CatalogService:
    """Changes the configuration through the log. One change of a kind at a time is proposed.

    A topic that publishing makes is used at once: its CONFIG record stands before the PUBLISH.
    """

    def __init__(
        self,
        serving: Serving,
        defaults: DefaultsConfig,
        resolve_filtered: Callable[[int, GroupQueue], object],
        on_filter: Callable[[GroupId, TopicId], object],
    ) -> None:
        """Propose what `serving` appends.

        `resolve_filtered`: puts a group's filtered ranges of a queue into the log; `on_filter` is
        called with the group and topic of a subscription whose filter has changed.
        """
        self._mastership = serving.mastership
        self._shard, self._receiver = self._mastership.shard, self._mastership.receiver
        self._now_ms, self._propose = serving.now_ms, serving.propose
        self._defaults, self._resolve_filtered, self._on_filter = (
            defaults,
            resolve_filtered,
            on_filter,
        )
        self.listing = Listing(self._shard, self._receiver)
        self._lock = asyncio.Lock()
        self._proposed: dict[str, Topic] = {}
        self._next_topic_id = self._next_group_id = 0
        self._expiring = 0
        """Number of the unused group that is being deleted."""
        self._starting: set[tuple[str, str]] = set()
        """Group and topic of a subscription that is made, and not yet where it begins."""
        self._unsettled: dict[str, int] = {}
        """Unused topic that is being deleted -> 1, and one for each call that waits for it."""
        self._deleting: set[TopicId] = set()
        """Topics whose deletion is appended, and neither applied nor dropped."""
        self._changing: set[asyncio.Future[bool]] = set()
        """Changes that are proposed, and neither applied nor dropped."""

    @property
    def _catalog(self) -> Catalog:
        return self._shard.views.catalog

    # -- topics -----------------------------------------------------------------------------------

    async def settle_topic(self, name: str) -> None:
        """Wait while the topic of this name is being deleted as unused.

        Calls that wait go on in the order in which they came, each up to where it waits next.
        """
        if name in self._unsettled:
            with self._unsettling(name):
                async with self._lock:
                    pass

    @contextmanager
    def _unsettling(self, name: str) -> Iterator[None]:
        self._unsettled[name] = self._unsettled.get(name, 0) + 1
        try:
            yield
        finally:
            self._unsettled[name] -= 1
            if not self._unsettled[name]:
                del self._unsettled[name]

    def topic_to_publish(
        self, name: str, *, automatic: bool = True, now_ms: int | None = None
    ) -> Topic:
        """The topic of this name, made if need be.

        Args:
            name: its name.
            automatic: no command asks for it.
            now_ms: when a record that makes it is stored; None: by the clock. A caller who has
                read the clock for its own record gives that: store times never go back.

        Raises:
            InvalidTopic: an illegal name, or one of the cluster's own topics.
            UnknownTopic: there is none, and none is made.
            TopicPaused: nothing may be published to it.
        """
        topic: Topic | None = self._catalog.find_topic(name)
        if topic is not None and not topic.internal:
            if topic.is_paused:
                raise errors.TopicPaused(f"topic {name!r} is paused", topic=name)
            return topic
        validate_topic_name(name)
        if topic is not None:
            raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
        proposed = self._proposed.get(name)
        if proposed is not None:
            return proposed
        if not self._defaults.topics_auto_create:
            raise errors.UnknownTopic(f"there is no topic {name!r}", topic=name)
        count = self._defaults.topic_queue_count
        return self._make_topic(name, count, automatic=automatic, now_ms=now_ms)[0]

    def _topic_to_receive(self, name: str) -> Topic:
        """The topic of this name, internal ones included; made only if the configuration says so.

        Else a typing error would make a topic, and wait for it for ever.
        """
        topic: Topic | None = self._catalog.find_topic(name) or self._proposed.get(name)
        if topic is not None:
            return topic
        if self._defaults.topics_auto_create_by_receiving:
            return self.topic_to_publish(name)
        validate_topic_name(name)
        raise errors.UnknownTopic(
            f"there is no topic {name!r}: receiving does not make one, publishing to it does",
            topic=name,
        )

    def gene_spec(self, name: str) -> GeneSpec:
        """How the genes of a topic's messages are made, also of one that publishing will make."""
        topic: Topic | None = self._catalog.find_topic(name) or self._proposed.get(name)
        return DEFAULT_SPEC if topic is None else topic.gene

    def _make_topic(
        self,
        name: str,
        queue_count: int,
        *,
        internal: bool = False,
        gene: GeneSpec = DEFAULT_SPEC,
        automatic: bool = False,
        now_ms: int | None = None,
    ) -> tuple[Topic, "asyncio.Future[bool]"]:
        if not internal:
            proposed = sum(not one.internal for one in self._proposed.values())
            check_room("topics", self._catalog.topic_count + proposed, self._defaults.topics_max)
        number = max(self._catalog.next_topic_id, self._next_topic_id)
        topic = Topic(
            *(TopicId(number), name, queue_count, internal, gene, automatic),
            version=self._next_version(),
        )
        future = self._propose_change(ConfigChange(put_topic=topic.config()), now_ms)
        self._next_topic_id = number + 1
        self._proposed[name] = topic
        # Of the proposal: who asked may go, and the topic is on its way all the same.
        future.add_done_callback(lambda done: self._settle(name, done))
        return topic, asyncio.shield(future)

    def _settle(self, name: str, done: "asyncio.Future[bool]") -> None:
        self._proposed.pop(name, None)
        if not done.cancelled():
            done.exception()

    def _change(self, change: ConfigChange) -> "asyncio.Future[bool]":
        """A caller that goes away leaves the record in the log."""
        return asyncio.shield(self._propose_change(change))

    def _propose_change(
        self, change: ConfigChange, now_ms: int | None = None
    ) -> "asyncio.Future[bool]":
        future: asyncio.Future[bool] = self._propose(
            lambda now, token: self._mastership.configure(change, now, token), now_ms
        )
        self._changing.add(future)
        future.add_done_callback(self._changing.discard)
        return future

    def _next_version(self) -> int:
        """Of a topic or group that is changed now: above that of each change before."""
        return int(self._shard.log.end_offset)

    async def _settle_changes(self) -> None:
        """Wait for changes whose callers have gone: what is read then is what there is."""
        if self._changing:
            await asyncio.wait(self._changing)

    async def create_topic(
        self, name: str, queue_count: int, gene: GeneSpec | None = None
    ) -> TopicInfo:
        """See EnginePort."""
        validate_topic_name(name)
        async with self._lock:
            await self._settle_changes()
            found = self._catalog.find_topic(name)
            count = queue_count or self._defaults.topic_queue_count
            if found is None:
                await self._make_topic(name, count, gene=gene or DEFAULT_SPEC)[1]
                found = self._catalog.get_topic(name)
            if found.queue_count != count and queue_count:
                raise errors.AlreadyExists(
                    f"topic {name!r} has {found.queue_count} queues",
                    topic=name,
                    queue_count=found.queue_count,
                )
            if gene is not None and gene != found.gene:
                raise errors.AlreadyExists(
                    f"topic {name!r} has genes {found.gene.text}", topic=name, gene=found.gene.text
                )
            if found.automatic:  # an operator asks for it now
                kept = replace(found, automatic=False, version=self._next_version())
                await self._change(ConfigChange(put_topic=kept.config()))
                found = self._catalog.get_topic(name)
            return self.listing.topic_info(found)

    async def update_topic(self, name: str, update: CatalogUpdate) -> TopicInfo:
        """See EnginePort. The topic is an operator's from then on."""
        async with self._lock:
            await self._settle_changes()
            if name == DISPATCH_TOPIC:
                await asyncio.gather(*self._internal_topic(name)[1])
            found = self._catalog.get_topic(name)
            if found.internal and name != DISPATCH_TOPIC:
                raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
            check_version(found.version, update)
            changed = replace(found, automatic=False, version=self._next_version(), **given(update))
            if not await self._change(ConfigChange(put_topic=changed.config())):
                raise _gone()
            return self.listing.topic_info(self._catalog.get_topic(name))

    async def expire_topic(self, topic_id: int, is_unused: Callable[[Topic], bool]) -> bool:
        """Delete a topic if it `is_unused` when the call has the lock. Returns whether it did.

        A publish to it waits from now on (`settle_topic`) and makes it anew; a receive waits, too.
        """
        async with self._lock:
            topic: Topic | None = self._catalog.find_topic_by_id(topic_id)
            if topic is None or not is_unused(topic):
                return False
            with self._unsettling(topic.name):
                await self._delete_topic(topic.topic_id)
            return True

    async def delete_topic(self, name: str) -> None:
        """See EnginePort."""
        async with self._lock:
            topic = self._catalog.get_topic(name)
            group = name.removeprefix(DEAD_LETTER_PREFIX)
            is_left = group != name and self._catalog.find_group(group) is None
            if topic.internal and not is_left:
                raise errors.InvalidTopic("this topic is the cluster's own", topic=name)
            await self._delete_many(self._catalog.subscriptions_to(topic.topic_id))
            await self._delete_topic(topic.topic_id)

    async def _delete_topic(self, topic_id: TopicId) -> None:
        deleting = self._change(ConfigChange(delete_topic_id=topic_id))
        self._deleting.add(topic_id)

        def settle(done: "asyncio.Future[bool]") -> None:
            self._deleting.discard(topic_id)
            if not done.cancelled():
                done.exception()  # who asked may have gone

        deleting.add_done_callback(settle)
        await asyncio.shield(deleting)

    def is_deleting(self, topic_id: TopicId) -> bool:
        """Whether what is appended now stands behind the deletion of this topic."""
        return topic_id in self._deleting

    async def _delete_many(self, subscriptions: list[Subscription]) -> None:
        """Delete subscriptions one by one, where they are too many for one record.

        What one record deletes is applied in one turn of the loop. If this ends early, some are
        gone, and the caller calls again.
        """
        if len(subscriptions) <= _DELETED_AT_ONCE:
            return
        for first in range(0, len(subscriptions), _DELETED_AT_ONCE):
            piece = subscriptions[first : first + _DELETED_AT_ONCE]
            await asyncio.gather(
                *(self._change(ConfigChange(delete_topic_id=one.retry_topic_id)) for one in piece)
            )

    # -- groups -----------------------------------------------------------------------------------

    async def put_group(self, name: str, settings: GroupSettings) -> GroupInfo:
        """See EnginePort."""
        if settings.start_ms:
            positions.check_level(self._shard)
        async with self._lock:
            await self._settle_changes()
            check_order(self._shard.views, name, settings)
            group, changes = self._make_group(name, settings)
            waking = asyncio.ensure_future(self._wake_behind(changes.pop(), group))
            if not all(await asyncio.gather(*changes, asyncio.shield(waking))):
                raise _gone()
            return self.listing.put_group_info(self._catalog.get_group(name))

    async def update_group(
        self, name: str, update: CatalogUpdate, settings: GroupSettings
    ) -> GroupInfo:
        """See EnginePort. The group is an operator's from then on."""
        if settings.start_ms:
            positions.check_level(self._shard)
        async with self._lock:
            await self._settle_changes()
            found = self._catalog.get_group(name)
            check_version(found.version, update)
            check_order(self._shard.views, name, settings)
            changed = replace(found, automatic=False, version=self._next_version(), **given(update))
            changed = with_settings(changed, settings)
            changing = self._change(ConfigChange(put_group=changed.config()))
            waking = asyncio.ensure_future(self._wake_behind(changing, changed))
            if not await asyncio.shield(waking):  # a caller that goes away leaves no poll asleep
                raise _gone()
            return self.listing.put_group_info(self._catalog.get_group(name))

    async def _wake_behind(self, changing: "asyncio.Future[bool]", group: Group) -> bool:
        """Whether the change of `group` was applied; if so, its polls look again."""
        is_applied = await changing
        if is_applied and not group.is_paused:
            for count, one in enumerate(self._catalog.subscriptions_of(group.group_id), 1):
                self._on_filter(one.group_id, one.topic_id)
                if not count % _WOKEN_AT_ONCE:
                    await asyncio.sleep(0)
        return is_applied

    def _make_group(
        self, name: str, settings: GroupSettings, *, automatic: bool = False
    ) -> tuple[Group, list["asyncio.Future[bool]"]]:
        """Propose a group with its topic for dead letters, all of it for one group commit.

        The last of the proposals is the group's own.
        The numbers are those that it will have; where another change comes first, apply rejects it.
        """
        validate_group_name(name)
        catalog, defaults = self._catalog, self._defaults
        old: Group | None = catalog.find_group(name)
        number = max(catalog.next_group_id, self._next_group_id)
        if old is None:
            check_room("groups", catalog.group_count, defaults.groups_max)
            self._next_group_id = number + 1
        letters, made = self._internal_topic(dead_letter_topic_name(name))
        config = group_config(
            name, settings, defaults, old, version=self._next_version(), automatic=automatic
        )
        config.group_id = number if old is None else old.group_id
        config.dead_letter_topic_id = letters.topic_id
        made.append(self._change(ConfigChange(put_group=config)))
        return Group.read(config), made

    def _internal_topic(self, name: str) -> tuple[Topic, list["asyncio.Future[bool]"]]:
        """A topic of the cluster's own; and its proposal, if it is not there."""
        found: Topic | None = self._catalog.find_topic(name) or self._proposed.get(name)
        if found is not None:
            return found, []
        topic, made = self._make_topic(name, 1, internal=True)
        return topic, [made]

    # -- subscriptions ----------------------------------------------------------------------------

    async def subscribe(
        self, group: str, topic: str, wanted: FilterExpression | None = None
    ) -> Subscribed:
        """The subscription of a group to a topic, made with all that it needs.

        Args:
            group: its name.
            topic: its name.
            wanted: the group's filter as the caller knows it; None: the subscription's.

        Raises:
            InvalidFilter: before anything else.
            InvalidGroup, InvalidTopic: illegal names.
            UnknownGroup, UnknownTopic: there is none, and none is made.
            SubscriptionMismatch: the group's subscription says something else.
        """
        requested = None if wanted is None else await read_filter(wanted)
        catalog = self._catalog
        found_group, found_topic = catalog.find_group(group), catalog.find_topic(topic)
        is_own_call = found_topic is not None and found_topic.internal
        kept = None if is_own_call else requested
        known: Subscription | None = None
        if found_group is not None and found_topic is not None:
            known = catalog.find_subscription(found_group.group_id, found_topic.topic_id)
        is_going = topic in self._unsettled or (known and known.group_id == self._expiring)
        is_going = is_going or (group, topic) in self._starting
        if known is None or found_group is None or is_going or not found_group.dead_letter_topic_id:
            async with self._lock:
                known, found_group = await self._subscribe(
                    group, topic, stored(kept), self._topic_to_receive, automatic=True
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
        async with self._lock:
            found_topic: Topic | None = self._catalog.find_topic(topic)
            if kept is not None and found_topic is not None and found_topic.internal:
                raise errors.InvalidArgument(
                    "on the cluster's own topics each Receive says what it wants", topic=topic
                )
            known, found_group = await self._subscribe(
                group,
                topic,
                kept,
                lambda name: (
                    self._catalog.find_topic(name) or self.topic_to_publish(name, automatic=False)
                ),
                automatic=False,
            )
            changes: list[asyncio.Future[bool]] = []
            if found_group.automatic:  # an operator asks for it now
                version = self._next_version()
                kept_group = replace(found_group, automatic=False, version=version)
                changes = [self._change(ConfigChange(put_group=kept_group.config()))]
            if known.filter != kept:
                # What was filtered stays so: it stands in the log before the change.
                for queue in self._receiver.queues_of(known.group_id, known.topic_id):
                    self._resolve_filtered(self._now_ms(), GroupQueue(found_group.group_id, queue))
                changed = replace(known, filter=kept)
                changes.append(self._change(ConfigChange(put_subscription=changed.config())))
                if not all(await asyncio.gather(*changes)):
                    raise _gone()
                self._on_filter(known.group_id, known.topic_id)
            else:
                await asyncio.gather(*changes)
        return SubscriptionInfo(topic, kept)

    async def _subscribe(
        self,
        group: str,
        topic: str,
        wanted: FilterExpression | None,
        find_topic: Callable[[str], Topic],
        *,
        automatic: bool,
    ) -> tuple[Subscription, Group]:
        """The subscription; where there is none, one with this filter is made, in one commit."""
        catalog, defaults = self._catalog, self._defaults
        found_topic, found_group = find_topic(topic), catalog.find_group(group)
        made: list[asyncio.Future[bool]] = []
        if found_group is None:
            validate_group_name(group)
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
            found_group, made = self._make_group(group, GroupSettings(), automatic=automatic)
        retries, made_retries = self._internal_topic(retry_topic_name(group, topic))
        subscription = Subscription(
            found_group.group_id, found_topic.topic_id, retries.topic_id, wanted
        )
        starts = await self._rows_to_start(found_group, found_topic)
        change = ConfigChange(put_subscription=subscription.config())
        self._starting.add((group, topic))
        try:
            changing = [*made, *made_retries, self._change(change)]
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
        raise _gone()

    async def _rows_to_start(self, group: Group, topic: Topic) -> NDArray[np.void]:
        """Rows that skip what stands before where the group's new subscriptions begin."""
        is_there = self._catalog.find_topic_by_id(topic.topic_id) is not None
        if not group.start_ms or not is_there:
            return np.empty(0, RESOLVE_ROW)
        queues = [topic_queue(topic.topic_id, number) for number in range(topic.queue_count)]
        from_ms = self._now_ms() if group.start_ms == START_NOW_MS else group.start_ms
        places = await positions.find_positions(self._shard, queues, from_ms)
        return positions.rows_before(self._shard, group.group_id, queues, places)

    async def _with_letters(self, group: Group) -> Group:
        """The group with a topic for its dead letters, which is made where it was deleted.

        Else they would go where nobody can read them. Earlier versions let it be deleted.
        """
        if group.dead_letter_topic_id:
            return group
        letters, made = self._internal_topic(dead_letter_topic_name(group.name))
        version = self._next_version()
        mended = replace(group, dead_letter_topic_id=letters.topic_id, version=version)
        await asyncio.gather(*made, self._change(ConfigChange(put_group=mended.config())))
        found: Group | None = self._catalog.find_group_by_id(group.group_id)
        if found is None:
            raise _gone()
        return found

    async def delete_group(self, name: str) -> None:
        """See EnginePort."""
        async with self._lock:
            await self._delete_group(self._catalog.get_group(name))

    async def expire_group(self, group_id: int, is_unused: Callable[[Group], bool]) -> bool:
        """Delete a group if it `is_unused` when the call has the lock. Returns whether it did.

        A receive waits from now on, and makes the group anew.
        """
        async with self._lock:
            group: Group | None = self._catalog.find_group_by_id(group_id)
            if group is None or not is_unused(group):
                return False
            self._expiring = group_id
            try:
                await self._delete_group(group, with_old_letters=True)
            finally:
                self._expiring = 0
            return True

    async def _delete_group(self, group: Group, *, with_old_letters: bool = False) -> None:
        """Delete a group; and its dead-letter topic, if that is empty and has no subscription.

        `with_old_letters`: also if dead letters are in it, which are past retention.
        """
        await self._delete_many(self._catalog.subscriptions_of(group.group_id))
        await self._change(ConfigChange(delete_group_id=group.group_id))
        self._receiver.leases.drop_group(group.group_id)
        self._receiver.ordered.drop_group(group.group_id)
        self._receiver.filtered_ranges.drop_group(group.group_id)
        letters = group.dead_letter_topic_id
        start, end = self._shard.views.queues.bounds(topic_queue(letters, 0))
        is_over = with_old_letters or start == end
        if is_over and letters and not self._catalog.subscriptions_to(letters):
            await self._change(ConfigChange(delete_topic_id=letters))


def _gone() -> errors.Unavailable:
    return errors.Unavailable("the topic or group was deleted meanwhile; try again")
