"""Topics, groups, status and message states over real gRPC."""

import uuid
from typing import Any

import pytest

import hourwheel
from hourwheel.delay_levels import RetryPreset
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import parse
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import filter_pb2, groups_pb2, status_pb2
from node.contracts.broker import (
    CatalogUpdate,
    GroupInfo,
    GroupSettings,
    ShardGauges,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.dead_letters import DeadLetterInfo, DeadLettersInfo
from node.contracts.group_positions import ResetTarget, UnblockAction
from storage.views.catalog_items import GroupOrder
from tests.support.api_world import STARTED_MS, ApiWorld, refused
from tests.support.fake_engine import CLUSTER_ID, NOW_MS


async def test_topics_can_be_made_listed_and_deleted() -> None:
    async with ApiWorld() as world:
        made = await world.admin.CreateTopic(
            wire.CreateTopicRequest(name="orders", settings=wire.TopicSettings(queue_count=4))
        )
        await world.admin.CreateTopic(wire.CreateTopicRequest(name="audit"))
        world.engine.known_topics["%DLQ%g"] = TopicInfo("%DLQ%g", 1, True, 5)
        listed = await world.admin.ListTopics(wire.ListTopicsRequest())
        everything = await world.admin.ListTopics(wire.ListTopicsRequest(include_internal=True))
        one = await world.admin.GetTopic(wire.GetTopicRequest(name="%DLQ%g"))
        await world.admin.DeleteTopic(wire.DeleteTopicRequest(name="orders"))
        gone = await refused(world.admin.GetTopic(wire.GetTopicRequest(name="orders")))
    assert (made.topic.name, made.topic.settings.queue_count) == ("orders", 4)
    assert [(each.name, each.settings.queue_count) for each in listed.topics] == [
        ("audit", 1),
        ("orders", 4),
    ]
    assert [each.name for each in everything.topics] == ["%DLQ%g", "audit", "orders"]
    assert one.topic.released_count == 5
    assert (gone.reason, gone.params) == ("UNKNOWN_TOPIC", {"topic": "orders"})


async def test_topic_is_refused_when_it_exists_with_other_settings() -> None:
    async with ApiWorld() as world:
        await world.admin.CreateTopic(wire.CreateTopicRequest(name="orders"))
        again = await world.admin.CreateTopic(wire.CreateTopicRequest(name="orders"))
        other = wire.CreateTopicRequest(name="orders", settings=wire.TopicSettings(queue_count=2))
        refusal = await refused(world.admin.CreateTopic(other))
    assert again.topic.name == "orders"
    assert refusal.reason == "ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("name", "queue_count", "reason"),
    [
        ("", 1, "INVALID_TOPIC"),
        ("%mine", 1, "INVALID_TOPIC"),
        ("x" * 128, 1, "INVALID_TOPIC"),
        ("orders", 257, "INVALID_ARGUMENT"),
    ],
)
async def test_topic_is_refused_when_name_or_settings_are_bad(
    name: str, queue_count: int, reason: str
) -> None:
    async with ApiWorld() as world:
        settings = wire.TopicSettings(queue_count=queue_count)
        refusal = await refused(
            world.admin.CreateTopic(wire.CreateTopicRequest(name=name, settings=settings))
        )
    assert refusal.reason == reason


async def test_groups_can_be_made_listed_and_deleted() -> None:
    async with ApiWorld() as world:
        asked = wire.GroupSettings(attempts_max=3, invisible_ms=500)
        made = await world.admin.PutGroup(wire.PutGroupRequest(name="billing", settings=asked))
        one = await world.admin.GetGroup(wire.GetGroupRequest(name="billing"))
        listed = await world.admin.ListGroups(wire.ListGroupsRequest())
        await world.admin.DeleteGroup(wire.DeleteGroupRequest(name="billing"))
        gone = await refused(world.admin.GetGroup(wire.GetGroupRequest(name="billing")))
    assert made.group.settings == wire.GroupSettings(
        attempts_max=3,
        invisible_ms=500,
        retry_delay_ms=1_000,
        retry_delay_ms_max=600_000,
        retry_delays=groups_pb2.RetryDelays(),
        retry_jitter_percent=0,
        start_at=groups_pb2.START_AT_FIRST,
        in_flight_max=0,
        per_second_max=0,
        order=groups_pb2.GROUP_ORDER_NONE,
        keeps_expired=False,
    )
    (lag,) = one.group.lags
    assert (lag.topic, lag.unresolved_count, lag.leased_count) == ("orders", 7, 2)
    assert [each.name for each in listed.groups] == ["billing"]
    assert gone.reason == "UNKNOWN_GROUP"


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("", {}, "INVALID_GROUP"),
        ("a/b", {}, "INVALID_GROUP"),
        ("g", {"attempts_max": 1_001}, "INVALID_ARGUMENT"),
        ("g", {"invisible_ms": 99}, "INVALID_ARGUMENT"),
        ("g", {"invisible_ms": 43_200_001}, "INVALID_ARGUMENT"),
        ("g", {"retry_delay_ms": 30 * 86_400_000 + 1}, "INVALID_ARGUMENT"),
        ("g", {"retry_delay_ms_max": 30 * 86_400_000 + 1}, "INVALID_ARGUMENT"),
        ("g", {"retry_jitter_percent": 101}, "INVALID_ARGUMENT"),
        ("g", {"in_flight_max": 1_000_001}, "INVALID_ARGUMENT"),
        ("g", {"per_second_max": 1_000_001}, "INVALID_ARGUMENT"),
    ],
)
async def test_group_is_refused_when_name_or_settings_are_bad(
    name: str, settings: dict[str, Any], reason: str
) -> None:
    async with ApiWorld() as world:
        request = wire.PutGroupRequest(name=name, settings=wire.GroupSettings(**settings))
        refusal = await refused(world.admin.PutGroup(request))
        assert world.engine.asked("put_group") == []
    assert refusal.reason == reason
    if settings:
        assert refusal.params["field"] == f"settings.{next(iter(settings))}"


@pytest.mark.parametrize(
    "delays",
    [
        {"delays_ms": [1_000, 0]},
        {"delays_ms": [365 * 86_400_000 // 10]},
        {"delays_ms": [1_000] * 33},
        {"delays_ms": [1_000], "preset": groups_pb2.RETRY_PRESET_ROCKETMQ},
        {"preset": 77},
    ],
    ids=["zero", "too-long", "too-many", "both", "unknown"],
)
async def test_group_is_refused_when_its_retry_delays_are_bad(delays: dict[str, Any]) -> None:
    settings = wire.GroupSettings(retry_delays=groups_pb2.RetryDelays(**delays))
    async with ApiWorld() as world:
        put = wire.PutGroupRequest(name="g", settings=settings)
        refusal = await refused(world.admin.PutGroup(put))
        update = wire.UpdateGroupRequest(name="g", settings=settings)
        assert (await refused(world.admin.UpdateGroup(update))).reason == refusal.reason
        assert world.engine.asked("put_group") == world.engine.asked("update_group") == []
    assert refusal.reason == "INVALID_ARGUMENT"
    assert "retry_delays" in refusal.params["field"]


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        (None, None),
        ({}, ()),
        ({"delays_ms": [5, 2_592_000_000]}, (5, 2_592_000_000)),
        ({"preset": groups_pb2.RETRY_PRESET_ROCKETMQ}, RetryPreset.ROCKETMQ.value),
    ],
    ids=["as-it-was", "doubling", "steps", "preset"],
)
async def test_retry_delays_reach_the_engine(
    delays: dict[str, Any] | None, expected: tuple[int, ...] | None
) -> None:
    settings = wire.GroupSettings()
    if delays is not None:
        settings.retry_delays.CopyFrom(groups_pb2.RetryDelays(**delays))
    async with ApiWorld() as world:
        await world.admin.PutGroup(wire.PutGroupRequest(name="g", settings=settings))
        ((_, asked),) = world.engine.asked("put_group")
    assert (asked.retry_delays_ms, asked.retry_jitter_percent) == (expected, None)


@pytest.mark.parametrize(
    ("asked", "start_ms"),
    [
        ({}, None),
        ({"start_at": groups_pb2.START_AT_FIRST}, 0),
        ({"start_at": groups_pb2.START_AT_NOW}, 1),
        ({"start_at": groups_pb2.START_AT_TIME, "start_ms": 5_000}, 5_000),
    ],
)
async def test_start_reaches_the_engine(asked: dict[str, Any], start_ms: int | None) -> None:
    async with ApiWorld() as world:
        settings = wire.GroupSettings(**asked)
        await world.admin.PutGroup(wire.PutGroupRequest(name="g", settings=settings))
        ((_, sent),) = world.engine.asked("put_group")
    assert sent.start_ms == start_ms


@pytest.mark.parametrize(
    "asked",
    [
        {"start_ms": 5_000},
        {"start_at": groups_pb2.START_AT_NOW, "start_ms": 5_000},
        {"start_at": groups_pb2.START_AT_TIME},
        {"start_at": groups_pb2.START_AT_TIME, "start_ms": 1 << 62},
        {"start_at": 77},
    ],
)
async def test_start_is_refused_when_it_is_none(asked: dict[str, Any]) -> None:
    async with ApiWorld() as world:
        request = wire.PutGroupRequest(name="g", settings=wire.GroupSettings(**asked))
        refusal = await refused(world.admin.PutGroup(request))
    assert refusal.reason == "INVALID_ARGUMENT"
    assert refusal.params["field"].startswith("settings.start")


async def test_skip_when_answered_and_when_refused() -> None:
    async with ApiWorld() as world:
        request = groups_pb2.SkipRequest(group="g", topic="orders", before_ms=9)
        answer = await world.admin.Skip(request)
        assert (answer.skipped_count, answer.positions) == (7, [5, 6])
        await world.admin.Skip(groups_pb2.SkipRequest(group="g", topic="orders", positions=[5, 6]))
        assert world.engine.asked("skip") == [("g", "orders", 9, []), ("g", "orders", 0, [5, 6])]
        for wrong in (
            {"before_ms": -1},
            {"before_ms": 9, "positions": [5]},
            {"positions": [0] * 257},
        ):
            bad = groups_pb2.SkipRequest(group="g", topic="orders", **wrong)
            assert (await refused(world.admin.Skip(bad))).reason == "INVALID_ARGUMENT"


async def test_reset_when_answered_and_when_refused() -> None:
    async with ApiWorld() as world:
        place = {"group": "g", "topic": "orders"}
        to = groups_pb2.START_AT_TIME
        answer = await world.admin.ResetGroup(groups_pb2.ResetGroupRequest(**place, to=to, to_ms=9))
        assert (answer.again_count, answer.skipped_count) == (1, 2)
        assert (answer.retries_dropped_count, answer.unresolved_count) == (3, 4)
        assert answer.positions == [5, 6]
        for asked in (
            {"to": groups_pb2.START_AT_FIRST},
            {"to": groups_pb2.START_AT_NOW, "count_only": True},
            {"positions": [5, 6]},
        ):
            await world.admin.ResetGroup(groups_pb2.ResetGroupRequest(**place, **asked))
        assert world.engine.asked("reset_group") == [
            ("g", "orders", ResetTarget(9), False),
            ("g", "orders", ResetTarget(None), False),
            ("g", "orders", ResetTarget(0), True),
            ("g", "orders", ResetTarget(None, (5, 6)), False),
        ]
        for wrong in (
            {},
            {"to": to},
            {"to": 77},
            {"to": to, "to_ms": -1},
            {"to_ms": 9},
            {"to": groups_pb2.START_AT_FIRST, "positions": [5]},
            {"positions": [0] * 257},
        ):
            bad = groups_pb2.ResetGroupRequest(**place, **wrong)
            assert (await refused(world.admin.ResetGroup(bad))).reason == "INVALID_ARGUMENT"


async def test_status_tells_node_and_shard() -> None:
    async with ApiWorld() as world:
        world.engine.shard_status = status_pb2.ShardStatus(
            epoch=3, log_end_offset=10, pending_count=7, run_count=2
        )
        world.engine.shard_gauges = ShardGauges(read_only_reason="DISK_FULL")
        status = await world.admin.GetStatus(wire.GetStatusRequest())
    (node,), (shard,) = status.nodes, status.shards
    assert status.cluster_id == str(uuid.UUID(bytes=CLUSTER_ID))
    assert status.version == hourwheel.__version__
    assert (node.node_id, node.address) == ("node-7", world.address)
    assert (node.started_ms, node.clock_ms) == (STARTED_MS, NOW_MS)
    assert node.read_only_reason == "DISK_FULL"
    assert (shard.master, shard.epoch, shard.pending_count, shard.run_count) == ("node-7", 3, 7, 2)


async def test_message_is_described_when_its_id_is_one() -> None:
    async with ApiWorld() as world:
        published = await world.publish(b"x")
        name = published.messages[0].message_id
        found = await world.admin.DescribeMessage(wire.DescribeMessageRequest(message_id=name))
        refusal = await refused(
            world.admin.DescribeMessage(wire.DescribeMessageRequest(message_id="nonsense"))
        )
    assert (found.message_id, found.due_ms) == (name, NOW_MS)
    assert found.state == wire.MESSAGE_STATE_PENDING
    assert refusal.reason == "INVALID_MESSAGE_ID"


async def test_dead_letters_are_told_when_the_message_was_released() -> None:
    async with ApiWorld() as world:
        world.engine.dead = DeadLettersInfo(
            [
                DeadLetterInfo(
                    "billing", "orders", 3, groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP
                )
            ],
            is_complete=False,
        )
        published = await world.publish(b"x")
        request = wire.DescribeMessageRequest(message_id=published.messages[0].message_id)
        pending = await world.admin.DescribeMessage(request)
        assert world.engine.asked("dead_letters") == []
        world.engine.delivered = 1
        released = await world.admin.DescribeMessage(request)
    assert (list(pending.dead_letters), pending.dead_letter_search_is_complete) == ([], True)
    (letter,) = released.dead_letters
    assert (letter.group, letter.topic, letter.attempts) == ("billing", "orders", 3)
    assert letter.reason == groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP
    assert not released.dead_letter_search_is_complete


async def test_topic_is_made_with_genes_of_its_own() -> None:
    gene = filter_pb2.GeneSpec(kind=filter_pb2.GENE_KIND_BLOOM, properties=["region"])
    async with ApiWorld() as world:
        made = await world.admin.CreateTopic(
            wire.CreateTopicRequest(name="orders", settings=wire.TopicSettings(gene=gene))
        )
        gene.kind = filter_pb2.GENE_KIND_HASH_SET
        refusal = await refused(
            world.admin.CreateTopic(
                wire.CreateTopicRequest(name="audit", settings=wire.TopicSettings(gene=gene))
            )
        )
    assert made.topic.settings.gene.kind == filter_pb2.GENE_KIND_BLOOM
    assert made.topic.settings.gene.bits_per_item > 0, "the default is written out"
    assert list(made.topic.settings.gene.properties) == ["region"]
    assert refusal.reason == "INVALID_ARGUMENT", "these have no properties"


async def test_subscription_is_made_or_changed() -> None:
    async with ApiWorld() as world:
        wanted = filter_pb2.FilterExpression(text="a || b", check_at_client=True)
        request = wire.PutSubscriptionRequest(group="g", topic="orders", filter=wanted)
        answer = await world.admin.PutSubscription(request)
        bare = wire.PutSubscriptionRequest(group="g", topic="%DLQ%g")
        await world.admin.PutSubscription(bare)
        request.group = "no such name"
        refusal = await refused(world.admin.PutSubscription(request))
    assert answer.subscription.topic == "orders"
    assert (answer.subscription.filter.text, answer.subscription.filter.check_at_client) == (
        *("a || b", True),
    )
    asked = world.engine.asked("put_subscription")
    assert asked == [
        ("g", "orders", FilterExpression.tags("a || b", check_at_client=True)),
        ("g", "%DLQ%g", FilterExpression.tags("")),
    ]
    assert refusal.reason == "INVALID_GROUP"


async def test_group_shows_what_it_wants() -> None:
    async with ApiWorld() as world:
        subscriptions = (
            SubscriptionInfo("bills", None),
            SubscriptionInfo("orders", FilterExpression.sql("a = 'b'")),
        )
        world.engine.known_groups["g"] = GroupInfo("g", 1, 1, 1, 1, (), subscriptions)
        answer = await world.admin.GetGroup(wire.GetGroupRequest(name="g"))
    bills, orders = answer.group.subscriptions
    assert (bills.topic, bills.HasField("filter")) == ("bills", False)
    assert (orders.topic, orders.filter.kind) == ("orders", filter_pb2.FILTER_KIND_SQL)
    assert orders.filter.text == "a = 'b'"


async def test_topics_and_groups_are_changed_field_by_field() -> None:
    async with ApiWorld() as world:
        await world.admin.CreateTopic(wire.CreateTopicRequest(name="orders"))
        await world.admin.PutGroup(wire.PutGroupRequest(name="billing"))
        request = wire.UpdateTopicRequest(name="orders", is_paused=True, expected_version=5)
        topic = (await world.admin.UpdateTopic(request)).topic
        spread = wire.UpdateTopicRequest(name="orders", dispatch_tolerance_ms=0)
        await world.admin.UpdateTopic(spread)
        spread.dispatch_tolerance_ms = 600_001
        too_wide = await refused(world.admin.UpdateTopic(spread))
        lasting = wire.UpdateTopicRequest(name="orders", retention_ms=60_000)
        await world.admin.UpdateTopic(lasting)
        await world.admin.UpdateTopic(wire.UpdateTopicRequest(name="orders", retention_ms=0))
        made = wire.CreateTopicRequest(name="bills", retention_ms=60_000)
        assert (await world.admin.CreateTopic(made)).topic.retention_ms == 60_000
        for retention_ms in (1, 59_999, 315_360_000_001, (1 << 64) - 1):
            lasting.retention_ms = made.retention_ms = retention_ms
            for asked_for in (world.admin.UpdateTopic(lasting), world.admin.CreateTopic(made)):
                refusal = await refused(asked_for)
                assert refusal.reason == "INVALID_ARGUMENT"
                assert refusal.params["field"] == "retention_ms"
        settings = wire.GroupSettings(attempts_max=3)
        changed = wire.UpdateGroupRequest(name="billing", description="", settings=settings)
        group = (await world.admin.UpdateGroup(changed)).group
        too_long = wire.UpdateTopicRequest(name="orders", description="x" * 257)
        refusal = await refused(world.admin.UpdateTopic(too_long))
        short = wire.UpdateGroupRequest(name="billing", settings=wire.GroupSettings(invisible_ms=1))
        short_refusal = await refused(world.admin.UpdateGroup(short))
    assert (topic.is_paused, topic.version, topic.description) == (True, 7, "")
    assert (group.is_paused, group.version) == (False, 7)
    asked = dict(world.engine.calls)
    assert [update for _, update in world.engine.asked("update_topic")] == [
        CatalogUpdate(None, True, 5),
        CatalogUpdate(dispatch_tolerance_ms=0),
        CatalogUpdate(retention_ms=60_000),
        CatalogUpdate(retention_ms=0),
    ]
    assert too_wide.params["field"] == "dispatch_tolerance_ms"
    assert asked["update_group"] == (
        "billing",
        CatalogUpdate("", None, None),
        GroupSettings(attempts_max=3),
    )
    assert (refusal.reason, refusal.params["field"]) == ("INVALID_ARGUMENT", "description")
    assert short_refusal.params["field"] == "settings.invisible_ms"


async def test_order_and_what_is_unblocked_reach_the_engine() -> None:
    text = "0" * 47 + "1"
    async with ApiWorld() as world:
        for order in groups_pb2.GroupOrder.values():
            settings = wire.GroupSettings(order=order)
            await world.admin.PutGroup(wire.PutGroupRequest(name="g", settings=settings))
        asked = [one.order for _, one in world.engine.asked("put_group")]
        assert asked == [None, GroupOrder.NONE, GroupOrder.BLOCK, GroupOrder.DEAD_LETTER]
        request = groups_pb2.SkipRequest(group="g", topic="t", message_ids=[text], action=1)
        assert (await world.admin.Skip(request)).skipped_count == 1
        ((_, _, unblocking),) = world.engine.asked("unblock")
        assert (unblocking.ids, unblocking.action) == ((parse(text),), UnblockAction.RETRY)
        for wrong in ({"before_ms": 5}, {"positions": [1]}, {"action": 9}):
            bad = groups_pb2.SkipRequest()
            bad.CopyFrom(request)
            bad.MergeFrom(groups_pb2.SkipRequest(**wrong))
            assert (await refused(world.admin.Skip(bad))).reason == "INVALID_ARGUMENT"
