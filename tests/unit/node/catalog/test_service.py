"""Topics, groups and subscriptions: what is made when, and what is refused."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GENE_UNKNOWN, GeneKind, GeneSpec, sparse_gene
from hourwheel.internal.v1.state_pb2 import ConfigChange
from node.broker.settings import EngineConfig
from node.catalog.changes import DefaultsConfig
from node.contracts.broker import (
    GroupInfo,
    GroupSettings,
    NewTopic,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.lags import GroupLagInfo
from tests.support.engine_world import EngineWorld, within
from tests.support.log_batches import batches_of


def configured(root: Path, defaults: DefaultsConfig) -> EngineWorld:
    return EngineWorld(root, EngineConfig(defaults=defaults))


def names(world: EngineWorld, *, include_internal: bool = False) -> list[str]:
    return [topic.name for topic in world.topics(include_internal=include_internal)]


# --- what is made by itself


async def test_topic_is_made_by_publishing_once_when_many_publish(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig(topic_queue_count=3)) as world:
        calls = [world.publish(world.now_ms) for _ in range(3)]
        calls_single = [world.publish_single(world.now_ms) for _ in range(2)]
        await asyncio.gather(*calls, *calls_single)
        assert world.topics(include_internal=True) == [
            TopicInfo("orders", 3, is_internal=False, released_count=5)
        ]


async def test_topic_is_unknown_when_none_is_made(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig(topics_auto_create=False)) as world:
        for refused in (world.publish(world.now_ms), world.publish_single(world.now_ms)):
            with pytest.raises(errors.UnknownTopic):
                await refused
        with pytest.raises(errors.UnknownTopic):
            await world.receive()
        await within(world.engine.create_topic("orders", 1))
        assert (await world.publish(world.now_ms)).count == 1
        assert await world.receive() is not None, "retry topics are made all the same"


async def test_receiving_makes_no_topic_unless_that_is_wanted(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig()) as world:
        with pytest.raises(errors.UnknownTopic, match="receiving does not make one"):
            await world.receive(topic="ordres")
        assert names(world, include_internal=True) == []
        assert world.groups() == [], "nothing is left of it"
        with pytest.raises(errors.InvalidTopic):
            await world.receive(topic="a b")
        await world.publish(world.now_ms)
        assert await world.receive() is not None
        await world.put_subscription("a", topic="bills")
        assert names(world) == ["bills", "orders"], "whoever subscribes by command means it"


async def test_group_is_made_with_all_that_it_needs_in_one_commit(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        before = world.engine.stats.fsync.read()
        assert await world.receive() is not None
        after = world.engine.stats.fsync.read()
        assert sum(after.counts) - sum(before.counts) == 1
        made = [topic.name for topic in world.topics(include_internal=True)]
        assert made == ["%DLQ%billing", "%RETRY%billing|orders", "orders"]
        assert world.group().subscriptions == (SubscriptionInfo("orders", None),)


async def test_group_is_there_when_whoever_made_it_goes_away_meanwhile(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        first = asyncio.ensure_future(world.receive())
        await asyncio.sleep(0)
        first.cancel()
        assert await world.receive() is not None
        assert len(world.topics(include_internal=True)) == 3
        assert world.engine.shard.views.catalog.next_group_id == 2


async def test_topic_is_used_when_whoever_made_it_goes_away_meanwhile(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        for _ in range(2):
            first = asyncio.ensure_future(world.engine.create_topic("orders", 1))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        assert (await world.publish(world.now_ms)).count == 1
        assert world.engine.shard.views.catalog.next_topic_id == 2


async def test_group_gets_its_settings_when_whoever_made_it_goes_away_meanwhile(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        first = asyncio.ensure_future(world.receive())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        made = await within(world.engine.put_group("billing", GroupSettings(attempts_max=3)))
        assert made.attempts_max == 3


async def test_group_is_unknown_when_none_is_made(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig(groups_auto_create=False)) as world:
        await world.publish(world.now_ms)
        with pytest.raises(errors.UnknownGroup):
            await world.receive()
        assert names(world, include_internal=True) == ["orders"]
        await within(world.engine.put_group("billing", GroupSettings()))
        assert await world.receive() is not None


@pytest.mark.parametrize("name", ["", "a b", "%RETRY%a|b", "x" * 300])
async def test_topic_is_refused_when_its_name_is_illegal(tmp_path: Path, name: str) -> None:
    async with EngineWorld(tmp_path) as world:
        with pytest.raises(errors.InvalidTopic):
            await world.publish(world.now_ms, topic=name)
        with pytest.raises(errors.InvalidTopic):
            await within(world.engine.create_topic(name, 1))
        assert names(world, include_internal=True) == []


async def test_group_is_refused_when_its_name_is_illegal(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        with pytest.raises(errors.InvalidGroup):
            await within(world.engine.put_group("a b", GroupSettings()))
        with pytest.raises(errors.InvalidGroup):
            await world.receive(group="a b")
        assert world.groups() == []


async def test_internal_topics_are_not_for_callers(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        assert await world.receive() is None
        internal = ["%DLQ%billing", "%RETRY%billing|orders"]
        assert names(world) == ["orders"]
        assert names(world, include_internal=True) == [*internal, "orders"]
        for name in internal:
            with pytest.raises(errors.InvalidTopic):
                await world.publish(world.now_ms, topic=name)
            with pytest.raises(errors.InvalidTopic):
                await within(world.engine.delete_topic(name))


# --- limits


async def test_topics_are_refused_when_there_are_enough(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig(topics_max=2)) as world:
        answers = await asyncio.gather(
            *(world.publish(world.now_ms, topic=name) for name in "abc"), return_exceptions=True
        )
        assert [type(one) for one in answers].count(errors.LimitReached) == 1
        with pytest.raises(errors.LimitReached, match=r"limits\.topics allows 2: delete") as caught:
            await within(world.engine.create_topic("d", 1))
        assert not caught.value.retriable
        assert caught.value.params == {"limit": "limits.topics", "count": "2", "count_max": "2"}
        assert names(world) == ["a", "b"]
        assert (await world.publish(world.now_ms, topic="a")).count == 1
        for topic in "ab":
            await world.receive(topic=topic)
        assert len(names(world, include_internal=True)) == 5, "the cluster's own are not counted"


async def test_groups_are_refused_when_there_are_enough(tmp_path: Path) -> None:
    async with configured(tmp_path, DefaultsConfig(groups_max=1)) as world:
        await world.publish(world.now_ms)
        await within(world.engine.put_group("a", GroupSettings()))
        with pytest.raises(errors.LimitReached):
            await within(world.engine.put_group("b", GroupSettings()))
        with pytest.raises(errors.LimitReached):
            await world.receive(group="b")
        changed = await within(world.engine.put_group("a", GroupSettings(attempts_max=3)))
        assert changed.attempts_max == 3


# --- topics


async def test_topic_is_the_same_when_created_again_alike(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        create = world.engine.create_topic
        made = await within(create("orders", 2))
        assert made == TopicInfo("orders", 2)
        assert await within(create("orders", 2)) == made
        assert await within(create("orders", 0)) == made, "0: whatever it has"
        with pytest.raises(errors.AlreadyExists) as caught:
            await within(create("orders", 3))
        assert caught.value.params["queue_count"] == "2"
        assert world.engine.topic("orders") == made


async def test_topic_is_made_once_when_created_twice_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        create = world.engine.create_topic
        answers = await within(asyncio.gather(create("orders", 2), create("orders", 2)))
        assert answers[0] == answers[1]
        assert world.engine.shard.views.catalog.next_topic_id == 2


async def test_topic_is_gone_when_deleted_and_new_when_made_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms, world.now_ms + 5_000)
        assert await world.receive() is not None
        await within(world.engine.delete_topic("orders"))
        assert names(world, include_internal=True) == ["%DLQ%billing"]
        assert world.group().lags == ()
        with pytest.raises(errors.UnknownTopic):
            world.engine.topic("orders")
        with pytest.raises(errors.UnknownTopic):
            await within(world.engine.delete_topic("orders"))
        await world.publish(world.now_ms)
        assert (await world.leased()).units["sequence"].tolist() == [2]


# --- groups


async def test_group_has_defaults_where_nothing_is_said(tmp_path: Path) -> None:
    defaults = DefaultsConfig(
        attempts_max=4, invisible_ms=5_000, retry_delay_ms=10, retry_delay_ms_max=100
    )
    async with configured(tmp_path, defaults) as world:
        put = world.engine.put_group
        assert await within(put("a", GroupSettings())) == GroupInfo("a", 4, 5_000, 10, 100)
        settings = GroupSettings(attempts_max=2, invisible_ms=7, retry_delay_ms=300)
        assert await within(put("b", settings)) == GroupInfo("b", 2, 7, 300, 300)
        assert [group.name for group in world.groups()] == ["a", "b"]


async def test_subscription_is_made_once_when_two_receive_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        subscribe = world.service.catalog_service.subscribe
        first, second = await within(
            asyncio.gather(subscribe("billing", "orders"), subscribe("billing", "orders"))
        )
        assert first == second
        catalog = world.engine.shard.views.catalog
        assert list(catalog.subscriptions()) == [first[0]]
        assert (catalog.next_topic_id, catalog.next_group_id) == (4, 2)
        before = world.engine.shard.log.end_offset
        assert await within(subscribe("billing", "orders")) == first
        assert world.engine.shard.log.end_offset == before, "it is known"


async def test_group_is_gone_when_deleted_and_gets_everything_when_made_again(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms, world.now_ms)
        delivery = await world.leased()
        await world.ack(world.select(delivery, 0, 1))
        await within(world.engine.delete_group("billing"))
        assert world.groups() == []
        assert world.mastership.receiver.leases.count == 0
        with pytest.raises(errors.UnknownGroup):
            await world.ack(world.select(delivery))
        with pytest.raises(errors.UnknownGroup):
            await within(world.engine.delete_group("billing"))
        assert (await world.leased()).units["sequence"].tolist() == [0, 1]


async def test_dead_letters_stay_when_their_group_is_deleted_until_somebody_deletes_them(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        for name in ("billing", "idle"):
            await within(world.engine.put_group(name, GroupSettings(attempts_max=1)))
        delivery = await world.leased()
        await world.nack(world.select(delivery))
        for name in ("billing", "idle"):
            with pytest.raises(errors.InvalidTopic):
                await within(world.engine.delete_topic(f"%DLQ%{name}"))
            await within(world.engine.delete_group(name))
        assert names(world, include_internal=True) == ["%DLQ%billing", "orders"], (
            "the other is empty"
        )
        await within(world.engine.delete_topic("%DLQ%billing"))
        assert names(world, include_internal=True) == ["orders"]


async def test_topic_or_group_with_many_subscriptions_is_deleted_in_pieces(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        for number in range(70):
            await world.publish(world.now_ms, topic=f"t{number}")
            await world.receive(topic=f"t{number}", group="one")
            await world.receive(topic="t0", group=f"g{number}")
        before = len(batches_of(world.engine.shard.log))
        await within(world.engine.delete_topic("t0"))
        assert len(batches_of(world.engine.shard.log)) - before == 71 + 1
        assert world.engine.shard.views.catalog.subscription_count == 69
        await within(world.engine.delete_group("one"))
        internal = [name for name in names(world, include_internal=True) if name[0] == "%"]
        assert internal == sorted(f"%DLQ%g{number}" for number in range(70))


async def test_lag_counts_what_is_still_to_be_done(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 10)
        delivery = await world.leased(count=4)
        await world.ack(world.select(delivery, 1, 1))
        (lag,) = world.group().lags
        begun_ms = world.now_ms
        assert lag == GroupLagInfo("orders", 9, leased_count=3, oldest_ms=begun_ms)
        await world.nack(world.select(delivery, 0, 1), delay_ms=0)
        (lag,) = world.group().lags
        assert lag == GroupLagInfo("orders", 9, leased_count=2, oldest_ms=begun_ms)


# --- filters and genes


async def test_subscription_keeps_what_its_first_consumer_wants(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive(wanted="b||a")
        (kept,) = world.group().subscriptions
        assert kept == SubscriptionInfo("orders", FilterExpression.tags("b||a").canonical())
        assert await world.receive(wanted="a || b") is None, "the same in other words"
        assert await world.receive() is None, "as the subscription says"
        await world.restart()
        assert world.group().subscriptions == (kept,)


@pytest.mark.parametrize("wanted", ["a", "*", "a || b || c"])
async def test_consumers_of_a_group_must_agree(tmp_path: Path, wanted: str) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive(wanted="a || b")
        with pytest.raises(errors.SubscriptionMismatch) as caught:
            await world.receive(wanted=wanted)
        for text in (wanted, "a || b"):
            assert FilterExpression.tags(text).canonical().text in str(caught.value)


async def test_consumers_agree_about_who_checks(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive(wanted="a")
        wanted = FilterExpression.tags("a", check_at_client=True)
        with pytest.raises(errors.SubscriptionMismatch):
            await world.service.catalog_service.subscribe("billing", "orders", wanted)


async def test_filter_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        for text in ("a ||", "(", "a b"):
            with pytest.raises(errors.InvalidFilter):
                await world.receive(wanted=text)
            with pytest.raises(errors.InvalidFilter):
                await world.put_subscription(text)
        assert names(world, include_internal=True) == []
        assert world.groups() == []


async def test_filter_changes_while_leases_are_out(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "a")
        held = await world.leased(wanted="a")
        await world.publish_tagged("b", "a", "b")
        assert await world.put_subscription("b") == SubscriptionInfo(
            "orders", FilterExpression.tags("b")
        )
        found = await world.leased()
        assert found.units["sequence"].tolist() == [2, 4], "from where it stood"
        assert await world.ack(world.select(held), world.select(found)) == [1, 1]
        assert world.group().lags[0].unresolved_count == 0
        assert await world.put_subscription("*") == SubscriptionInfo("orders", None)
        await world.publish_tagged("x")
        assert (await world.leased(wanted="*")).units["sequence"].tolist() == [5]


async def test_subscription_can_be_made_before_anybody_consumes(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.put_subscription("a")
        assert names(world) == ["orders"]
        await world.publish_tagged("x", "a")
        assert (await world.leased()).units["sequence"].tolist() == [1]


async def test_dead_letters_have_no_filter_of_their_own(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings()))
        with pytest.raises(errors.InvalidArgument):
            await world.put_subscription("a", topic="%DLQ%billing", group="ops")
        assert await world.receive(topic="%DLQ%billing", group="ops", wanted="a") is None
        assert world.group("ops").subscriptions == (SubscriptionInfo("%DLQ%billing", None),)


async def test_topic_has_the_genes_that_it_was_made_with(tmp_path: Path) -> None:
    spec = GeneSpec(GeneKind.BLOOM, 2, ("region",))
    async with EngineWorld(tmp_path) as world:
        made = await within(world.engine.create_topic("orders", 1, NewTopic(spec)))
        assert made.gene == world.engine.gene_spec("orders") == spec
        assert (await within(world.engine.create_topic("orders", 1))).gene == spec
        with pytest.raises(errors.AlreadyExists):
            await within(world.engine.create_topic("orders", 1, NewTopic(DEFAULT_SPEC)))
        assert world.engine.gene_spec("unheard of") == DEFAULT_SPEC
        await world.restart()
        assert world.engine.topic("orders").gene == spec


async def test_producer_is_told_which_genes_a_topic_wants(tmp_path: Path) -> None:
    spec = GeneSpec(GeneKind.HASH_SET)
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1, NewTopic(spec)))
        assert (await world.publish_tagged("a")).expected_gene == spec
        assert (await world.publish_tagged("a", gene_spec=spec.number)).expected_gene is None
        assert (await world.publish(world.now_ms)).expected_gene is None, "there is nothing to say"
        genes = world.engine.shard.views.queues.get(1 << 8).read(0, 3)["tag_gene"].tolist()
        assert genes == [GENE_UNKNOWN, sparse_gene(("a",)), 0]


@pytest.mark.parametrize("is_subscribed", [False, True])
async def test_topic_for_dead_letters_is_made_again_when_somebody_receives(
    tmp_path: Path, is_subscribed: bool
) -> None:
    """Earlier versions let it be deleted while its group was there."""
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(attempts_max=1)))
        if is_subscribed:
            assert await world.receive() is None
        await world.publish(world.now_ms)
        catalog = world.engine.shard.views.catalog
        change = ConfigChange(delete_topic_id=catalog.get_topic("%DLQ%billing").topic_id)
        await within(
            world.service.propose(lambda now, who: world.mastership.configure(change, now, who))
        )
        assert catalog.get_group("billing").dead_letter_topic_id == 0
        assert await world.nack(world.select(await world.leased())) == [1]
        dead = await world.receive(topic="%DLQ%billing", group="undertaker", wait_ms=600_000)
        assert dead is not None
        assert world.group().attempts_max == 1
