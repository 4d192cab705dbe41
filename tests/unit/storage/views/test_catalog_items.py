"""Topics, groups and subscriptions as they lie in the log: read and written again the same."""

from dataclasses import replace
from hashlib import sha256

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.internal.v1.state_pb2 import ConfigChange, SubscriptionReset, TopicConfig
from hourwheel.internal.v1.state_pb2 import Subscription as SubscriptionConfig
from hourwheel.types import Epoch, GroupId, TopicId
from hourwheel.v1 import filter_pb2
from storage.views.catalog_items import Group, LastReset, Subscription, Topic
from tests.support.golden import golden

TOPIC = Topic(TopicId(7), "orders", 4)
GROUP = Group(GroupId(2), "billing", 16, 30_000, 1_000, 600_000, TopicId(3))
SUBSCRIPTION = Subscription(GroupId(2), TopicId(7), TopicId(9))
FILTERS = [
    None,
    FilterExpression.tags("paid && !test"),
    FilterExpression.tags("paid && !test", check_at_client=True),
    FilterExpression.sql("region = 'eu'"),
]
SPECS = [
    DEFAULT_SPEC,
    GeneSpec(GeneKind.SPARSE, 5, ("region",)),
    GeneSpec(GeneKind.BLOOM, 2),
    GeneSpec(GeneKind.HASH_SET),
    GeneSpec(GeneKind.OR_GENE),
]


def digest(item: Topic | Group | Subscription) -> str:
    hasher = sha256()
    item.digest_into(hasher)
    return hasher.hexdigest()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.text)
def test_topic_is_the_same_when_it_was_written_and_read(spec: GeneSpec) -> None:
    topic = Topic(TopicId(7), "orders", 4, gene=spec)
    assert Topic.read(topic.config()) == topic
    assert topic.config().HasField("gene"), "a default that changes must not change topics"


def test_topic_without_a_gene_has_the_default_one() -> None:
    assert Topic.read(TopicConfig(topic_id=7, name="orders", queue_count=4)) == TOPIC
    internal = Topic(TopicId(8), "%DLQ%billing", 1, internal=True)
    assert not internal.config().HasField("gene")
    assert Topic.read(internal.config()) == internal


@pytest.mark.parametrize(
    "gene",
    [
        filter_pb2.GeneSpec(kind=filter_pb2.GENE_KIND_SPARSE, bits_per_item=99),
        filter_pb2.GeneSpec(kind=77),  # type: ignore[arg-type]  # of a later version
    ],
)
def test_topic_is_refused_when_its_genes_cannot_be_made(gene: filter_pb2.GeneSpec) -> None:
    with pytest.raises(errors.InvalidArgument):
        Topic.read(TopicConfig(topic_id=7, name="orders", queue_count=4, gene=gene))


def test_group_is_the_same_when_it_was_written_and_read() -> None:
    assert Group.read(GROUP.config()) == GROUP


@pytest.mark.parametrize("wanted", FILTERS)
def test_subscription_is_the_same_when_it_was_written_and_read(
    wanted: FilterExpression | None,
) -> None:
    subscription = Subscription(GroupId(2), TopicId(7), TopicId(9), wanted)
    assert Subscription.read(subscription.config()) == subscription
    assert subscription.config().HasField("filter") == (wanted is not None)


def test_subscription_is_refused_when_its_kind_of_filter_is_not_known() -> None:
    wanted = filter_pb2.FilterExpression(kind=77, text="?")  # type: ignore[arg-type]
    config = SubscriptionConfig(group_id=2, topic_id=7, retry_topic_id=9, filter=wanted)
    with pytest.raises(errors.InvalidArgument):
        Subscription.read(config)


def test_digests_differ_when_anything_does() -> None:
    items: list[Topic | Group | Subscription] = [TOPIC, GROUP]
    items += [Topic(TopicId(7), "orders", 4, gene=spec) for spec in SPECS[1:]]
    items += [Topic(TopicId(7), "orders", 5), Topic(TopicId(7), "orders", 4, internal=True)]
    items += [Subscription(GroupId(2), TopicId(7), TopicId(9), wanted) for wanted in FILTERS]
    assert len({digest(item) for item in items}) == len(items)
    assert digest(SUBSCRIPTION) == digest(Subscription.read(SUBSCRIPTION.config()))


def test_group_that_receiving_made_is_so_when_read_and_has_the_same_digest() -> None:
    automatic = replace(GROUP, automatic=True)
    assert Group.read(automatic.config()) == automatic
    assert not Group.read(GROUP.config()).automatic
    assert digest(automatic) == digest(GROUP), "a node that does not know the field agrees"


def test_group_that_receiving_made_has_the_bytes_that_it_always_had() -> None:
    change = ConfigChange(put_group=replace(GROUP, automatic=True).config())
    plain = ConfigChange(put_group=GROUP.config()).SerializeToString(deterministic=True)
    raw = change.SerializeToString(deterministic=True)
    assert raw == golden("config_automatic_group")
    assert raw[2:] == plain[2:] + b"\x40\x01", "one more field at the end"


def test_topic_that_publishing_made_is_so_when_read_and_has_the_same_digest() -> None:
    automatic = replace(TOPIC, automatic=True)
    assert Topic.read(automatic.config()) == automatic
    assert not Topic.read(TOPIC.config()).automatic
    assert digest(automatic) == digest(TOPIC), "a node that does not know the field agrees"


def test_topic_that_publishing_made_has_the_bytes_that_it_always_had() -> None:
    change = ConfigChange(put_topic=replace(TOPIC, automatic=True).config())
    plain = ConfigChange(put_topic=TOPIC.config()).SerializeToString(deterministic=True)
    raw = change.SerializeToString(deterministic=True)
    assert raw == golden("config_automatic_topic")
    assert raw[2:] == plain[2:] + b"\x30\x01", "one more field at the end"


def test_topic_with_a_retention_of_its_own_has_it_when_read_and_in_its_digest() -> None:
    kept = replace(TOPIC, retention_ms=30 * 86_400_000)
    assert Topic.read(kept.config()) == kept
    assert len({digest(one) for one in (TOPIC, kept, replace(TOPIC, retention_ms=60_000))}) == 3


def test_topic_with_a_retention_of_its_own_has_the_bytes_that_it_always_had() -> None:
    kept = replace(TOPIC, retention_ms=30 * 86_400_000)
    raw = ConfigChange(put_topic=kept.config()).SerializeToString(deterministic=True)
    assert raw == golden("config_retained_topic")


def test_reset_has_the_bytes_that_it_always_had() -> None:
    reset = SubscriptionReset(
        group_id=3,
        topic_id=1,
        former_retry_topic_id=16_777_215,
        retry_topic_id=16_777_212,
        topic_queues=[256, 257],
        positions=[0, 3_000_000_000],
        receipts_epoch=7,
        receipts_lease_id=1 << 40,
        reset_offset=1 << 33,
    )
    raw = ConfigChange(reset_subscription=reset).SerializeToString(deterministic=True)
    assert raw == golden("config_reset_subscription")


def test_subscription_that_was_reset_comes_back_from_the_wire() -> None:
    subscription = Subscription(
        GroupId(3), TopicId(1), TopicId(9), None, LastReset(Epoch(7), 5, 4_096)
    )
    assert Subscription.read(subscription.config()) == subscription
