"""Members of broadcasts: what each gets, who has a name, and when one is forgotten."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.member_group import member_group_name
from hourwheel.limits import MEMBER_IDLE_MS_MIN
from node.catalog.changes import DefaultsConfig
from node.contracts.broadcast import Joining
from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings, ReceiveParams
from replication.control_state.catalog_commands import MEMBER_RULES
from storage.views.catalog_items import START_FIRST_MS, START_NOW_MS
from tests.support.engine_world import let_others_run, within
from tests.support.owned_world import OwnedWorld

IDLE_MS = MEMBER_IDLE_MS_MIN
LOOK_MS = 1_000


def joining(member: str = "host-1", token: int = 1, **others: object) -> Joining:
    group = member_group_name("prices", member)
    plain = Joining(group, "orders", token, START_NOW_MS, IDLE_MS, None)
    return plain._replace(**others)  # type: ignore[arg-type]


async def join(world: OwnedWorld, member: str = "host-1", token: int = 1, **others: object) -> bool:
    return await within(world.engine.join_broadcast(joining(member, token, **others)))


async def poll(
    world: OwnedWorld, member: str = "host-1", token: int = 1, wait_ms: int = 0
) -> Delivery | None:
    group = member_group_name("prices", member)
    params = ReceiveParams(group, "orders", 32, 1 << 20, wait_ms, member_token=token)
    return await within(world.engine.receive(params))


async def take(world: OwnedWorld, member: str = "host-1", token: int = 1) -> list[int]:
    """Due times of what the member gets now, acknowledged."""
    delivery = await poll(world, member, token)
    if delivery is None:
        return []
    group = member_group_name("prices", member)
    await world.ack(world.select(delivery), group=group)
    return [int(due_ms) for due_ms in delivery.due_ms]


async def pass_time(world: OwnedWorld, by_ms: int) -> None:
    """Housekeeping looks once a second meanwhile."""
    for _ in range(by_ms // LOOK_MS):
        world.advance(LOOK_MS)
        await world.look_for_unused(2)


def members(world: OwnedWorld) -> list[str]:
    return [one.name.rpartition("|")[2] for one in world.groups()]


async def begun(world: OwnedWorld) -> int:
    """There is a topic, and a message that was released before anybody joined; its due time."""
    await world.publish(world.now_ms)
    due_ms = world.now_ms
    world.advance(10)
    return due_ms


# --- what each gets


async def test_each_member_gets_all_when_released_since_it_joined(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        assert await join(world, "host-1")
        await world.publish(world.now_ms)
        first_ms = world.now_ms
        world.advance(10)
        assert await join(world, "host-2", 2)
        await world.publish(world.now_ms)
        second_ms = world.now_ms
        assert await take(world, "host-1") == [first_ms, second_ms]
        assert await take(world, "host-2", 2) == [second_ms]
        assert await take(world, "host-1") == []
        world.check()


async def test_member_misses_nothing_when_released_between_join_and_first_receive(
    tmp_path: Path,
) -> None:
    """Also what was published before it joined, and falls due later."""
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        later_ms = world.now_ms + 500
        await world.publish(later_ms)
        await join(world)
        await world.publish(world.now_ms)
        now_ms = world.now_ms
        world.advance(1_000)
        assert await take(world) == [now_ms]
        later = await poll(world, wait_ms=60_000)
        assert later is not None
        assert later.due_ms.tolist() == [later_ms]


async def test_member_begins_where_it_was_asked_for(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        before_ms = await begun(world)
        await join(world, "all", 1, start_ms=START_FIRST_MS)
        await join(world, "since", 2, start_ms=before_ms)
        await join(world, "later", 3, start_ms=before_ms + 1)
        assert await take(world, "all", 1) == [before_ms]
        assert await take(world, "since", 2) == [before_ms]
        assert await take(world, "later", 3) == []
        with pytest.raises(errors.InvalidArgument, match="future"):
            await join(world, "never", 4, start_ms=world.now_ms + 1)


async def test_members_have_filters_of_their_own(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        tags = [FilterExpression("tags", one) for one in ("paid", "eu")]
        await join(world, "host-1", 1, filter=tags[0])
        await join(world, "host-2", 2, filter=tags[1])
        await world.publish_tagged("paid", "eu", "paid eu")
        found = [await poll(world, "host-1", 1), await poll(world, "host-2", 2)]
        assert [one and len(one.units) for one in found] != [None, None]
        await join(world, "host-1", 1, filter=tags[1])
        wanted = world.group(member_group_name("prices", "host-1")).subscriptions
        assert [one.filter and one.filter.text for one in wanted] == ["eu"]


async def test_joining_again_changes_nothing_when_the_answer_was_lost(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        assert await join(world)
        count = len(world.owned.entries)
        await world.publish(world.now_ms)
        assert not await join(world)
        assert len(world.owned.entries) == count
        assert len(await take(world)) == 1


# --- who has a name


async def test_member_goes_on_where_it_was_when_it_starts_again(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world, token=1)
        await world.publish(world.now_ms)
        assert len(await take(world, token=1)) == 1
        await world.publish(world.now_ms)
        left_ms = world.now_ms
        assert not await join(world, token=2)
        assert await take(world, token=2) == [left_ms]
        await world.restart()
        await world.publish(world.now_ms)
        assert len(await take(world, token=2)) == 1, "its token is known behind a restart"


async def test_former_start_is_refused_when_another_one_has_the_name(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world, token=1)
        waiting = asyncio.ensure_future(poll(world, token=1, wait_ms=60_000))
        await let_others_run()
        await join(world, token=2)
        with pytest.raises(errors.MemberReplaced):
            await within(waiting)
        with pytest.raises(errors.MemberReplaced):
            await poll(world, token=1)
        with pytest.raises(errors.MemberReplaced):
            await within(world.engine.leave_broadcast(joining().group, 1))
        await world.publish(world.now_ms)
        assert len(await take(world, token=2)) == 1


async def test_member_is_never_made_by_receiving(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        with pytest.raises(errors.UnknownGroup, match="join again"):
            await poll(world)
        await join(world)
        await within(world.engine.delete_topic("orders"))
        with pytest.raises(errors.UnknownTopic):
            await poll(world)
        await begun(world)
        with pytest.raises(errors.FailedPrecondition, match="join again"):
            await poll(world)
        assert await join(world)
        again = await poll(world)
        assert again is not None
        assert len(again.units) == 1, "the topic is younger than the member, which missed none"


# --- when one is forgotten


async def test_member_is_forgotten_when_it_was_away_for_as_long_as_it_says(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world, "short", 1)
        await join(world, "long", 2, idle_ms_max=2 * IDLE_MS)
        await pass_time(world, IDLE_MS - LOOK_MS)
        assert members(world) == ["long", "short"]
        await pass_time(world, 2 * LOOK_MS)
        assert members(world) == ["long"]
        assert world.engine.stats.members_expired == 1
        left = [one.name for one in world.topics(include_internal=True)]
        assert [one for one in left if "short" in one] == [], "its own topics have gone with it"
        with pytest.raises(errors.UnknownGroup):
            await poll(world, "short", 1)
        await pass_time(world, IDLE_MS)
        assert members(world) == []
        await world.settled()
        world.check()


async def test_member_stays_when_it_polls_or_holds_a_lease(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world, "polls", 1)
        await join(world, "holds", 2)
        await world.publish(world.now_ms)
        assert await poll(world, "holds", 2) is not None
        for _ in range(3):
            await pass_time(world, IDLE_MS - LOOK_MS)
            await take(world, "polls", 1)
        assert members(world) == ["holds", "polls"], "leases last for 30 s"
        await pass_time(world, 30_000)
        assert members(world) == []


async def test_member_stays_when_nobody_could_reach_the_node(tmp_path: Path) -> None:
    """A master that could not act for an hour has forgotten nobody, nor has the next one."""
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world)
        world.advance(3_600_000)
        await world.look_for_unused(2)
        await pass_time(world, IDLE_MS - LOOK_MS)
        assert members(world) == ["host-1"]
        await take(world)
        await world.close()
        world.now_ms += 3_600_000
        await world.open()
        await pass_time(world, IDLE_MS - LOOK_MS)
        assert members(world) == ["host-1"]
        await pass_time(world, 2 * LOOK_MS)
        assert members(world) == []


async def test_member_that_leaves_is_forgotten_at_once(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world)
        await world.publish(world.now_ms)
        assert await poll(world) is not None
        await within(world.engine.leave_broadcast(joining().group, 1))
        assert members(world) == []
        await within(world.engine.leave_broadcast(joining().group, 1))
        world.advance(1)
        assert await join(world, token=2)
        assert await take(world, token=2) == [], "another member of that name begins now"
        await world.settled()
        world.check()


async def test_ordinary_groups_are_none_of_its_business(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path, defaults=DefaultsConfig(group_idle_ms=0)) as world:
        await begun(world)
        await world.receive()
        await within(world.engine.put_group("aaa", GroupSettings()))
        await join(world)
        await pass_time(world, 2 * IDLE_MS)
        assert [one.name for one in world.groups()] == ["aaa", "billing"]


# --- bounds


async def test_joining_is_refused_when_the_broadcast_is_an_ordinary_group(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await within(world.engine.put_group("prices", GroupSettings()))
        with pytest.raises(errors.FailedPrecondition, match="share"):
            await join(world)
        assert members(world) == ["prices"]


async def test_joining_is_refused_when_there_are_too_many_members(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path, defaults=DefaultsConfig(members_max=2)) as world:
        await begun(world)
        await join(world, "host-1", 1)
        await join(world, "host-2", 2)
        with pytest.raises(errors.LimitReached) as caught:
            await join(world, "host-3", 3)
        assert caught.value.params["limit"] == "limits.broadcast_members"
        assert not await join(world, "host-2", 4), "who is known comes back all the same"


async def test_joining_is_refused_when_one_broadcast_has_too_many_and_not_another(
    tmp_path: Path,
) -> None:
    most = DefaultsConfig(members_max=7, members_per_broadcast_max=2)
    async with OwnedWorld(tmp_path, defaults=most) as world:
        await begun(world)
        await join(world, "host-1", 1)
        for name in ("prices|eu", "prices-eu"):  # beside it by name, on either side
            for member in ("host-1", "host-2"):
                await join(world, group=member_group_name(name, member))
        await join(world, "host-2", 2)
        with pytest.raises(errors.LimitReached) as caught:
            await join(world, "host-3", 3)
        assert caught.value.params["limit"] == "limits.members_per_broadcast"
        assert not await join(world, "host-2", 4), "who is known comes back all the same"


async def test_joining_is_refused_when_groups_or_topics_are_not_made(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path, defaults=DefaultsConfig(groups_auto_create=False)) as world:
        await begun(world)
        with pytest.raises(errors.UnknownGroup, match="auto_create"):
            await join(world)
        assert members(world) == []
    async with OwnedWorld(tmp_path) as world:
        with pytest.raises(errors.UnknownTopic):
            await join(world, topic="nowhere")
        with pytest.raises(errors.InvalidTopic):
            await join(world, topic="%DLQ%billing")
        assert members(world) == []


async def test_joining_is_refused_when_a_node_has_older_software(tmp_path: Path) -> None:
    world = OwnedWorld(tmp_path)
    world.owned.applied = replace(world.owned.applied, codec_version=MEMBER_RULES - 1)
    world.owned.state = world.owned.applied
    async with world:
        await begun(world)
        with pytest.raises(errors.FeatureLevelTooLow):
            await join(world)


async def test_paused_member_gets_nothing_and_keeps_its_place(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await begun(world)
        await join(world)
        name = joining().group
        settings = GroupSettings(attempts_max=3)
        await within(world.engine.update_group(name, CatalogUpdate(is_paused=True), settings))
        await world.publish(world.now_ms)
        due_ms = world.now_ms
        for _ in range(2):
            assert await take(world) == []
            await pass_time(world, IDLE_MS - LOOK_MS)
        await join(world, token=2)
        assert await take(world, token=2) == []
        resumed = CatalogUpdate(is_paused=False)
        await within(world.engine.update_group(name, resumed, GroupSettings()))
        assert await take(world, token=2) == [due_ms]
        assert world.group(name).attempts_max == 3, "what an operator set stays"
