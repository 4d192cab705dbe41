"""Changes of topics, groups and subscriptions on their way into the log: proposed, not applied.

What is proposed can be used at once: a PUBLISH behind the CONFIG record that makes its topic finds
it when it is applied.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.internal.v1.state_pb2 import ConfigChange, SubscriptionReset
from hourwheel.types import TOPIC_ID_MAX, GroupId, TopicId
from node.catalog.serving import Serving
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription, Topic

T = TypeVar("T")
Applied = asyncio.Future[bool]
"""Whether a change took effect, once it is applied; or why it never came into the log."""
NO_NUMBER: Final = 0
"""Of a topic or group that is still to get one."""


class LogChanges:
    """See the top of this file. Of one mastership.

    A caller that goes away leaves the record in the log.
    """

    def __init__(self, serving: Serving) -> None:
        """Nothing is on its way."""
        self._mastership, self._propose = serving.mastership, serving.propose
        self._shard = serving.mastership.shard
        self.is_controlled = self.catalog.is_controlled
        """Whether what is appended next is behind the record that says so."""
        self._topics: dict[str, Topic] = {}
        """New topics by name, and changes of topics."""
        self._groups: dict[str, Group] = {}
        self._next_topic_id = self._next_group_id = 0
        self._next_internal_id = 0
        self._deleting: set[TopicId] = set()
        self._changing: set[Applied] = set()

    @property
    def catalog(self) -> Catalog:
        """What is applied."""
        return self._shard.views.catalog

    # -- what there will be -----------------------------------------------------------------------

    def find_topic(self, name: str) -> Topic | None:
        """The topic of a name as of the end of the log, also one that is being deleted."""
        return self._topics.get(name) or self.catalog.find_topic(name)

    def find_group(self, name: str) -> Group | None:
        """The group of a name as of the end of the log."""
        return self._groups.get(name) or self.catalog.find_group(name)

    def is_deleting(self, topic_id: TopicId) -> bool:
        """Whether what is appended now stands behind the deletion of this topic."""
        return topic_id in self._deleting

    def note_deleting(self, topic_id: TopicId) -> None:
        """The deletion of this topic is the next of its changes."""
        self._deleting.add(topic_id)

    @property
    def new_topic_count(self) -> int:
        """Topics, not the cluster's own, that are made and not applied."""
        find = self.catalog.find_topic_by_id
        return sum(not one.internal and find(one.topic_id) is None for one in self._topics.values())

    def in_flight(self) -> list[Applied]:
        """All that is proposed, and neither applied nor dropped."""
        return [asyncio.shield(one) for one in self._changing]

    async def settle(self) -> None:
        """Wait for it: what is read then is what there is."""
        if self._changing:
            await asyncio.wait(self._changing)

    def next_version(self) -> int:
        """Of what the log decides itself and is changed now: above that of each change before."""
        return int(self._shard.log.end_offset)

    def next_topic_id(self) -> TopicId:
        """Of a topic that the log decides about."""
        return TopicId(max(self.catalog.next_topic_id, self._next_topic_id))

    def next_group_id(self) -> GroupId:
        """Of a group that the log decides about."""
        return GroupId(max(self.catalog.next_group_id, self._next_group_id))

    # -- proposing --------------------------------------------------------------------------------

    def propose(
        self,
        change: ConfigChange,
        now_ms: int | None = None,
        then: Callable[[Applied], object] = lambda _: None,
    ) -> Applied:
        """Append a change; `then` is called when it is applied, or never will be.

        Raises:
            ShuttingDown, NotMaster: nothing is appended.
        """
        future: Applied = self._propose(
            lambda now, token: self._mastership.configure(change, now, token), now_ms
        )
        self._changing.add(future)
        future.add_done_callback(self._changing.discard)
        future.add_done_callback(then)
        shielded = asyncio.shield(future)
        shielded.add_done_callback(_look_at)
        return shielded

    def adopt(self, revision: int) -> Applied:
        """Say that topics and groups come from the control state from here on."""
        self.is_controlled = True
        change = ConfigChange(adopt_control_state=True, control_revision=revision)

        def settle(done: Applied) -> None:
            if done.cancelled() or done.exception() is not None:
                self.is_controlled = self.catalog.is_controlled

        return self.propose(change, then=settle)

    def put_topic(self, topic: Topic, revision: int = 0, now_ms: int | None = None) -> Applied:
        """Make or change a topic; `revision` of the control state, if that decides about it."""
        change = ConfigChange(put_topic=topic.config(), control_revision=revision)
        future = self.propose(change, now_ms, lambda _: _forget(self._topics, topic.name, topic))
        self._note_number(topic.topic_id, is_own=topic.internal)
        self._topics[topic.name] = topic
        return future

    def _note_number(self, topic_id: TopicId, *, is_own: bool) -> None:
        if self.is_controlled and is_own:
            self._next_internal_id = min(self._own_id(), int(topic_id) - 1)
        else:
            self._next_topic_id = max(self._next_topic_id, int(topic_id) + 1)

    def _own_id(self) -> int:
        # What is applied may stand before the record by which they come from the top.
        found = int(self.catalog.next_internal_id) if self.catalog.is_controlled else TOPIC_ID_MAX
        return min(found, self._next_internal_id) if self._next_internal_id else found

    def _next_own_id(self) -> TopicId:
        return TopicId(self._own_id()) if self.is_controlled else self.next_topic_id()

    def own_topic(self, name: str) -> tuple[Topic, list[Applied]]:
        """A topic of the cluster's own; and its proposal, if it is not there."""
        found = self.find_topic(name)
        if found is not None:
            return found, []
        topic = Topic(self._next_own_id(), name, 1, internal=True, gene=DEFAULT_SPEC)
        topic = replace(topic, version=self.next_version())
        return topic, [self.put_topic(topic)]

    def delete_topic(self, topic_id: TopicId, revision: int = 0) -> Applied:
        """Delete one, with what has no use without it."""
        change = ConfigChange(delete_topic_id=topic_id, control_revision=revision)

        def settle(done: Applied) -> None:
            # What the control state has deleted is deleted, also where that found no room yet.
            if not revision or (not done.cancelled() and done.exception() is None):
                self._deleting.discard(topic_id)

        future = self.propose(change, then=settle)
        self._deleting.add(topic_id)
        return future

    def put_group(self, group: Group, revision: int = 0) -> Applied:
        """Make or change a group."""
        change = ConfigChange(put_group=group.config(), control_revision=revision)
        future = self.propose(change, then=lambda _: _forget(self._groups, group.name, group))
        self._next_group_id = max(self._next_group_id, int(group.group_id) + 1)
        self._groups[group.name] = group
        return future

    def delete_group(self, group_id: GroupId, revision: int = 0) -> Applied:
        """Delete one, with its subscriptions."""
        change = ConfigChange(delete_group_id=group_id, control_revision=revision)
        return self.propose(change)

    def put_subscription(self, subscription: Subscription) -> Applied:
        """Make or change one."""
        return self.propose(ConfigChange(put_subscription=subscription.config()))

    def reset_subscription(self, reset: SubscriptionReset) -> Applied:
        """Let a group begin anew in a topic; the topic for its retries gets its number here."""
        retry_topic_id = self._next_own_id()
        reset.retry_topic_id = retry_topic_id
        future = self.propose(ConfigChange(reset_subscription=reset))
        self._note_number(retry_topic_id, is_own=True)
        return future


def _look_at(done: Applied) -> None:
    if not done.cancelled():
        done.exception()  # who asked may have gone


def _forget(proposed: dict[str, T], name: str, one: T) -> None:
    """It is applied, or never will be; a later proposal may have taken its place."""
    if proposed.get(name) is one:
        del proposed[name]
