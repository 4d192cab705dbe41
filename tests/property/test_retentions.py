"""What a catalog knows of topics' own retention, against topics and subscriptions one by one."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.internal.v1.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from storage.views.catalog import Catalog
from storage.views.catalog_names import retry_topic_name

COUNT: Final = 3
_TOPICS: Final = [f"topic-{number}" for number in range(COUNT)]
_GROUPS: Final = [f"group-{number}" for number in range(COUNT)]
_number: Final = st.integers(0, COUNT - 1)
_steps: Final = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), _number, st.sampled_from([0, 0, 5, 7, 1 << 60])),
        st.tuples(st.just("read"), _number, _number),
        st.tuples(st.just("read retries"), _number, _number),
        st.tuples(st.just("delete topic"), _number, _number),
        st.tuples(st.just("delete retries"), _number, _number),
        st.tuples(st.just("delete group"), _number, _number),
        st.tuples(st.just("restart"), _number, _number),
    ),
    max_size=40,
)


class World:
    """A catalog, changed as the log alone would."""

    def __init__(self) -> None:
        self.catalog = Catalog()

    def do(self, what: str, first: int, second: int) -> None:
        """One change; void where what it names is not there."""
        topic, group = self.catalog.find_topic(_TOPICS[first]), None
        if what == "topic":
            self._put_topic(_TOPICS[first], second)
        elif what == "read":
            self._read(_GROUPS[second], _TOPICS[first])
        elif what == "read retries":
            self._read(_GROUPS[second], retry_topic_name(_GROUPS[first], _TOPICS[second]))
        elif what == "delete topic" and topic is not None:
            self.catalog.apply(ConfigChange(delete_topic_id=topic.topic_id))
        elif what == "delete retries":
            retries = self.catalog.find_topic(retry_topic_name(_GROUPS[second], _TOPICS[first]))
            if retries is not None:
                self.catalog.apply(ConfigChange(delete_topic_id=retries.topic_id))
        elif what == "delete group":
            group = self.catalog.find_group(_GROUPS[first])
            if group is not None:
                self.catalog.apply(ConfigChange(delete_group_id=group.group_id))
        elif what == "restart":
            topics, groups, subscriptions = self.catalog.capture()()
            counters = self.catalog.next_topic_id, self.catalog.next_group_id
            self.catalog = Catalog(
                topics,
                groups,
                subscriptions,
                next_topic_id=counters[0],
                next_group_id=counters[1],
            )

    def _put_topic(self, name: str, retention_ms: int = 0, *, internal: bool = False) -> int:
        found = self.catalog.find_topic(name)
        number = self.catalog.next_topic_id if found is None else found.topic_id
        config = TopicConfig(
            topic_id=number,
            name=name,
            queue_count=1,
            internal=internal,
            retention_ms=retention_ms,
        )
        self.catalog.apply(ConfigChange(put_topic=config))
        return number

    def _read(self, group: str, topic: str) -> None:
        source = self.catalog.find_topic(topic)
        if source is None:
            return
        if self.catalog.find_group(group) is None:
            number = self.catalog.next_group_id
            made = GroupConfig(group_id=number, name=group, attempts_max=3)
            self.catalog.apply(ConfigChange(put_group=made))
        reads = Subscription(
            group_id=self.catalog.get_group(group).group_id,
            topic_id=source.topic_id,
            retry_topic_id=self._put_topic(retry_topic_name(group, topic), internal=True),
        )
        self.catalog.apply(ConfigChange(put_subscription=reads))

    def expected(self) -> dict[int, int]:
        """A topic has its own; so have retries of its messages."""
        found: dict[int, int] = {}
        for topic in self.catalog.topics():
            source = topic
            reads = self.catalog.find_subscription_by_retry(topic.topic_id)
            if reads is not None:
                source = next(
                    one for one in self.catalog.topics() if one.topic_id == reads.topic_id
                )
            if source.retention_ms:
                found[topic.topic_id] = source.retention_ms
        return found


@given(_steps)
def test_retentions_are_those_of_topics_and_of_their_retries(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        world.do(*step)
        world.catalog.check()
        assert dict(world.catalog.retentions_ms) == world.expected()
        assert all(ms < 1 << 53 for ms in world.catalog.retentions_ms.values())
