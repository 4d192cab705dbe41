"""A catalog whose topics and groups come from the control state."""

import hashlib

from hourwheel.internal.v1.state_pb2 import (
    Checkpoint,
    ConfigChange,
    GroupConfig,
    Subscription,
    TopicConfig,
)
from hourwheel.types import TOPIC_ID_MAX
from storage.views.catalog import Catalog
from storage.views.catalog_names import dead_letter_topic_name, retry_topic_name

ADOPT = ConfigChange(adopt_control_state=True, control_revision=10)


def topic(number: int, name: str, *, revision: int = 0, internal: bool = False) -> ConfigChange:
    config = TopicConfig(topic_id=number, name=name, queue_count=1, internal=internal)
    return ConfigChange(put_topic=config, control_revision=revision)


def group(number: int, name: str, letters: int, revision: int = 0) -> ConfigChange:
    config = GroupConfig(group_id=number, name=name, dead_letter_topic_id=letters)
    return ConfigChange(put_group=config, control_revision=revision)


def adopted() -> Catalog:
    """With a topic and a group of the time before."""
    catalog = Catalog()
    assert catalog.apply(topic(1, "orders"))
    assert catalog.apply(topic(2, dead_letter_topic_name("mail"), internal=True))
    assert catalog.apply(group(1, "mail", 2))
    assert catalog.apply(ADOPT)
    return catalog


def digest(catalog: Catalog) -> str:
    hasher = hashlib.sha256()
    catalog.digest_into(hasher)
    catalog.check()
    return hasher.hexdigest()


def test_log_alone_decides_no_more_behind_the_record() -> None:
    catalog = adopted()
    assert not catalog.apply(topic(3, "bills"))
    assert not catalog.apply(group(2, "new", 0))
    assert not catalog.apply(ConfigChange(delete_topic_id=1))
    assert not catalog.apply(ConfigChange(delete_group_id=1))
    assert catalog.apply(topic(3, "bills", revision=11))
    assert catalog.apply(ConfigChange(delete_topic_id=1, control_revision=12))
    assert catalog.control_revision == 12
    catalog.check()


def test_change_of_an_earlier_state_is_void() -> None:
    catalog = adopted()
    assert catalog.apply(topic(3, "bills", revision=15))
    assert not catalog.apply(topic(4, "late", revision=14))
    assert catalog.apply(topic(4, "with it", revision=15)), "of the same state"
    assert not catalog.apply(ConfigChange(adopt_control_state=True, control_revision=14))
    assert catalog.apply(ConfigChange(adopt_control_state=True, control_revision=16))


def test_own_topics_and_subscriptions_stay_the_logs_and_have_numbers_from_the_top() -> None:
    catalog = adopted()
    name = retry_topic_name("mail", "orders")
    assert not catalog.apply(topic(TOPIC_ID_MAX + 1, name, internal=True))
    assert catalog.next_internal_id == TOPIC_ID_MAX
    assert catalog.apply(topic(TOPIC_ID_MAX, name, internal=True))
    subscription = Subscription(group_id=1, topic_id=1, retry_topic_id=TOPIC_ID_MAX)
    assert catalog.apply(ConfigChange(put_subscription=subscription))
    assert (catalog.next_topic_id, catalog.next_internal_id) == (3, TOPIC_ID_MAX - 1)
    assert catalog.apply(topic(3, "bills", revision=11)), "the one below goes on upwards"
    assert catalog.apply(ConfigChange(delete_topic_id=TOPIC_ID_MAX))
    assert not catalog.apply(topic(TOPIC_ID_MAX, name, internal=True)), "never used again"
    catalog.check()


def test_both_sides_never_meet() -> None:
    catalog = adopted()
    assert catalog.apply(topic(TOPIC_ID_MAX - 5, "%own", internal=True))
    assert catalog.apply(topic(TOPIC_ID_MAX - 6, "last", revision=11))
    assert not catalog.apply(topic(TOPIC_ID_MAX - 5, "beyond", revision=11))
    assert not catalog.apply(topic(TOPIC_ID_MAX - 6, "%another", internal=True))
    catalog.check()


def test_catalog_when_read_from_its_manifest() -> None:
    catalog = adopted()
    assert catalog.apply(topic(TOPIC_ID_MAX, "%own", internal=True))
    manifest = Checkpoint()
    catalog.write_counters(manifest)
    topics, groups, subscriptions = catalog.capture()()
    manifest.topics.extend(topics)
    manifest.groups.extend(groups)
    manifest.subscriptions.extend(subscriptions)
    read = Catalog.from_manifest(manifest)
    assert digest(read) == digest(catalog)
    assert (read.control_revision, read.next_internal_id) == (10, TOPIC_ID_MAX - 1)


def test_digest_is_the_former_one_before_the_record() -> None:
    """Nodes of an earlier version compare it."""
    catalog = Catalog()
    assert digest(catalog) == digest(Catalog(next_internal_topic_id=TOPIC_ID_MAX))
    before = digest(catalog)
    assert catalog.apply(ADOPT)
    assert digest(catalog) != before
    manifest = Checkpoint()
    Catalog().write_counters(manifest)
    assert {one.name for one, _ in manifest.ListFields()} == {"next_topic_id", "next_group_id"}
