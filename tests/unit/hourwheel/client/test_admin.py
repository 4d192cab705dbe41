from collections.abc import AsyncIterator
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.catalog import DeadLetter, GroupLag, Subscription
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.delay_levels import RetryPreset
from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.outcomes import CancelOutcome, DeadLetterReason, MessageState
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2, groups_pb2
from tests.support.fake_node import EPOCH, SHARD, FakeNode


@pytest.fixture
async def admin(channel: Channel) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(channel) as opened:
        yield opened


async def test_topics_when_made_listed_and_deleted(admin: AsyncAdmin) -> None:
    created = await admin.create_topic("orders", queue_count=4)
    assert (created.name, created.queue_count, created.released_count) == ("orders", 4, 5)
    assert await admin.get_topic("orders") == created
    await admin.create_topic("%DLQ%g")
    assert await admin.topics() == [created]
    assert len(await admin.topics(include_internal=True)) == 2
    await admin.delete_topic("orders")
    with pytest.raises(errors.UnknownTopic):
        await admin.get_topic("orders")
    with pytest.raises(errors.UnknownTopic):
        await admin.delete_topic("orders")


async def test_groups_when_made_listed_and_deleted(admin: AsyncAdmin) -> None:
    put = await admin.put_group("g", attempts_max=3, invisible_ms=5, retry_delay_ms=6)
    assert (put.attempts_max, put.invisible_ms, put.retry_delay_ms) == (3, 5, 6)
    assert put.lags == (GroupLag("orders", 12, 2),)
    assert await admin.get_group("g") == put
    assert [group.name for group in await admin.groups()] == ["g"]
    await admin.delete_group("g")
    with pytest.raises(errors.UnknownGroup):
        await admin.get_group("g")


async def test_retry_policy_is_sent_only_where_it_is_given(
    admin: AsyncAdmin, node: FakeNode
) -> None:
    put = await admin.put_group("g", retry_delays_ms=[5, 6], retry_jitter_percent=0)
    assert (put.retry_delays_ms, put.retry_jitter_percent) == ((5, 6), 0)
    await admin.put_group("g", retry_delays_ms=RetryPreset.ROCKETMQ)
    await admin.put_group("g", retry_delays_ms=())
    await admin.put_group("g", retry_delays_ms=None, retry_jitter_percent=None, in_flight_max=None)
    limited = await admin.put_group("g", in_flight_max=0, per_second_max=7)
    assert (limited.in_flight_max, limited.per_second_max) == (0, 7)
    asked = [call.settings for call in node.calls["PutGroup"]]
    assert [one.HasField("retry_delays") for one in asked] == [True, True, True, False, False]
    assert [one.HasField("in_flight_max") for one in asked] == [False] * 4 + [True]
    jitter = [one.HasField("retry_jitter_percent") for one in asked]
    assert jitter == [True, False, False, False, False]
    assert list(asked[1].retry_delays.delays_ms) == list(RetryPreset.ROCKETMQ.value)
    assert not asked[2].retry_delays.delays_ms


@pytest.mark.parametrize("wrong", ["10s", 5, {"a": 1}, [0]])
async def test_retry_delays_are_refused_when_they_are_none(
    admin: AsyncAdmin, node: FakeNode, wrong: Any
) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"^retry_delays_ms is a"):
        await admin.put_group("g", retry_delays_ms=wrong)
    with pytest.raises(errors.InvalidArgument, match="no setting 'retries'"):
        await admin.update_group("g", retries=wrong)  # type: ignore[call-arg]
    assert not node.calls


async def test_lists_when_longer_than_a_page(admin: AsyncAdmin, node: FakeNode) -> None:
    for name in ("e", "b", "d", "a", "c"):
        await admin.create_topic(name)
        await admin.put_group(name)
        await admin.put_subscription("g", name)
    assert [topic.name for topic in await admin.topics()] == ["a", "b", "c", "d", "e"]
    assert [group.name for group in await admin.groups()] == ["a", "b", "c", "d", "e", "g"]
    group = await admin.get_group("g")
    assert [one.topic for one in group.subscriptions] == ["e", "b", "d", "a", "c"]
    assert group.lags == (GroupLag("orders", 12, 2),)
    assert [len(node.calls[one]) for one in ("ListTopics", "ListGroups", "GetGroup")] == [3, 3, 3]


async def test_topics_when_made_with_a_gene(admin: AsyncAdmin, node: FakeNode) -> None:
    spec = GeneSpec(GeneKind.BLOOM, 2, ("region", "kind"))
    assert (await admin.create_topic("orders", gene=spec)).gene == spec
    assert (await admin.get_topic("orders")).gene == spec
    assert (await admin.create_topic("plain")).gene == DEFAULT_SPEC
    first, second = node.calls["CreateTopic"]
    assert list(first.settings.gene.properties) == ["kind", "region"]
    assert not second.settings.HasField("gene")


async def test_topics_when_made_with_a_retention(admin: AsyncAdmin, node: FakeNode) -> None:
    assert (await admin.create_topic("kept", retention_ms=60_000)).retention_ms == 60_000
    assert (await admin.create_topic("plain")).retention_ms == 0
    asked = node.calls["CreateTopic"]
    assert [one.HasField("retention_ms") for one in asked] == [True, False]
    node.forgets_retentions = True  # as a node that does not know the field
    with pytest.raises(errors.FeatureLevelTooLow):
        await admin.create_topic("lost", retention_ms=60_000)
    with pytest.raises(errors.InvalidArgument):
        await admin.create_topic("wrong", retention_ms=-1)


async def test_subscriptions_when_put(admin: AsyncAdmin, node: FakeNode) -> None:
    put = await admin.put_subscription("g", "orders", "a || b")
    assert put == Subscription("orders", Tags("a || b"))
    wanted = Sql("p = 1", check_at_client=True)
    assert (await admin.put_subscription("g", "bills", wanted)).filter == wanted
    assert (await admin.put_subscription("g", "all")).filter == FilterExpression.everything()
    assert not node.calls["PutSubscription"][2].HasField("filter")
    group = await admin.get_group("g")
    assert [one.topic for one in group.subscriptions] == ["orders", "bills", "all"]
    assert group.subscriptions[1].filter == wanted
    for blank in (" ", Sql("\ud800")):
        with pytest.raises(errors.InvalidFilter):
            await admin.put_subscription("g", "orders", blank)
    failure = errors.InvalidFilter("no", position=3)
    node.fail_next("PutSubscription", failure)
    with pytest.raises(errors.InvalidFilter) as refused:
        await admin.put_subscription("g", "orders", "a &&")
    assert refused.value.params == {"position": "3"}


async def test_status_when_asked(admin: AsyncAdmin, node: FakeNode) -> None:
    status = await admin.status()
    assert (status.cluster_id, status.version) == ("c0ffee", "0.1.0")
    assert [one.node_id for one in status.nodes] == ["n1"]
    assert [(one.shard, one.epoch) for one in status.shards] == [(SHARD, EPOCH)]


async def test_master_when_transferred(admin: AsyncAdmin, node: FakeNode) -> None:
    assert await admin.transfer_master("n3") == ("n3", EPOCH + 1)
    assert (await admin.transfer_master()).master == "n2"
    node.fail_next("TransferMaster", errors.FailedPrecondition("n4 is not in sync"))
    with pytest.raises(errors.FailedPrecondition, match="not in sync"):
        await admin.transfer_master("n4")


async def test_describe_when_known_and_unknown(admin: AsyncAdmin, node: FakeNode) -> None:
    node.add_topic("t", b"one")
    known = await admin.describe(node.messages[0].id)
    assert (known.state, known.due_ms) == (MessageState.PENDING, node.messages[0].due_ms)
    unknown = await admin.describe(MessageId(1, 1, 99, 5))
    assert unknown.state is MessageState.UNKNOWN
    with pytest.raises(errors.InvalidMessageId):
        await admin.describe("nonsense")


async def test_describe_when_it_is_a_dead_letter(admin: AsyncAdmin, node: FakeNode) -> None:
    node.add_topic("t", b"one", b"two")
    used_up = groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP
    node.dead_letters[0] = [
        admin_pb2.DeadLetter(group="a", topic="t", attempts=3),
        admin_pb2.DeadLetter(group="b", attempts=1, reason=used_up),
    ]
    dead, alive = [await admin.describe(one.id) for one in node.messages]
    assert (alive.dead_letters, alive.dead_letter_search_is_complete) == ((), True)
    assert dead.state is MessageState.RELEASED
    assert not dead.dead_letter_search_is_complete
    assert dead.dead_letters == (
        DeadLetter("a", "t", 3, DeadLetterReason.UNKNOWN),
        DeadLetter("b", "", 1, DeadLetterReason.ATTEMPTS_USED_UP),
    )


async def test_cancel_when_ids_come_in_every_form(admin: AsyncAdmin, node: FakeNode) -> None:
    async with AsyncProducer(node.address) as producer:
        ids = await producer.publish_many("t", [Message(b"x", delay_ms=n) for n in range(6)])
        assert await producer.cancel(ids[0]) is CancelOutcome.CANCELLED
        assert await producer.cancel_many(ids[:2]) == [CancelOutcome.CANCELLED] * 2
    assert await admin.cancel(ids[2]) is CancelOutcome.CANCELLED
    assert await admin.cancel(str(ids[3])) is CancelOutcome.CANCELLED
    assert await admin.cancel_many([ids[4], str(ids[5])]) == [CancelOutcome.CANCELLED] * 2
    assert await admin.cancel_many([]) == []
    assert await admin.cancel_many([MessageId(SHARD, EPOCH, 77, 1)]) == [CancelOutcome.UNKNOWN]
    assert node.cancelled == set(range(6))
    with pytest.raises(errors.InvalidMessageId):
        await admin.cancel_many([ids[4], "nonsense"])


async def test_cancel_when_more_than_one_call_takes(admin: AsyncAdmin, node: FakeNode) -> None:
    ids = [MessageId(SHARD, EPOCH, 10**6 + n, n) for n in range(20_000)]
    assert await admin.cancel_many(ids) == [CancelOutcome.UNKNOWN] * 20_000
    sizes = [len(request.packed_message_ids) for request in node.calls["Cancel"]]
    assert sizes == [16_384 * 24, (20_000 - 16_384) * 24]


async def test_cancel_when_it_is_by_key(admin: AsyncAdmin, node: FakeNode) -> None:
    async with AsyncProducer(node.address) as producer:
        for keys in (["a"], ["a", "b"], ["c"]):
            await producer.publish("t", Message(b"x", delay_ms=9, keys=keys))
        assert await producer.cancel_by_key("t", "b") == (CancelOutcome.CANCELLED, 1)
        assert await producer.cancel_by_keys("t", []) == []
    found = await admin.cancel_by_keys("t", ["x", "a"])
    assert found == [(CancelOutcome.UNKNOWN, 0), (CancelOutcome.CANCELLED, 2)]
    assert await admin.cancel_by_key("u", "a") == (CancelOutcome.UNKNOWN, 0)
    many = [f"k{at}" for at in range(20_000)]
    assert await admin.cancel_by_keys("t", many) == [(CancelOutcome.UNKNOWN, 0)] * 20_000
    assert [len(one.keys) for one in node.calls["Cancel"][-2:]] == [16_384, 20_000 - 16_384]
    node.knows_keys = False
    with pytest.raises(errors.FailedPrecondition, match="earlier version"):
        await admin.cancel_by_key("t", "a")


async def test_calls_when_refused_for_now(admin: AsyncAdmin, node: FakeNode) -> None:
    node.fail_next("ListTopics", errors.Overloaded(), errors.ShuttingDown())
    assert await admin.topics() == []
    assert len(node.calls["ListTopics"]) == 3


async def test_delete_when_the_outcome_is_unknown(admin: AsyncAdmin, node: FakeNode) -> None:
    node.fail_next("DeleteTopic", errors.Timeout())
    with pytest.raises(errors.Timeout):
        await admin.delete_topic("orders")
    assert len(node.calls["DeleteTopic"]) == 1


@pytest.mark.parametrize("wrong", [-1, 1.5, 1 << 32, "1", True])
async def test_numbers_that_cannot_be_are_refused_before_anything_is_sent(
    admin: AsyncAdmin, node: FakeNode, wrong: Any
) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"^queue_count is a whole number"):
        await admin.create_topic("t", queue_count=wrong)
    with pytest.raises(errors.InvalidArgument, match=r"^retry_delays_ms is a whole number"):
        await admin.put_group("g", retry_delays_ms=[5, wrong])
    for name in (
        *("attempts_max", "invisible_ms", "retry_delay_ms", "retry_delay_ms_max"),
        *("retry_jitter_percent", "in_flight_max", "per_second_max"),
    ):
        with pytest.raises(errors.InvalidArgument, match=f"^{name} is a whole number"):
            await admin.put_group("g", **{name: wrong})
    with pytest.raises(errors.InvalidArgument, match=r"^shard is a whole number"):
        await admin.transfer_master(shard=wrong)
    with pytest.raises(errors.InvalidArgument, match=r"^page_size is a whole number"):
        admin.list_pending("t", page_size=wrong)
    assert not node.calls


@pytest.mark.parametrize("wrong", [-1, 1.5e12, 1 << 63, "1", True])
async def test_bounds_that_cannot_be_are_refused_before_anything_is_sent(
    admin: AsyncAdmin, node: FakeNode, wrong: Any
) -> None:
    for bounds in ({"from_ms": wrong}, {"to_ms": wrong}):
        with pytest.raises(errors.InvalidDueTime, match="milliseconds since 1970"):
            admin.list_pending("t", **bounds)
        with pytest.raises(errors.InvalidDueTime, match="milliseconds since 1970"):
            await admin.count_pending("t", **bounds)
        with pytest.raises(errors.InvalidDueTime, match="milliseconds since 1970"):
            await admin.cancel_pending("t", "*", **bounds)
    assert not node.calls
