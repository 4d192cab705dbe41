from hashlib import sha256

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.internal.v1.state_pb2 import ConfigChange, GroupConfig, Subscription, TopicConfig
from hourwheel.types import TOPIC_ID_MAX
from hourwheel.v1.filter_pb2 import GENE_KIND_BLOOM, GeneSpec
from storage.views.catalog import Catalog
from storage.views.catalog_items import Topic
from storage.views.catalog_names import (
    dead_letter_topic_name,
    retry_topic_name,
    validate_group_name,
    validate_topic_name,
)


def put_topic(topic_id: int, name: str, queues: int = 4, *, internal: bool = False) -> ConfigChange:
    return ConfigChange(
        put_topic=TopicConfig(topic_id=topic_id, name=name, queue_count=queues, internal=internal)
    )


def put_group(group_id: int, name: str, *, dead: int = 0, attempts: int = 16) -> ConfigChange:
    return ConfigChange(
        put_group=GroupConfig(
            group_id=group_id, name=name, attempts_max=attempts, dead_letter_topic_id=dead
        )
    )


def subscribe(group_id: int, topic_id: int, retry_topic_id: int) -> ConfigChange:
    return ConfigChange(
        put_subscription=Subscription(
            group_id=group_id, topic_id=topic_id, retry_topic_id=retry_topic_id
        )
    )


def delete_topic(topic_id: int) -> ConfigChange:
    return ConfigChange(delete_topic_id=topic_id)


def delete_group(group_id: int) -> ConfigChange:
    return ConfigChange(delete_group_id=group_id)


def catalog_of(*changes: ConfigChange) -> Catalog:
    catalog = Catalog()
    for change in changes:
        assert catalog.apply(change)
        catalog.check()
    return catalog


@pytest.fixture
def catalog() -> Catalog:
    """Group g (1) receives from topic t (1): retries go to 3, dead letters to 2."""
    return catalog_of(
        put_topic(1, "t"),
        put_topic(2, "%DLQ%g", 1, internal=True),
        put_group(1, "g", dead=2),
        put_topic(3, "%RETRY%g|t", 1, internal=True),
        subscribe(1, 1, 3),
    )


def digest(catalog: Catalog) -> bytes:
    hasher = sha256()
    catalog.digest_into(hasher)
    return hasher.digest()


@pytest.mark.parametrize("name", ["a", "A.b_c|d-9", "x" * 127])
def test_validate_when_good(name: str) -> None:
    validate_topic_name(name)
    validate_group_name(name)


@pytest.mark.parametrize("name", ["", "x" * 128, "a b", "a/b", "%DLQ%a", "ä", "a\n", "a\0"])
def test_validate_when_bad(name: str) -> None:
    with pytest.raises(errors.InvalidTopic):
        validate_topic_name(name)
    with pytest.raises(errors.InvalidGroup):
        validate_group_name(name)


def test_internal_names_when_groups_and_topics_have_bars() -> None:
    assert dead_letter_topic_name("g") == "%DLQ%g"
    assert retry_topic_name("g", "t|u") == "%RETRY%g|t|u"
    assert retry_topic_name("a|b", "c") != retry_topic_name("a", "b|c")


def test_lookups_when_there_and_not(catalog: Catalog) -> None:
    topic = catalog.get_topic("t")
    assert topic == Topic(topic.topic_id, "t", 4)
    assert catalog.find_topic("t") is catalog.find_topic_by_id(1) is topic
    assert catalog.find_topic("u") is None
    assert catalog.find_topic_by_id(9) is None
    group = catalog.get_group("g")
    assert catalog.find_group("g") is catalog.find_group_by_id(1) is group
    assert catalog.find_group("h") is None
    assert catalog.find_group_by_id(9) is None
    subscription = catalog.find_subscription(1, 1)
    assert subscription is catalog.find_subscription_by_retry(3)
    assert catalog.subscriptions() == [subscription]
    assert catalog.find_subscription(1, 2) is None
    assert catalog.find_subscription_by_retry(1) is None
    assert [each.name for each in catalog.topics()] == ["t", "%DLQ%g", "%RETRY%g|t"]
    assert [each.name for each in catalog.groups()] == ["g"]
    assert (catalog.next_topic_id, catalog.next_group_id) == (4, 2)


def test_get_when_unknown() -> None:
    with pytest.raises(errors.UnknownTopic):
        Catalog().get_topic("t")
    with pytest.raises(errors.UnknownGroup):
        Catalog().get_group("g")


@pytest.mark.parametrize(
    "change",
    [
        put_topic(4, "t"),
        put_topic(1, "u"),
        put_topic(1, "t", 3),
        put_topic(1, "t", 4, internal=True),
        put_topic(0, "u"),
        put_topic(TOPIC_ID_MAX + 1, "u"),
        put_topic(4, "u", 0),
        put_topic(4, "u", 257),
        put_group(2, "g"),
        put_group(1, "h"),
        put_group(0, "h"),
        put_group(2, "h", dead=9),
        put_group(2, "h", dead=2),
        put_group(1, "g", dead=1),
        subscribe(9, 1, 3),
        subscribe(1, 9, 3),
        subscribe(1, 1, 9),
        subscribe(1, 1, 1),
        subscribe(1, 3, 3),
        delete_topic(9),
        delete_group(9),
    ],
    ids=str,
)
def test_apply_when_void_changes_nothing(catalog: Catalog, change: ConfigChange) -> None:
    before = digest(catalog)
    assert not catalog.apply(change)
    assert digest(catalog) == before
    catalog.check()


def test_apply_when_two_create_the_same_topic() -> None:
    catalog = catalog_of(put_topic(1, "t"))
    assert not catalog.apply(put_topic(2, "t"))
    assert catalog.get_topic("t").topic_id == 1
    assert catalog.next_topic_id == 2


def test_apply_when_two_take_the_same_number() -> None:
    catalog = catalog_of(put_topic(1, "t"), put_group(1, "g"))
    assert not catalog.apply(put_topic(1, "u"))
    assert not catalog.apply(put_group(1, "h"))
    assert catalog.find_topic("u") is None
    assert catalog.find_group("h") is None


def test_apply_when_settings_change(catalog: Catalog) -> None:
    assert catalog.apply(put_topic(1, "t", 9))
    assert catalog.get_topic("t").queue_count == 9
    assert catalog.apply(put_group(1, "g", dead=2, attempts=3))
    assert catalog.get_group("g").attempts_max == 3


def test_apply_when_a_number_was_used_before() -> None:
    catalog = catalog_of(put_topic(1, "t"), delete_topic(1), put_group(1, "g"), delete_group(1))
    assert not catalog.apply(put_topic(1, "t"))
    assert not catalog.apply(put_group(1, "g"))
    assert catalog.apply(put_topic(2, "t"))
    assert catalog.apply(put_group(2, "g"))


def test_apply_when_numbers_are_left_out() -> None:
    catalog = catalog_of(put_topic(7, "t"))
    assert catalog.next_topic_id == 8
    assert not catalog.apply(put_topic(3, "u"))


def test_apply_when_subscribed_again(catalog: Catalog) -> None:
    assert catalog.apply(subscribe(1, 1, 3))
    assert len(catalog.subscriptions()) == 1


def test_apply_when_a_group_wants_something_else(catalog: Catalog) -> None:
    for text in ("a", "b", ""):
        change = subscribe(1, 1, 3)
        if text:
            change.put_subscription.filter.text = text
        before = digest(catalog)
        assert catalog.apply(change)
        assert digest(catalog) != before
        (found,) = catalog.subscriptions()
        assert found.filter == (FilterExpression.tags(text) if text else None)
        assert catalog.find_subscription_by_retry(3) is found
        catalog.check()


def test_apply_when_genes_change_or_cannot_be_made(catalog: Catalog) -> None:
    before = digest(catalog)
    for gene in (GeneSpec(kind=GENE_KIND_BLOOM), GeneSpec(bits_per_item=99), GeneSpec(kind=77)):
        for number, name in ((1, "t"), (8, "new")):
            change = put_topic(number, name)
            change.put_topic.gene.CopyFrom(gene)
            is_possible = gene.kind == GENE_KIND_BLOOM and name == "new"
            assert catalog.apply(change) == is_possible
            if not is_possible:
                assert digest(catalog) == before
        before = digest(catalog)


def test_apply_when_a_filter_is_of_a_kind_that_is_not_known(catalog: Catalog) -> None:
    change = subscribe(1, 1, 3)
    change.put_subscription.filter.kind = 77  # type: ignore[assignment]
    assert not catalog.apply(change)


def test_apply_when_a_group_filters_dead_letters(catalog: Catalog) -> None:
    assert catalog.apply(put_topic(4, "%RETRY%g|%DLQ%g", 1, internal=True))
    change = subscribe(1, 2, 4)
    change.put_subscription.filter.text = "a"
    assert not catalog.apply(change), "what one call selects must not be passed over for good"
    assert catalog.apply(subscribe(1, 2, 4))


def test_delete_topic_when_subscribed_takes_retries_with_it(catalog: Catalog) -> None:
    assert catalog.topics_deleted_by(delete_topic(1)) == [1, 3]
    assert catalog.apply(delete_topic(1))
    catalog.check()
    assert [topic.topic_id for topic in catalog.topics()] == [2]
    assert catalog.subscriptions() == []
    assert catalog.find_subscription_by_retry(3) is None


def test_delete_topic_when_it_takes_retries_or_dead_letters(catalog: Catalog) -> None:
    assert catalog.apply(delete_topic(3))
    assert catalog.subscriptions() == []
    assert catalog.apply(delete_topic(2))
    assert catalog.get_group("g").dead_letter_topic_id == 0
    catalog.check()


def test_delete_group_when_subscribed_leaves_dead_letters(catalog: Catalog) -> None:
    assert catalog.topics_deleted_by(delete_group(1)) == [3]
    assert catalog.apply(delete_group(1))
    catalog.check()
    assert [topic.name for topic in catalog.topics()] == ["t", "%DLQ%g"]
    assert catalog.apply(put_group(2, "g", dead=2))


def test_delete_topic_when_groups_receive_from_retries(catalog: Catalog) -> None:
    for change in (
        put_group(2, "h"),
        put_topic(4, "%RETRY%h|%RETRY%g|t", 1, internal=True),
        subscribe(2, 3, 4),
    ):
        assert catalog.apply(change)
    assert catalog.topics_deleted_by(delete_topic(1)) == [1, 3, 4]
    assert catalog.apply(delete_topic(1))
    catalog.check()
    assert [topic.topic_id for topic in catalog.topics()] == [2]


@pytest.mark.parametrize(
    "change", [put_topic(9, "t"), put_group(9, "g"), delete_topic(9), delete_group(9)], ids=str
)
def test_topics_deleted_by_when_none(catalog: Catalog, change: ConfigChange) -> None:
    assert catalog.topics_deleted_by(change) == []


def test_apply_when_the_change_is_of_a_newer_node() -> None:
    with pytest.raises(errors.InvariantViolated):
        Catalog().apply(ConfigChange.FromString(b"\xfa\x01\x01x"))


def test_state_when_taken_up_again(catalog: Catalog) -> None:
    again = Catalog(
        *catalog.capture()(),
        next_topic_id=catalog.next_topic_id,
        next_group_id=catalog.next_group_id,
    )
    assert digest(again) == digest(catalog)
    assert again.find_subscription_by_retry(3) == catalog.find_subscription(1, 1)


def test_state_when_a_number_in_use_is_to_be_given_out(catalog: Catalog) -> None:
    with pytest.raises(errors.InvariantViolated):
        Catalog(catalog.capture()()[0], next_topic_id=3)


def test_state_when_two_topics_have_one_name() -> None:
    topics = [TopicConfig(topic_id=number, name="t", queue_count=1) for number in (1, 2)]
    with pytest.raises(errors.InvariantViolated):
        Catalog(topics, next_topic_id=3)


def test_state_when_a_subscription_hangs_in_the_air() -> None:
    with pytest.raises(errors.InvariantViolated):
        Catalog(subscriptions=[Subscription(group_id=1, topic_id=1, retry_topic_id=2)])


def test_digest_when_the_history_differs() -> None:
    """Numbers that were used count: they decide what the next change does."""
    assert digest(catalog_of(put_topic(1, "t"), delete_topic(1))) != digest(Catalog())
