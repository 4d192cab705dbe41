"""Any history of changes leaves a catalog that holds together, and that its state describes."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.internal.v1.state_pb2 import (
    ConfigChange,
    GroupConfig,
    Subscription,
    SubscriptionReset,
    TopicConfig,
)
from storage.views.catalog import Catalog
from storage.views.catalog_names import dead_letter_topic_name, retry_topic_name

IDS = st.integers(0, 6)
NAMES = ("a", "b", "a|b")
INTERNAL = tuple(
    [dead_letter_topic_name(name) for name in NAMES]
    + [retry_topic_name(group, topic) for group in NAMES for topic in NAMES]
)

PUT_TOPICS = st.builds(
    lambda topic_id, name, queue_count: ConfigChange(
        put_topic=TopicConfig(
            topic_id=topic_id, name=name, queue_count=queue_count, internal=name in INTERNAL
        )
    ),
    IDS,
    st.sampled_from(NAMES + INTERNAL),
    st.integers(0, 3),
)
PUT_GROUPS = st.builds(
    lambda group_id, name, dead: ConfigChange(
        put_group=GroupConfig(group_id=group_id, name=name, dead_letter_topic_id=dead)
    ),
    IDS,
    st.sampled_from(NAMES),
    IDS,
)
SUBSCRIPTIONS = st.builds(
    lambda group_id, topic_id, retry: ConfigChange(
        put_subscription=Subscription(group_id=group_id, topic_id=topic_id, retry_topic_id=retry)
    ),
    IDS,
    IDS,
    IDS,
)
RESETS = st.builds(
    lambda group_id, topic_id, former, retry: ConfigChange(
        reset_subscription=SubscriptionReset(
            group_id=group_id,
            topic_id=topic_id,
            former_retry_topic_id=former,
            retry_topic_id=retry,
            receipts_epoch=1,
        )
    ),
    IDS,
    IDS,
    IDS,
    st.integers(0, 9),
)
DELETIONS = st.one_of(
    st.builds(lambda topic_id: ConfigChange(delete_topic_id=topic_id), st.integers(1, 6)),
    st.builds(lambda group_id: ConfigChange(delete_group_id=group_id), st.integers(1, 6)),
)


def digest(catalog: Catalog) -> bytes:
    hasher = sha256()
    catalog.digest_into(hasher)
    return hasher.digest()


def reopened(catalog: Catalog) -> Catalog:
    return Catalog(
        *catalog.capture()(),
        next_topic_id=catalog.next_topic_id,
        next_group_id=catalog.next_group_id,
    )


@given(st.lists(st.one_of(PUT_TOPICS, PUT_GROUPS, SUBSCRIPTIONS, RESETS, DELETIONS), max_size=60))
def test_catalog_when_changed_in_any_way(changes: list[ConfigChange]) -> None:
    catalog = Catalog()
    for change in changes:
        before = digest(catalog)
        topics = {topic.topic_id for topic in catalog.topics()}
        expected = set(catalog.topics_deleted_by(change))
        replica = reopened(catalog)
        done = catalog.apply(change)
        catalog.check()
        assert replica.apply(change) == done
        assert digest(replica) == digest(catalog) == digest(reopened(catalog))
        assert done or digest(catalog) == before
        assert topics - {topic.topic_id for topic in catalog.topics()} == expected
        for group in catalog.groups():
            dead = catalog.find_topic_by_id(group.dead_letter_topic_id)
            assert dead is None or dead.name == dead_letter_topic_name(group.name)
            assert dead is not None or not group.dead_letter_topic_id
