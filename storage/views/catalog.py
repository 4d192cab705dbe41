"""Topics, consumer groups and subscriptions, as CONFIG records made them.

The node that proposes a change picks the numbers and checks the names; `Catalog.apply` decides, in
log order, by rules that only look at what is applied already. It rejects a change that no longer
fits, on every replica, and the proposer looks again at what there is. So two nodes, or two calls,
may create the same topic at once.

    put_topic         rejected if the number is used, or was, by another name; if the name has
                      another number; if queues would vanish; if it would turn internal or cease to
                      be; if its genes would be made otherwise, or cannot be made at all; if it is
                      to be retained for longer than time goes
    delete_topic      rejected if there is none. Takes its subscriptions and their retry topics with
                      it; a retry topic takes its subscription; a dead-letter topic leaves its group
    put_group         as put_topic; the dead-letter topic must be the group's own, or 0
    delete_group      rejected if there is none. Takes its subscriptions and their retry topics with
                      it; dead letters are data, and stay until an operator deletes that topic
    put_subscription  rejected if group, topic or retry topic are not there, the retry topic is not
                      that of this group and topic, or another one is in use, or there is a filter
                      and the topic is internal. The group's filter of the topic may change
    reset_subscription  rejected if the group does not read the topic, or its retries go elsewhere
                      than the change says, or the number of their next topic is used, or was. Takes
                      the topic of its retries with it

Numbers are never used again: entries of a deleted topic lie around for years, and must not turn up
in another.

Since the change `adopt_control_state` topics and groups are those of the control state, but for the
cluster's own, which are this log's. So a change of a topic or group is rejected as well if it was
taken from an earlier state than one before, or from none. Both sides give out numbers then: the
control state upwards, the log from `TOPIC_ID_MAX` downwards.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.types import (
    DISPATCH_TOPIC,
    DUE_MS_MAX,
    QUEUE_COUNT_MAX,
    TOPIC_ID_MAX,
    GroupId,
    TopicId,
)
from storage.views.catalog_items import (
    Group,
    LastReset,
    Subscription,
    Topic,
    drop_from,
    is_internal,
    retentions_of,
    tolerances_of,
)
from storage.views.catalog_names import (
    DEAD_LETTER_PREFIX,
    dead_letter_topic_name,
    retry_topic_name,
)
from storage.views.digest import Hasher, feed_numbers

GROUP_ID_MAX: Final = (1 << 32) - 1
States: TypeAlias = tuple[
    list[state_pb2.TopicConfig], list[state_pb2.GroupConfig], list[state_pb2.Subscription]
]
"""A catalog for the manifest: topics and groups by number, subscriptions by group, then topic."""


class Catalog:
    """What exists, by number and by name. Lies in the checkpoint's manifest.

    There may be ten thousands of each, and this is asked and changed between two messages: no
    question and no change looks at more than it is about.
    """

    def __init__(
        self,
        topics: Iterable[state_pb2.TopicConfig] = (),
        groups: Iterable[state_pb2.GroupConfig] = (),
        subscriptions: Iterable[state_pb2.Subscription] = (),
        *,
        next_topic_id: int = 1,
        next_group_id: int = 1,
        control_revision: int = 0,
        next_internal_topic_id: int = 0,
    ) -> None:
        """Take up the state of a checkpoint (where an untouched counter is 0)."""
        self._topics = {one.topic_id: one for one in map(Topic.read, topics)}
        self._groups = {one.group_id: one for one in map(Group.read, groups)}
        self._next_topic_id = max(next_topic_id, 1)
        """Above every topic's number ever used, but for those from the top downwards."""
        self._next_internal_id = next_internal_topic_id or TOPIC_ID_MAX
        """Below every number that was given out from the top downwards."""
        self.control_revision = control_revision
        """The highest of the control state that a change was taken from; 0: there was none."""
        self._next_group_id = max(next_group_id, 1)
        self._topic_by_name = {topic.name: topic for topic in self._topics.values()}
        self._group_by_name = {group.name: group for group in self._groups.values()}
        self._topic_names = sorted(self._topic_by_name)
        self._group_names = sorted(self._group_by_name)
        self._internal_count = sum(topic.internal for topic in self._topics.values())
        self._by_group: dict[GroupId, dict[TopicId, Subscription]] = {}
        """group -> topic -> subscription; and the same the other way round."""
        self._topics_of: dict[GroupId, list[TopicId]] = {}
        """group -> its topics in `_by_group`, ascending."""
        self._by_topic: dict[TopicId, dict[GroupId, Subscription]] = {}
        self._by_retry: dict[TopicId, Subscription] = {}
        self._retentions_ms = retentions_of(self._topics.values())
        self.tolerances_ms = tolerances_of(self._topics.values())
        """Topic id -> how late its messages may be shown, where that is more than nothing."""
        for config in subscriptions:
            self._store_subscription(Subscription.read(config))
        self.change_count = 0
        """Changes that were made since: what follows from the state may be kept until the next."""
        self.check()

    def check(self) -> None:
        """Assert the invariants."""
        errors.invariant(
            len(self._topic_by_name) == len(self._topics)
            and len(self._group_by_name) == len(self._groups),
            "two topics or groups of one name",
        )
        errors.invariant(
            not any(self._next_topic_id <= one <= self._next_internal_id for one in self._topics)
            and max(self._groups, default=0) < self._next_group_id,
            "a number that is still to be given out is in use",
        )
        for each in self._by_retry.values():
            errors.invariant(
                each.group_id in self._groups
                and each.topic_id in self._topics
                and each.retry_topic_id in self._topics
                and self._by_group[each.group_id][each.topic_id] is each
                and self._by_topic[each.topic_id][each.group_id] is each,
                "a subscription of what does not exist",
                group_id=each.group_id,
                topic_id=each.topic_id,
            )
        for index in (self._by_group, self._by_topic):
            errors.invariant(
                sum(map(len, index.values())) == len(self._by_retry) and all(index.values()),
                "an index of subscriptions is not of those that there are",
            )
        errors.invariant(
            self._topics_of == {group: sorted(each) for group, each in self._by_group.items()},
            "topics of groups are not those of their subscriptions",
        )
        errors.invariant(
            self._retentions_ms == self._find_retentions(),
            "retentions are not those of topics and their retries",
        )
        errors.invariant(
            self.tolerances_ms == tolerances_of(self._topics.values()),
            "tolerances are not those of topics",
        )
        errors.invariant(
            self._topic_names == sorted(self._topic_by_name)
            and self._group_names == sorted(self._group_by_name)
            and self._internal_count == sum(one.internal for one in self._topics.values()),
            "names or their count are not of what there is",
        )

    def _find_retentions(self) -> dict[TopicId, int]:
        own: dict[TopicId, int] = {
            one: topic.retention_ms for one, topic in self._topics.items() if topic.retention_ms
        }
        pairs = ((one, each.topic_id) for one, each in self._by_retry.items())
        return own | {one: own[topic_id] for one, topic_id in pairs if topic_id in own}

    @property
    def retentions_ms(self) -> Mapping[TopicId, int]:
        """Topic id -> for how long what was released is retained, where that is the topic's own.

        A group's retries of a topic are retained as the topic is.
        """
        return self._retentions_ms

    @property
    def is_controlled(self) -> bool:
        """Whether topics and groups come from the control state."""
        return self.control_revision > 0

    @property
    def next_topic_id(self) -> TopicId:
        """The number that the next topic gets."""
        return TopicId(self._next_topic_id)

    @property
    def next_internal_id(self) -> TopicId:
        """The number that the next of the cluster's own topics gets."""
        return TopicId(self._next_internal_id) if self.is_controlled else self.next_topic_id

    @property
    def has_used_numbers(self) -> bool:
        """Whether there ever was a topic or a group."""
        return self._next_topic_id > 1 or self._next_group_id > 1

    @property
    def next_group_id(self) -> GroupId:
        """The number that the next group gets."""
        return GroupId(self._next_group_id)

    def find_topic(self, name: str) -> Topic | None:
        """The topic of a name, internal ones included."""
        return self._topic_by_name.get(name)

    def get_topic(self, name: str) -> Topic:
        """The topic of a name.

        Raises:
            UnknownTopic: there is none.
        """
        topic = self._topic_by_name.get(name)
        if topic is None:
            raise errors.UnknownTopic(f"there is no topic {name[:200]!r}", topic=name[:200])
        return topic

    @property
    def is_dispatch_paused(self) -> bool:
        """Whether pending messages wait, due or not, until an operator lets them go.

        Advice to the master, as each pause: apply does not look at it.
        """
        topic = self._topic_by_name.get(DISPATCH_TOPIC)
        return topic is not None and topic.is_paused

    def find_topic_by_id(self, topic_id: TopicId) -> Topic | None:
        """The topic of a number, unless it was deleted."""
        return self._topics.get(topic_id)

    def topics(self) -> list[Topic]:
        """All topics, by number. Looks at each: not for the event loop."""
        return [topic for _, topic in sorted(self._topics.items())]

    @property
    def topic_count(self) -> int:
        """Topics that somebody made: the cluster's own are not counted."""
        return len(self._topics) - self._internal_count

    def topics_after(self, name: str, count_max: int) -> list[Topic]:
        """Up to so many topics behind a name, by name; the cluster's own included."""
        first = bisect_right(self._topic_names, name)
        return [self._topic_by_name[one] for one in self._topic_names[first : first + count_max]]

    def find_group(self, name: str) -> Group | None:
        """The group of a name."""
        return self._group_by_name.get(name)

    def get_group(self, name: str) -> Group:
        """The group of a name.

        Raises:
            UnknownGroup: there is none.
        """
        group = self._group_by_name.get(name)
        if group is None:
            raise errors.UnknownGroup(f"there is no group {name[:200]!r}", group=name[:200])
        return group

    def find_group_by_id(self, group_id: GroupId) -> Group | None:
        """The group of a number, unless it was deleted."""
        return self._groups.get(group_id)

    def groups(self) -> list[Group]:
        """All groups, by number. Looks at each: not for the event loop."""
        return [group for _, group in sorted(self._groups.items())]

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    def count_groups(self, prefix: str) -> int:
        """How many of them have a name that begins so."""
        names = self._group_names
        return bisect_left(names, prefix + "\x7f") - bisect_left(names, prefix)

    def groups_after(self, name: str, count_max: int) -> list[Group]:
        """Up to so many groups behind a name, by name."""
        first = bisect_right(self._group_names, name)
        return [self._group_by_name[one] for one in self._group_names[first : first + count_max]]

    def find_subscription(self, group_id: GroupId, topic_id: TopicId) -> Subscription | None:
        """How a group receives from a topic."""
        return self._by_group.get(group_id, _NONE).get(topic_id)

    def find_subscription_by_retry(self, retry_topic_id: TopicId) -> Subscription | None:
        """Whose retries a topic takes."""
        return self._by_retry.get(retry_topic_id)

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, by group, then topic. Looks at each: not for the event loop."""
        return sorted(self._by_retry.values(), key=_subscription_key)

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are."""
        return len(self._by_retry)

    def subscriptions_of(
        self, group_id: GroupId, after: int = 0, count_max: int | None = None
    ) -> list[Subscription]:
        """A group's behind a topic, by topic: all, or so many at most."""
        topics = self._topics_of.get(group_id, [])
        first = bisect_right(topics, after)
        end = None if count_max is None else first + count_max
        return [self._by_group[group_id][topic_id] for topic_id in topics[first:end]]

    def subscriptions_to(self, topic_id: TopicId) -> list[Subscription]:
        """Those to a topic, by group."""
        return [one for _, one in sorted(self._by_topic.get(topic_id, _NONE).items())]

    def apply(self, change: state_pb2.ConfigChange) -> bool:
        """Make one change of the log, or reject it: see the table at the top.

        Returns:
            Whether it was made.
        """
        if self.is_controlled and not self._is_of_its_owner(change):
            return False
        done = self._apply(change)
        if done:
            self.change_count += 1
            self.control_revision = max(self.control_revision, change.control_revision)
        return done

    def _is_of_its_owner(self, change: state_pb2.ConfigChange) -> bool:
        """Whether who decides about this topic or group has made the change, and none later."""
        if change.HasField("put_topic"):
            is_own = change.put_topic.internal
        elif change.HasField("delete_topic_id"):
            topic = self._topics.get(TopicId(change.delete_topic_id))
            is_own = topic is not None and topic.internal
        else:
            is_own = change.WhichOneof("change") in {"put_subscription", "reset_subscription"}
        return is_own or change.control_revision >= self.control_revision

    def _apply(self, change: state_pb2.ConfigChange) -> bool:
        match change.WhichOneof("change"):
            case "put_topic":
                return self._put_topic(change.put_topic)
            case "put_group":
                return self._put_group(Group.read(change.put_group))
            case "delete_topic_id" | "delete_group_id":
                is_there = change.delete_topic_id in self._topics
                is_there |= change.delete_group_id in self._groups
                return is_there and self._delete(change)
            case "put_subscription":
                return self._put_subscription(change.put_subscription)
            case "reset_subscription":
                return self._may_reset(change.reset_subscription) and self._reset(change)
            case "adopt_control_state":
                return change.control_revision > 0
        # To skip what a newer node wrote would be to disagree with that node for ever.
        raise errors.InvariantViolated("a change of the configuration that is not known here")

    def topics_deleted_by(self, change: state_pb2.ConfigChange) -> list[TopicId]:
        """Which topics `apply` would delete, ascending: their queues can go then."""
        gone = self.subscriptions_of(GroupId(change.delete_group_id))
        fresh = {one.retry_topic_id for one in gone}
        if change.delete_topic_id in self._topics:
            fresh.add(TopicId(change.delete_topic_id))
        if change.HasField("reset_subscription") and self._may_reset(change.reset_subscription):
            fresh.add(TopicId(change.reset_subscription.former_retry_topic_id))
        doomed = set[TopicId]()
        while fresh:  # a group may receive from another one's retry topic, so this goes on
            doomed |= fresh
            found = (self._by_topic.get(topic_id, _NONE).values() for topic_id in fresh)
            fresh = {one.retry_topic_id for each in found for one in each} - doomed
        return sorted(doomed)

    def _put_topic(self, config: state_pb2.TopicConfig) -> bool:
        try:
            topic = Topic.read(config)
        except errors.InvalidArgument:
            return False  # no such genes can be made
        if not 0 < topic.topic_id <= TOPIC_ID_MAX or not 0 < topic.queue_count <= QUEUE_COUNT_MAX:
            return False
        if topic.retention_ms > DUE_MS_MAX or (topic.internal and topic.retention_ms):
            return False
        old = self._topics.get(topic.topic_id)
        if old is None:
            if topic.name in self._topic_by_name or not self._take_number(topic):
                return False
            insort(self._topic_names, topic.name)
            self._internal_count += topic.internal
        elif (
            topic.name != old.name
            or topic.internal != old.internal
            or topic.queue_count < old.queue_count
            or topic.gene != old.gene
        ):
            return False
        self._topics[topic.topic_id] = self._topic_by_name[topic.name] = topic
        self.tolerances_ms.pop(topic.topic_id, None)
        self.tolerances_ms |= tolerances_of([topic])
        if topic.retention_ms != (0 if old is None else old.retention_ms):
            self._note_retention(topic)
        return True

    def _note_retention(self, topic: Topic) -> None:
        """It is another one than before: so is that of all retries of this topic's messages."""
        subscriptions = self._by_topic.get(topic.topic_id, _NONE).values()
        for topic_id in (topic.topic_id, *(one.retry_topic_id for one in subscriptions)):
            if topic.retention_ms:
                self._retentions_ms[topic_id] = topic.retention_ms
            else:
                self._retentions_ms.pop(topic_id, None)

    def _take_number(self, topic: Topic) -> bool:
        """Whether a new topic may have its number, which no other gets then."""
        if not self._may_take(topic.topic_id):
            return False
        if self.is_controlled and topic.internal:
            self._next_internal_id = topic.topic_id - 1
        else:
            self._next_topic_id = topic.topic_id + 1
        return True

    def _may_take(self, topic_id: TopicId) -> bool:
        return self._next_topic_id <= topic_id <= self._next_internal_id

    def was_given(self, topic_id: TopicId) -> bool:
        """Whether there is, or ever was, a topic of this number."""
        return 0 < topic_id <= TOPIC_ID_MAX and not self._may_take(topic_id)

    def _delete(self, change: state_pb2.ConfigChange) -> bool:
        """Delete a topic or group that exists, with all that has no use without it."""
        doomed = self.topics_deleted_by(change)
        gone = self.subscriptions_of(GroupId(change.delete_group_id))
        gone += [self._by_retry[one] for one in doomed if one in self._by_retry]
        for one in gone:
            self._forget_subscription(one)
        for topic_id in doomed:
            topic = self._topics.pop(topic_id)
            self._retentions_ms.pop(topic_id, None)
            self.tolerances_ms.pop(topic_id, None)
            del self._topic_by_name[topic.name]
            _remove_name(self._topic_names, topic.name)
            self._internal_count -= topic.internal
            group = self._group_by_name.get(topic.name.removeprefix(DEAD_LETTER_PREFIX))
            if group is not None and group.dead_letter_topic_id == topic_id:
                self._store_group(replace(group, dead_letter_topic_id=TopicId(0)))
        group = self._groups.pop(GroupId(change.delete_group_id), None)
        if group is not None:
            del self._group_by_name[group.name]
            _remove_name(self._group_names, group.name)
        return True

    def _put_group(self, group: Group) -> bool:
        if not 0 < group.group_id <= GROUP_ID_MAX:
            return False
        dead_letter_topic = self._topics.get(group.dead_letter_topic_id)
        if group.dead_letter_topic_id and not is_internal(
            dead_letter_topic, dead_letter_topic_name(group.name)
        ):
            return False
        old = self._groups.get(group.group_id)
        if old is None:
            if group.group_id < self._next_group_id or group.name in self._group_by_name:
                return False
            self._next_group_id = group.group_id + 1
            insort(self._group_names, group.name)
        elif group.name != old.name:
            return False
        self._store_group(group)
        return True

    def _store_group(self, group: Group) -> None:
        self._groups[group.group_id] = self._group_by_name[group.name] = group

    def _put_subscription(self, config: state_pb2.Subscription) -> bool:
        try:
            subscription = Subscription.read(config)
        except errors.InvalidArgument:
            return False  # a filter of a kind that is not known
        group = self._groups.get(subscription.group_id)
        topic = self._topics.get(subscription.topic_id)
        if group is None or topic is None:
            return False
        retry_topic = self._topics.get(subscription.retry_topic_id)
        if not is_internal(retry_topic, retry_topic_name(group.name, topic.name)):
            return False
        key = (subscription.group_id, subscription.topic_id)
        known = self.find_subscription(*key) or subscription
        if known.retry_topic_id != subscription.retry_topic_id:
            return False
        if topic.internal and subscription.filter is not None:
            return False  # there a filter is of one call: node/delivery/dead_letter_selection.py
        self._store_subscription(replace(subscription, reset=known.reset))
        return True

    def _may_reset(self, reset: state_pb2.SubscriptionReset) -> bool:
        known = self.find_subscription(GroupId(reset.group_id), TopicId(reset.topic_id))
        return (
            known is not None
            and known.retry_topic_id == reset.former_retry_topic_id
            and not self._topics[known.topic_id].internal
            and self._may_take(TopicId(reset.retry_topic_id))
        )

    def _reset(self, change: state_pb2.ConfigChange) -> bool:
        """Another topic takes the retries of a subscription, which stays as it is otherwise."""
        reset = change.reset_subscription
        known = self._by_group[GroupId(reset.group_id)][TopicId(reset.topic_id)]
        name = self._topics[known.retry_topic_id].name
        self._delete(change)
        config = state_pb2.TopicConfig(
            topic_id=reset.retry_topic_id,
            name=name,
            queue_count=1,
            internal=True,
        )
        self._put_topic(config)
        last = LastReset.read(reset)
        retry_topic_id = TopicId(reset.retry_topic_id)
        self._store_subscription(replace(known, retry_topic_id=retry_topic_id, reset=last))
        return True

    def _store_subscription(self, subscription: Subscription) -> None:
        group_id, topic_id = subscription.group_id, subscription.topic_id
        if topic_id not in self._by_group.get(group_id, _NONE):
            insort(self._topics_of.setdefault(group_id, []), topic_id)
        self._by_group.setdefault(group_id, {})[topic_id] = subscription
        self._by_topic.setdefault(topic_id, {})[group_id] = subscription
        self._by_retry[subscription.retry_topic_id] = subscription
        topic = self._topics.get(topic_id)
        if topic is not None and topic.retention_ms:
            self._retentions_ms[subscription.retry_topic_id] = topic.retention_ms

    def _forget_subscription(self, subscription: Subscription) -> None:
        """Forget one, which may be forgotten already."""
        if self._by_retry.pop(subscription.retry_topic_id, None) is None:
            return
        group_id, topic_id = subscription.group_id, subscription.topic_id
        drop_from(self._by_group, group_id, topic_id)
        drop_from(self._by_topic, topic_id, group_id)
        topics = self._topics_of[group_id]
        del topics[bisect_left(topics, topic_id)]
        if not topics:
            del self._topics_of[group_id]

    def write_counters(self, manifest: state_pb2.Checkpoint) -> None:
        """What is neither topic nor group nor subscription, into a checkpoint's manifest."""
        manifest.next_topic_id, manifest.next_group_id = self._next_topic_id, self._next_group_id
        if self.is_controlled:
            manifest.control_revision = self.control_revision
            manifest.next_internal_topic_id = self._next_internal_id

    @classmethod
    def from_manifest(cls, manifest: state_pb2.Checkpoint) -> "Catalog":
        """As of a checkpoint."""
        return cls(
            manifest.topics,
            manifest.groups,
            manifest.subscriptions,
            next_topic_id=manifest.next_topic_id,
            next_group_id=manifest.next_group_id,
            control_revision=manifest.control_revision,
            next_internal_topic_id=manifest.next_internal_topic_id,
        )

    def capture(self) -> Callable[[], States]:
        """The state as of now, to be sorted and encoded by another thread: for the manifest.

        Items never change, so that copies of three dicts are enough.
        """
        topics, groups = self._topics.copy(), self._groups.copy()
        subscriptions = self._by_retry.copy()
        return lambda: (
            [topic.config() for _, topic in sorted(topics.items())],
            [group.config() for _, group in sorted(groups.items())],
            [one.config() for one in sorted(subscriptions.values(), key=_subscription_key)],
        )

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, self._next_topic_id, self._next_group_id)
        if self.is_controlled:  # else as nodes of an earlier version have it
            feed_numbers(hasher, self.control_revision, self._next_internal_id)
        for parts in (self.topics(), self.groups(), self.subscriptions()):
            feed_numbers(hasher, len(parts))
            for part in parts:
                part.digest_into(hasher)


def _subscription_key(subscription: Subscription) -> tuple[int, int]:
    return subscription.group_id, subscription.topic_id


def _remove_name(names: list[str], name: str) -> None:
    del names[bisect_left(names, name)]


_NONE: Final[dict[int, Subscription]] = {}
