"""Topics, consumer groups and subscriptions, as CONFIG records made them.

Whoever proposes a change picks the numbers and checks the names; `Catalog.apply` decides, in log
order, by rules that only look at what is applied already. A change that no longer fits is void, on
every replica, and the proposer looks again at what there is. So two nodes, or two calls, may create
the same topic at once.

    put_topic         void if the number is used, or was, by another name; if the name has another
                      number; if queues would vanish; if it would turn internal or cease to be; if
                      its genes would be made otherwise, or cannot be made at all
    delete_topic      void if there is none. Takes its subscriptions and their retry topics with it;
                      a retry topic takes its subscription; a dead-letter topic leaves its group
    put_group         as put_topic; the dead-letter topic must be the group's own, or 0
    delete_group      void if there is none. Takes its subscriptions and their retry topics with it;
                      dead letters are data, and stay until somebody deletes that topic
    put_subscription  void if group, topic or retry topic are not there, the retry topic is not that
                      of this group and topic, or another one is in use, or there is a filter and
                      the topic is internal. What the group wants of the topic may change

Numbers are never used again: entries of a deleted topic lie around for years, and must not turn up
in another.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.limits import NAME_BYTES_MAX
from hourwheel.types import QUEUE_COUNT_MAX, TOPIC_ID_MAX, GroupId, TopicId
from storage.catalog_items import Group, Subscription, Topic
from storage.digest import Hasher, feed_numbers

GROUP_ID_MAX: Final = (1 << 32) - 1
_NAME: Final = re.compile(rf"[A-Za-z0-9_.|-]{{1,{NAME_BYTES_MAX}}}")
_RULE: Final = f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.', '|' or '-'"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"


def validate_topic_name(name: str) -> None:
    """Refuse a name that no topic may be created by.

    Raises:
        InvalidTopic: empty, too long, or with a character that is not allowed; '%' is kept for the
            cluster's own topics.
    """
    if not _NAME.fullmatch(name):
        raise errors.InvalidTopic(f"a topic's name is {_RULE}, not {name[:200]!r}")


def validate_group_name(name: str) -> None:
    """Refuse a name that no group may be created by.

    Raises:
        InvalidGroup: as for topics.
    """
    if not _NAME.fullmatch(name):
        raise errors.InvalidGroup(f"a group's name is {_RULE}, not {name[:200]!r}")


def retry_topic_name(group: str, topic: str) -> str:
    """Name of the internal topic that takes a group's retries of one topic.

    "%RETRY%<group>|<topic>", in which a '|' of the group is written "%7C": else the retries of
    group "a|b" from topic "c" and those of group "a" from topic "b|c" would share one.
    """
    return f"{RETRY_PREFIX}{group.replace('|', '%7C')}|{topic}"


def dead_letter_topic_name(group: str) -> str:
    """Name of the internal topic that takes a group's dead letters: "%DLQ%<group>"."""
    return f"{DEAD_LETTER_PREFIX}{group}"


class Catalog:
    """What exists, by number and by name. Lies in the checkpoint's manifest."""

    def __init__(
        self,
        topics: Iterable[state_pb2.TopicConfig] = (),
        groups: Iterable[state_pb2.GroupConfig] = (),
        subscriptions: Iterable[state_pb2.Subscription] = (),
        *,
        next_topic_id: int = 1,
        next_group_id: int = 1,
    ) -> None:
        """Take up the state of a checkpoint (where an untouched counter is 0)."""
        self._topics = {config.topic_id: Topic.read(config) for config in topics}
        self._groups = {config.group_id: Group.read(config) for config in groups}
        self._subscriptions = {
            (config.group_id, config.topic_id): Subscription.read(config)
            for config in subscriptions
        }
        self._next_topic_id = max(next_topic_id, 1)
        """Above every topic's number ever used."""
        self._next_group_id = max(next_group_id, 1)
        self._topic_by_name = {topic.name: topic for topic in self._topics.values()}
        self._group_by_name = {group.name: group for group in self._groups.values()}
        self._subscription_by_retry = {
            each.retry_topic_id: each for each in self._subscriptions.values()
        }
        self.check()

    def check(self) -> None:
        """Assert the invariants."""
        errors.invariant(
            len(self._topic_by_name) == len(self._topics)
            and len(self._group_by_name) == len(self._groups),
            "two topics or groups of one name",
        )
        errors.invariant(
            max(self._topics, default=0) < self._next_topic_id
            and max(self._groups, default=0) < self._next_group_id,
            "a number that is still to be given out is in use",
        )
        for each in self._subscriptions.values():
            errors.invariant(
                each.group_id in self._groups
                and each.topic_id in self._topics
                and each.retry_topic_id in self._topics
                and self._subscription_by_retry[each.retry_topic_id] is each,
                "a subscription of what does not exist",
                group_id=each.group_id,
                topic_id=each.topic_id,
            )

    @property
    def next_topic_id(self) -> TopicId:
        """The number for whoever proposes a topic."""
        return TopicId(self._next_topic_id)

    @property
    def next_group_id(self) -> GroupId:
        """The number for whoever proposes a group."""
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

    def find_topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of a number, unless it was deleted."""
        return self._topics.get(topic_id)

    def topics(self) -> list[Topic]:
        """All topics, by number."""
        return [topic for _, topic in sorted(self._topics.items())]

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

    def find_group_by_id(self, group_id: int) -> Group | None:
        """The group of a number, unless it was deleted."""
        return self._groups.get(group_id)

    def groups(self) -> list[Group]:
        """All groups, by number."""
        return [group for _, group in sorted(self._groups.items())]

    def find_subscription(self, group_id: int, topic_id: int) -> Subscription | None:
        """How a group receives from a topic."""
        return self._subscriptions.get((group_id, topic_id))

    def find_subscription_by_retry(self, retry_topic_id: int) -> Subscription | None:
        """Whose retries a topic takes."""
        return self._subscription_by_retry.get(TopicId(retry_topic_id))

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, by group, then topic."""
        return [each for _, each in sorted(self._subscriptions.items())]

    def apply(self, change: state_pb2.ConfigChange) -> bool:
        """Make one change of the log, or find it void: see the table at the top.

        Returns:
            Whether it was made.
        """
        match change.WhichOneof("change"):
            case "put_topic":
                return self._put_topic(change.put_topic)
            case "delete_topic_id":
                return change.delete_topic_id in self._topics and self._delete(change)
            case "put_group":
                return self._put_group(Group.read(change.put_group))
            case "delete_group_id":
                return change.delete_group_id in self._groups and self._delete(change)
            case "put_subscription":
                return self._put_subscription(change.put_subscription)
        # To skip what a newer node wrote would be to disagree with that node for ever.
        raise errors.InvariantViolated("a change of the configuration that is not known here")

    def topics_deleted_by(self, change: state_pb2.ConfigChange) -> list[TopicId]:
        """Which topics `apply` would delete, ascending: their queues can go then."""
        doomed = {change.delete_topic_id} & self._topics.keys()
        while True:
            # A group may receive from another one's retry topic, so this goes on.
            more = {
                each.retry_topic_id
                for each in self._subscriptions.values()
                if each.group_id == change.delete_group_id or each.topic_id in doomed
            }
            if more <= doomed:
                return sorted(map(TopicId, doomed))
            doomed |= more

    def _put_topic(self, config: state_pb2.TopicConfig) -> bool:
        try:
            topic = Topic.read(config)
        except errors.InvalidArgument:
            return False  # no such genes can be made
        if not 0 < topic.topic_id <= TOPIC_ID_MAX or not 0 < topic.queue_count <= QUEUE_COUNT_MAX:
            return False
        old = self._topics.get(topic.topic_id)
        if old is None:
            if topic.topic_id < self._next_topic_id or topic.name in self._topic_by_name:
                return False
            self._next_topic_id = topic.topic_id + 1
        elif (
            topic.name != old.name
            or topic.internal != old.internal
            or topic.queue_count < old.queue_count
            or topic.gene != old.gene
        ):
            return False
        self._topics[topic.topic_id] = self._topic_by_name[topic.name] = topic
        return True

    def _delete(self, change: state_pb2.ConfigChange) -> bool:
        """Delete a topic or group that exists, with all that has no use without it."""
        doomed = self.topics_deleted_by(change)
        for each in self.subscriptions():
            if each.group_id == change.delete_group_id or each.retry_topic_id in doomed:
                del self._subscriptions[each.group_id, each.topic_id]
                del self._subscription_by_retry[each.retry_topic_id]
        for topic_id in doomed:
            del self._topic_by_name[self._topics.pop(topic_id).name]
        for group in self.groups():
            if group.group_id == change.delete_group_id:
                del self._groups[group.group_id], self._group_by_name[group.name]
            elif group.dead_letter_topic_id in doomed:
                self._store_group(replace(group, dead_letter_topic_id=TopicId(0)))
        return True

    def _put_group(self, group: Group) -> bool:
        if not 0 < group.group_id <= GROUP_ID_MAX:
            return False
        dead_letter_topic = self._topics.get(group.dead_letter_topic_id)
        if group.dead_letter_topic_id and not _is_internal(
            dead_letter_topic, dead_letter_topic_name(group.name)
        ):
            return False
        old = self._groups.get(group.group_id)
        if old is None:
            if group.group_id < self._next_group_id or group.name in self._group_by_name:
                return False
            self._next_group_id = group.group_id + 1
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
        if not _is_internal(retry_topic, retry_topic_name(group.name, topic.name)):
            return False
        key = (subscription.group_id, subscription.topic_id)
        known = self._subscriptions.get(key, subscription)
        if known.retry_topic_id != subscription.retry_topic_id:
            return False
        if topic.internal and subscription.filter is not None:
            return False  # whoever proposed it did not know yet: see Selecting in node/receive.py
        self._subscriptions[key] = subscription
        self._subscription_by_retry[subscription.retry_topic_id] = subscription
        return True

    def topic_states(self) -> list[state_pb2.TopicConfig]:
        """All topics for the manifest, by number."""
        return [topic.config() for topic in self.topics()]

    def group_states(self) -> list[state_pb2.GroupConfig]:
        """All groups for the manifest, by number."""
        return [group.config() for group in self.groups()]

    def subscription_states(self) -> list[state_pb2.Subscription]:
        """All subscriptions for the manifest, by group, then topic."""
        return [each.config() for each in self.subscriptions()]

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, self._next_topic_id, self._next_group_id)
        for parts in (self.topics(), self.groups(), self.subscriptions()):
            feed_numbers(hasher, len(parts))
            for part in parts:
                part.digest_into(hasher)


def _is_internal(topic: Topic | None, name: str) -> bool:
    """Whether it is the cluster's own topic of that name."""
    return topic is not None and topic.internal and topic.name == name
