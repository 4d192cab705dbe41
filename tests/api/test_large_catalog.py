"""With ten thousand topics and groups, and a million leased messages, nothing holds up the loop.

All methods of the API, as their descriptors list them, then a scrape and the timers. A turn of the
loop may execute a bounded number of lines, which one that looks at all topics, groups or leases
exceeds several times: work is counted, and no machine is too slow or too busy for that.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.formats.member_group import member_group_name
from hourwheel.formats.record_batch import build_publish
from hourwheel.v1 import (
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    filter_pb2,
    groups_pb2,
    lookup_pb2,
    members_pb2,
    pending_pb2,
)
from node.broker.consumer_lag import ConsumerLag
from node.broker.due_reading import DueReading
from node.broker.settings import EngineConfig
from node.broker.slewed_clock import SlewedClock
from node.catalog.changes import DefaultsConfig
from node.metrics import collector
from node.shard.recovery import ShardConfig
from tests.support.api_world import ApiWorld, refused
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until
from tests.support.fake_engine import FakeEngine
from tests.support.large_catalog import (
    BROAD,
    POPULAR,
    Size,
    fill,
    group_name,
    release_long_ago,
    topic_name,
)
from tests.support.turns import Turns
from tests.support.unsynced import folder_in_memory, unsynced
from timewheel.wheel import WheelConfig

LINES_MAX: Final = 8_000
"""Of one turn: about 3 ms on a slow machine. To look at each of 10,000 topics takes more."""
CLEAN_UP_LINES_MAX: Final = Size().queues // 2
"""Of a turn in which entries are trimmed: a line for each queue that has any is twice as much."""
CPU_S_MAX: Final = 0.25
"""Of the loop's thread in one turn, while each line is counted: quadratic work takes more."""
SPAN_BYTES: Final = 1 << 20
FILES_BYTES_MAX: Final = 1 << 30
"""Room for all files: three times what they take."""
ROOM: Final = DefaultsConfig(topics_max=20_000, groups_max=20_000)
SERVICES: Final = (
    broker_pb2.DESCRIPTOR.services_by_name["ProducerService"],
    consumer_pb2.DESCRIPTOR.services_by_name["ConsumerService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    lookup_pb2.DESCRIPTOR.services_by_name["LookupService"],
)


@dataclass
class World:
    """A real engine with a large catalog behind the real API."""

    node: EngineWorld
    api: ApiWorld
    message_id: str = ""
    receipts: list[str] = field(default_factory=list)


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[World]:
    shard = ShardConfig(wheel=WheelConfig(memtable_span_bytes_max=SPAN_BYTES))
    gc.disable()  # it would look at all leases again and again; a node has frozen it
    try:
        with unsynced():  # there are ten thousand queues with files
            async with EngineWorld(root, EngineConfig(defaults=ROOM), shard) as node:
                fill(node.mastership, node.now_ms, Size())
                async with ApiWorld(engine=cast("FakeEngine", node.engine)) as api:
                    yield World(node, api)
                # To save all of it takes a disk that is busy a minute, and shows nothing: it ends
                # as a process does that may not go on.
                node.engine.fail(errors.Internal("the world ends"))
    finally:
        gc.enable()


# --- the methods, in the order in which they are called


async def publish(world: World) -> None:
    answer = await world.api.publish(b"one", b"two", b"three")
    world.message_id = answer.messages[0].message_id
    later = broker_pb2.OutgoingMessage(body=b"later", delay_ms=10**9)
    request = broker_pb2.PublishRequest(topic="orders", messages=[later] * 3)
    await world.api.producer.Publish(request)


async def publish_stream(world: World) -> None:
    raw = build_publish([world.node.now_ms] * 3, [b"x"] * 3)
    stream = world.api.producer.PublishStream()
    await stream.write(broker_pb2.PublishStreamRequest(topic="streamed", record_batch=raw))
    assert (await stream.read()).published.count == 3
    await stream.done_writing()


async def receive(world: World) -> None:
    for group in ("new", group_name(5)):
        request = consumer_pb2.ReceiveRequest(
            group=group, topic="orders", invisible_ms=60_000, wait_ms=5_000
        )
        answer = await world.api.consumer.Receive(request)
        assert len(answer.messages) == 3
        world.receipts = [message.receipt for message in answer.messages]
    empty = consumer_pb2.ReceiveRequest(group=group_name(7), topic=POPULAR)
    assert not (await world.api.consumer.Receive(empty)).messages


async def ack(world: World) -> None:
    request = consumer_pb2.AckRequest(group=group_name(5), receipts=world.receipts[:1])
    assert list((await world.api.consumer.Ack(request)).outcomes) == [1]


async def nack(world: World) -> None:
    request = consumer_pb2.NackRequest(group=group_name(5), receipts=world.receipts[1:2])
    assert list((await world.api.consumer.Nack(request)).outcomes) == [1]


async def change_invisible(world: World) -> None:
    request = consumer_pb2.ChangeInvisibleRequest(
        group=group_name(5), receipts=world.receipts[2:], invisible_ms=90_000
    )
    assert list((await world.api.consumer.ChangeInvisible(request)).outcomes) == [1]


async def cancel(world: World) -> None:
    request = broker_pb2.CancelRequest(message_ids=[world.message_id])
    assert list((await world.api.producer.Cancel(request)).outcomes) == [2]


async def reschedule(world: World) -> None:
    request = broker_pb2.RescheduleRequest(message_ids=[world.message_id], delay_ms=[5])
    assert list((await world.api.producer.Reschedule(request)).outcomes) == [2]


async def describe_message(world: World) -> None:
    request = admin_pb2.DescribeMessageRequest(message_id=world.message_id)
    assert (await world.api.admin.DescribeMessage(request)).state == 2


async def create_topic(world: World) -> None:
    await world.api.admin.CreateTopic(admin_pb2.CreateTopicRequest(name="made"))


async def update_topic(world: World) -> None:
    request = admin_pb2.UpdateTopicRequest(name=topic_name(3), description="of many")
    assert (await world.api.admin.UpdateTopic(request)).topic.description == "of many"


async def get_topic(world: World) -> None:
    request = admin_pb2.GetTopicRequest(name=topic_name(3))
    topic = (await world.api.admin.GetTopic(request)).topic
    assert topic.released_count == Size().leased_each + 2


async def list_topics(world: World) -> None:
    whole = await world.api.admin.ListTopics(admin_pb2.ListTopicsRequest())
    assert len(whole.topics) > Size().topics
    page = admin_pb2.ListTopicsRequest(page_size=1_000, include_internal=True)
    assert len((await world.api.admin.ListTopics(page)).topics) == 1_000


async def join_broadcast(world: World) -> None:
    """Refused: here the log alone owns groups, and members are the control state's."""
    request = consumer_pb2.JoinBroadcastRequest(group="prices", topic="orders", token=1)
    refusal = await refused(world.api.consumer.JoinBroadcast(request))
    assert refusal.reason == errors.FeatureLevelTooLow.reason


async def leave_broadcast(world: World) -> None:
    group = member_group_name("prices", "host-7")
    request = consumer_pb2.LeaveBroadcastRequest(group=group, token=1)
    await world.api.consumer.LeaveBroadcast(request)


async def put_group(world: World) -> None:
    await world.api.admin.PutGroup(admin_pb2.PutGroupRequest(name="put"))
    await world.api.admin.PutGroup(admin_pb2.PutGroupRequest(name=BROAD))


async def update_group(world: World) -> None:
    for is_paused in (True, False):
        request = admin_pb2.UpdateGroupRequest(name=BROAD, is_paused=is_paused)
        assert (await world.api.admin.UpdateGroup(request)).group.is_paused == is_paused


async def get_group(world: World) -> None:
    group = (await world.api.admin.GetGroup(admin_pb2.GetGroupRequest(name=group_name(3)))).group
    lags = {lag.topic: (lag.unresolved_count, lag.leased_count) for lag in group.lags}
    each = Size().leased_each
    assert lags == {topic_name(3): (each, each), POPULAR: (0, 0)}
    broad = (await world.api.admin.GetGroup(admin_pb2.GetGroupRequest(name=BROAD))).group
    assert len(broad.lags) == len(broad.subscriptions) == Size().crowd


async def list_groups(world: World) -> None:
    whole = await world.api.admin.ListGroups(admin_pb2.ListGroupsRequest())
    assert len(whole.groups) > Size().groups


async def put_subscription(world: World) -> None:
    wanted = filter_pb2.FilterExpression(kind=1, text="a")
    for group, topic in ((group_name(6), topic_name(6)), (BROAD, "made")):
        request = admin_pb2.PutSubscriptionRequest(group=group, topic=topic, filter=wanted)
        await world.api.admin.PutSubscription(request)


async def list_by_key(world: World) -> None:
    request = lookup_pb2.ListByKeyRequest(topic="orders", key="none")
    assert not (await world.api.lookup.ListByKey(request)).messages


async def get_history(world: World) -> None:
    request = lookup_pb2.GetHistoryRequest(message_id=world.message_id)
    assert (await world.api.lookup.GetHistory(request)).events


async def list_pending(world: World) -> None:
    answer = await world.api.admin.ListPending(admin_pb2.ListPendingRequest(topic="orders"))
    assert len(answer.messages) == 3


async def reschedule_pending(world: World) -> None:
    wanted = filter_pb2.FilterExpression(kind=1, text="*")
    request = pending_pb2.ReschedulePendingRequest(topic="orders", filter=wanted)
    request.new_due_ms = int(world.node.now_ms) + 86_400_000
    assert (await world.api.admin.ReschedulePending(request)).rescheduled_count == 3


async def cancel_pending(world: World) -> None:
    wanted = filter_pb2.FilterExpression(kind=1, text="*")
    request = pending_pb2.CancelPendingRequest(topic="orders", filter=wanted)
    assert (await world.api.admin.CancelPending(request)).cancelled_count == 3


async def get_status(world: World) -> None:
    status = await world.api.admin.GetStatus(admin_pb2.GetStatusRequest())
    assert status.shards[0].published_count > 0


async def describe_wheel(world: World) -> None:
    now_ms = world.node.now_ms
    bounds = [now_ms + hour * 3_600_000 for hour in range(4_096)]
    await world.api.admin.DescribeWheel(admin_pb2.DescribeWheelRequest(bounds_ms=bounds))


async def list_damaged(world: World) -> None:
    answer = await world.api.admin.ListDamaged(admin_pb2.ListDamagedRequest())
    assert not answer.messages


async def skip(world: World) -> None:
    request = groups_pb2.SkipRequest(group="new", topic="orders", before_ms=1)
    assert (await world.api.admin.Skip(request)).skipped_count == 0


async def reset_group(world: World) -> None:
    request = groups_pb2.ResetGroupRequest(
        group="new", topic="orders", to=groups_pb2.START_AT_NOW, count_only=True
    )
    assert not (await world.api.admin.ResetGroup(request)).again_count


async def list_dead_letters(world: World) -> None:
    request = groups_pb2.ListDeadLettersRequest(group=BROAD)
    assert not (await world.api.admin.ListDeadLetters(request)).messages


async def redrive_dead_letters(world: World) -> None:
    wanted = filter_pb2.FilterExpression(kind=1, text="*")
    request = groups_pb2.RedriveDeadLettersRequest(group=BROAD, filter=wanted)
    assert not (await world.api.admin.RedriveDeadLetters(request)).redriven_count


async def discard_damaged(world: World) -> None:
    request = admin_pb2.DiscardDamagedRequest(group=BROAD, all=True)
    assert not (await world.api.admin.DiscardDamaged(request)).messages


async def transfer_master(world: World) -> None:
    refusal = await refused(world.api.admin.TransferMaster(admin_pb2.TransferMasterRequest()))
    assert refusal.reason == "FAILED_PRECONDITION", "a node alone"


async def list_members(world: World) -> None:
    refusal = await refused(world.api.admin.ListMembers(members_pb2.ListMembersRequest()))
    assert refusal.reason == "FAILED_PRECONDITION", "a node alone"


async def change_members(world: World) -> None:
    request = members_pb2.ChangeMembersRequest(remove_node_ids=["n2"])
    refusal = await refused(world.api.admin.ChangeMembers(request))
    assert refusal.reason == "FAILED_PRECONDITION", "a node alone"


async def delete_topic(world: World) -> None:
    for name in (topic_name(0), POPULAR):
        await world.api.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name=name))


async def delete_group(world: World) -> None:
    for name in (group_name(1), BROAD):
        await world.api.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(name=name))


# --- and what nobody asks for


async def scrape(world: World) -> None:
    engine = world.node.engine
    lag = await ConsumerLag(engine.lags, 500, wait_s=60.0).read()
    assert lag.omitted_count > Size().groups - 500
    clock = SlewedClock(SystemClock())
    due = await DueReading(engine.describe_wheel, engine.now_ms, wait_s=60.0).read()
    assert due[-1].messages >= engine.status().pending_count
    taken = collector.take(collector.read_node(engine, world.api.stats, clock, 0, lag, due=due))
    assert len(collector.families(taken)) > 50


async def clean_up(world: World) -> None:
    old = release_long_ago(world.node.engine.shard.views)
    world.node.advance(61_000)
    assert old.start_position == 0, "the clean-up is still to come"
    await until(lambda: old.start_position > 0)


async def checkpoint(world: World) -> None:
    engine = world.node.engine
    before = engine.stats.checkpoints
    while engine.stats.checkpoints == before:
        await world.node.publish(*[world.node.now_ms + 10**9] * 2_000)
    await until(lambda: engine.background.maintenance.is_idle)


CASES: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    "Publish": publish,
    "PublishStream": publish_stream,
    "Receive": receive,
    "Ack": ack,
    "Nack": nack,
    "ChangeInvisible": change_invisible,
    "JoinBroadcast": join_broadcast,
    "LeaveBroadcast": leave_broadcast,
    "Cancel": cancel,
    "Reschedule": reschedule,
    "DescribeMessage": describe_message,
    "DescribeWheel": describe_wheel,
    "CreateTopic": create_topic,
    "UpdateTopic": update_topic,
    "GetTopic": get_topic,
    "ListTopics": list_topics,
    "PutGroup": put_group,
    "UpdateGroup": update_group,
    "GetGroup": get_group,
    "ListGroups": list_groups,
    "PutSubscription": put_subscription,
    "ListPending": list_pending,
    "ListByKey": list_by_key,
    "GetHistory": get_history,
    "ReschedulePending": reschedule_pending,
    "CancelPending": cancel_pending,
    "ListDamaged": list_damaged,
    "DiscardDamaged": discard_damaged,
    "Skip": skip,
    "ResetGroup": reset_group,
    "ListDeadLetters": list_dead_letters,
    "RedriveDeadLetters": redrive_dead_letters,
    "GetStatus": get_status,
    "TransferMaster": transfer_master,
    "ListMembers": list_members,
    "ChangeMembers": change_members,
    "scrape": scrape,
    "clean-up": clean_up,
    "checkpoint": checkpoint,
    "DeleteTopic": delete_topic,
    "DeleteGroup": delete_group,
}


def test_every_method_of_the_api_has_a_case() -> None:
    methods = {method.name for service in SERVICES for method in service.methods}
    assert methods - CASES.keys() == set()


async def test_nothing_looks_at_all_topics_groups_or_leases_in_one_turn(tmp_path: Path) -> None:
    with folder_in_memory(FILES_BYTES_MAX, tmp_path) as root:
        too_long = await long_turns(root)
    assert not too_long, "\n".join(too_long)


async def long_turns(root: Path) -> list[str]:
    """What each case does in one turn that is too much for one."""
    too_long = []
    async with opened(root) as world:
        for name, case in CASES.items():
            with Turns() as turns:
                await within(case(world))
            if turns.most_lines.lines > (CLEAN_UP_LINES_MAX if case is clean_up else LINES_MAX):
                too_long.append(f"{name}: {turns.most_lines}")
            if turns.most_cpu.cpu_s > CPU_S_MAX:
                too_long.append(f"{name}: {turns.most_cpu}")
    return too_long


async def test_work_that_grows_with_the_catalog_is_found(tmp_path: Path) -> None:
    """As a list of all subscriptions for each group was: the test above would fail."""
    async with EngineWorld(tmp_path) as world:
        fill(world.mastership, world.now_ms, Size(300, 300, 300, 1, 1))
        catalog = world.engine.shard.views.catalog
        with Turns() as turns:
            await asyncio.sleep(0)
            assert turns.most_lines.lines < LINES_MAX
            for group in catalog.groups():
                assert [one for one in catalog.subscriptions() if one.group_id == group.group_id]
            await asyncio.sleep(0)
        assert turns.most_lines.lines > LINES_MAX
