"""Who decides about topics and groups: the log alone, then the control state."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.types import TOPIC_ID_MAX
from node.catalog import owner
from node.contracts.broker import CatalogUpdate, GroupSettings
from node.contracts.transactions import PreparedPart, Preparing
from node.shard.views import CONTROL_LEVEL
from replication.control_state.catalog_commands import CATALOG_RULES
from replication.control_state.state import CODEC_VERSION
from tests.support.catalog_control import ControlInMemory, first_state
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until
from tests.support.owned_world import DEFAULTS, TO_BE_CHANGED, OwnedWorld, aged

# --- import


async def test_existing_directory_keeps_topics_groups_and_ids(tmp_path: Path) -> None:
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        before = await aged(world)
        versions = [one.version for one in world.catalog.topics()]
        next_id = world.catalog.next_topic_id
        world.control = world.owned
        await world.restart()
        await world.settled()
        assert (world.owned.topics, world.owned.groups) == before
        assert world.owned.applied.catalog_import.is_done
        assert world.catalog.is_controlled
        world.check()
        assert world.engine.topic("bills").description == "changed"
        assert world.group("mail").attempts_max == 3
        assert min(one.version for one in world.owned.applied.topics.values()) > max(versions)
        await world.publish(world.now_ms, topic="new")
        assert world.owned.topics["new"] == world.log_topics["new"] == next_id
        await world.restart()
        await world.settled()
        world.check()
        assert world.log_topics.keys() == {"orders", "bills", "new"}


async def test_empty_directory_imports_with_its_first_topic(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.settled()
        assert not world.owned.entries, "a node without topics takes no room"
        await world.publish(world.now_ms)
        kinds = [one.WhichOneof("command") for one in world.owned.entries]
        assert kinds == ["import_catalog", "put_topic"]
        world.check()


async def test_large_catalog_comes_in_pieces(tmp_path: Path) -> None:
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        for number in range(150):
            update = CatalogUpdate(description="x" * 400)
            await within(world.engine.create_topic(f"topic-{number:03}", 1))
            if number % 2:
                await within(world.engine.update_topic(f"topic-{number:03}", update))
        before = world.log_topics
        world.control = world.owned
        await world.restart()
        await within(world.engine.create_topic("one-more", 1))
        assert world.owned.applied.catalog_import.pieces > 1
        assert world.owned.topics == {**before, "one-more": 151}
        await world.settled()
        world.check()


@pytest.mark.parametrize("lost_at", range(4))
async def test_import_is_whole_wherever_answers_are_lost(
    tmp_path: Path, lost_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost at each piece, with a takeover behind it; what came true came true once."""
    monkeypatch.setattr("node.catalog.control_items.PIECE_BYTES", 100)
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        before = await aged(world)
        world.control = world.owned
        propose, count = world.owned.propose, 0

        async def lossy(command: wire.ControlCommand) -> wire.ControlResult:
            nonlocal count
            count += 1
            world.owned.loses_answers = count > lost_at
            return await propose(command)

        monkeypatch.setattr(world.owned, "propose", lossy)
        await world.restart()
        await world.settled()
        await world.close()
        monkeypatch.setattr(world.owned, "propose", propose)
        world.owned.loses_answers = False
        await world.open()
        await within(world.engine.create_topic("new", 1))
        await world.settled()
        world.check()
        assert world.owned.topics.items() >= before[0].items()
        assert (len(world.owned.topics), world.owned.groups) == (len(before[0]) + 1, before[1])


async def test_bug_in_a_batch_of_commands_ends_the_node_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying again and again would leave it half alive."""
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        await aged(world)
        world.control = world.owned
        count = 0

        async def broken(_: wire.ControlCommand) -> wire.ControlResult:
            nonlocal count
            count += 1
            raise RuntimeError("a bug")

        monkeypatch.setattr(world.owned, "propose", broken)
        with pytest.raises(errors.Internal, match="a bug"):
            await world.restart()
        assert type(await world.failed()) is errors.Internal
        assert count == 1


async def test_master_that_finds_the_import_done_says_so_in_its_log(tmp_path: Path) -> None:
    """Its predecessor had the last answer, and no time to write it down."""
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        before = await aged(world)
        world.control = world.owned
        world.owned.is_late = True  # it hears nothing of what it did
        await world.restart()
        await let_others_run()
        assert world.owned.applied.catalog_import.is_done
        assert not world.catalog.is_controlled
        await world.close()
        world.owned.is_late = False
        world.owned.state = world.owned.applied
        await world.open()
        await world.settled()
        assert world.catalog.is_controlled
        assert (world.log_topics, world.log_groups) == before
        world.check()


async def test_log_decides_alone_while_rules_or_level_are_older(tmp_path: Path) -> None:
    world = OwnedWorld(tmp_path)
    world.owned = world.control = ControlInMemory(first_state(rules=CATALOG_RULES - 1))
    async with world:
        await world.publish(world.now_ms)
        assert not world.owned.entries
        world.engine.shard.views.feature_level = CONTROL_LEVEL - 1
        world.owned.applied = replace(world.owned.applied, codec_version=CODEC_VERSION, revision=9)
        world.owned.tell()
        await world.publish(world.now_ms, topic="bills")
        assert not world.owned.entries
        world.engine.shard.views.feature_level = CONTROL_LEVEL
        world.owned.tell()
        await world.settled()
        assert world.owned.topics == {"orders": 1, "bills": 2}
        await world.publish(world.now_ms, topic="new")
        world.check()


async def test_log_that_comes_to_a_new_control_state_is_imported_again(tmp_path: Path) -> None:
    """As from a backup: the log is the one that knows, and its revisions go on."""
    world = OwnedWorld(tmp_path)
    async with world:
        await world.publish(world.now_ms)
        await world.publish(world.now_ms, topic="bills")
        former = world.owned
        assert world.catalog.control_revision == former.applied.revision
        await world.close()
        world.owned = world.control = ControlInMemory()
        await world.open()
        await world.settled()
        assert world.owned.topics == former.topics
        assert world.owned.applied.revision > former.applied.revision
        await world.publish(world.now_ms, topic="new")
        world.check()


# --- while there is no leader


async def test_publishing_goes_on_without_a_leader_and_a_new_topic_has_to_wait(
    tmp_path: Path,
) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.receive() is not None
        await within(world.engine.put_group("mail", GroupSettings()))
        world.owned.has_leader = False
        assert (await world.publish(world.now_ms)).count == 1
        with pytest.raises(errors.Unavailable, match="no leader"):
            await world.publish(world.now_ms, topic="bills")
        with pytest.raises(errors.Unavailable, match="no leader"):
            await world.publish_single(world.now_ms, topic="bills")
        with pytest.raises(errors.Timeout):
            await within(world.engine.update_topic("orders", TO_BE_CHANGED))
        assert await world.receive() is not None
        await world.put_subscription("a", group="mail")  # subscriptions are the log's
        world.owned.has_leader = True
        assert (await world.publish(world.now_ms, topic="bills")).count == 1
        world.check()


async def test_takeover_waits_for_no_leader(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await within(world.engine.put_group("billing", GroupSettings()))
        world.owned.has_leader = False
        await world.restart()
        assert (await world.publish(world.now_ms)).count == 1
        assert (await world.leased()).units["sequence"].tolist() == [0, 1]


# --- the log follows


async def test_new_master_appends_what_was_decided_before_it_serves(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        for name in ("orders", "bills", "gone"):
            await world.publish(world.now_ms, topic=name)
        await within(world.engine.put_group("mail", GroupSettings()))
        await world.close()
        kept = world.owned.applied
        gone = kept.topics["gone"]
        world.decide(
            delete_topic=wire.DeleteObjectCommand(name="gone", expected_version=gone.version)
        )
        bills = kept.topics["bills"]
        version = bills.version
        world.decide(delete_topic=wire.DeleteObjectCommand(name="bills", expected_version=version))
        world.decide(put_topic=wire.PutObjectCommand(name="bills", settings=bills.settings))
        mail = kept.groups["mail"]
        settings = mail.settings
        world.decide(put_group=wire.PutObjectCommand(name="letters", settings=settings))
        put = wire.PutObjectCommand(name="mail", settings=settings, expected_version=mail.version)
        world.decide(put_group=put)
        world.owned.state = world.owned.applied
        await world.open()
        result = await world.publish(world.now_ms, topic="gone")  # nothing goes into the former one
        await world.settled()
        world.check()
        assert world.owned.topics["gone"] > gone.object_id
        _, states = world.engine.shard.views.sequences.read_many(
            np.array([result.base_sequence], np.uint64)
        )
        assert states.tolist()


async def test_change_of_somebody_else_comes_into_the_log_while_it_serves(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        orders = world.owned.applied.topics["orders"]
        for number in range(2 * owner.APPENDED_AT_ONCE):
            put = wire.PutObjectCommand(name=f"other-{number}", settings=orders.settings)
            world.decide(put_topic=put)
        world.decide(
            delete_topic=wire.DeleteObjectCommand(name="orders", expected_version=orders.version)
        )
        world.owned.tell()
        await world.settled()
        world.check()
        assert "orders" not in world.log_topics


async def test_topic_deleted_with_many_subscriptions(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        for number in range(owner.DELETED_AT_ONCE + 2):
            await world.put_subscription("a", group=f"group-{number}")
        await within(world.engine.delete_topic("orders"))
        assert world.catalog.subscription_count == 0
        world.check()


async def test_own_topics_have_numbers_from_the_top(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.receive() is not None
        own = [one.topic_id for one in world.catalog.topics() if one.internal]
        assert own == [TOPIC_ID_MAX - 1, TOPIC_ID_MAX]
        await world.publish(world.now_ms, topic="bills")
        assert world.owned.topics == {"orders": 1, "bills": 2}
        await world.restart()
        assert await world.receive(topic="bills") is not None
        own = [one.topic_id for one in world.catalog.topics() if one.internal]
        assert own == [TOPIC_ID_MAX - 2, TOPIC_ID_MAX - 1, TOPIC_ID_MAX]


# --- changes


async def test_topics_that_come_together_share_entries(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        before = len(world.owned.entries)
        due_ms = world.now_ms
        calls = [world.publish(due_ms, topic=f"topic-{number}") for number in range(300)]
        assert all(one.count == 1 for one in await asyncio.gather(*calls))
        assert len(world.owned.entries) - before <= 4, "one, then 128 at once"
        world.check()


async def test_change_compares_with_what_the_control_state_has(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1))
        orders = world.owned.applied.topics["orders"]
        put = wire.PutObjectCommand(
            name="orders", settings=orders.settings, expected_version=orders.version
        )
        world.decide(put_topic=put)  # and the node has not heard of it
        with pytest.raises(errors.Unavailable, match="changed meanwhile"):
            await within(world.engine.update_topic("orders", TO_BE_CHANGED))
        changed = await within(world.engine.update_topic("orders", TO_BE_CHANGED))
        assert changed.version == world.owned.applied.topics["orders"].version
        stale = CatalogUpdate(description="late", expected_version=changed.version - 1)
        with pytest.raises(errors.FailedPrecondition):
            await within(world.engine.update_topic("orders", stale))


async def test_batches_of_a_producer_keep_their_order_behind_a_new_topic(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)

        async def publish(topic: str, first: int) -> int:
            raw = build_publish([world.now_ms], [b""], producer_id=5, producer_sequence=first)
            result = await world.engine.publish_batch(topic, RecordBatch(raw))
            return int(result.base_sequence)

        # The second one is of a topic that is there, and may not come before the first.
        calls = [publish(name, at) for at, name in enumerate(("new", "orders", "new", "newer"))]
        assert await within(asyncio.gather(*calls)) == [1, 2, 3, 4]


# --- what nobody uses


async def expire(world: OwnedWorld, name: str = "orders") -> bool:
    number = world.log_topics[name]
    service = world.service.catalog_service
    return await within(service.expire_topic(number, lambda _: True))


async def unused(world: OwnedWorld) -> None:
    published = await world.publish(world.now_ms + 10**9)
    due_ms = world.now_ms + 10**9
    one = (published.shard, published.epoch, published.base_sequence, due_ms)
    await within(world.engine.cancel(np.array([one], ID_DTYPE)))


async def test_unused_topic_goes_by_command_and_comes_again(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await unused(world)
        assert await expire(world)
        world.check()
        assert not world.log_topics
        await world.publish(world.now_ms)
        assert world.log_topics == {"orders": 2}


async def test_nothing_is_published_to_a_topic_of_which_nobody_knows_whether_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deletion came true, and the answer was lost: a message to it would be lost as well."""
    monkeypatch.setattr(owner, "AGAIN_S", 0)
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms, topic="bills")
        await unused(world)
        world.owned.loses_answers = world.owned.is_late = True
        expiring = asyncio.create_task(expire(world))
        await let_others_run()
        publishing = asyncio.create_task(world.publish(world.now_ms))
        joined = asyncio.create_task(world.publish_joined(("orders", 1), ("bills", 1)))
        await let_others_run()
        assert not publishing.done()
        assert not joined.done()
        world.owned.loses_answers = world.owned.is_late = False
        world.owned.tell()
        assert await within(expiring)
        assert (await within(publishing)).count == 1
        assert (await within(joined)).count == 2
        world.check()
        world.advance(10)
        assert len((await world.leased()).units) == 2
        assert world.log_topics["orders"] == 3


async def test_no_occurrence_is_planned_while_nobody_knows_whether_its_topic_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a new recurrence begin: what was taken for the topic would be deleted with it."""
    monkeypatch.setattr(owner, "AGAIN_S", 0)
    async with OwnedWorld(tmp_path) as world:
        every = RecurrenceConfig(topic="orders", every_ms=10_000, body=b"x")
        await within(world.engine.recurring.put(every, "report", None))
        await world.settled()
        assert world.engine.stats.occurrences == 1
        world.owned.loses_answers = world.owned.is_late = True
        expiring = asyncio.create_task(expire(world))
        await let_others_run()
        other = RecurrenceConfig(topic="orders", every_ms=10_000, body=b"y")
        putting = asyncio.create_task(world.engine.recurring.put(other, "bill", None))
        world.advance(10_000)
        await until(lambda: world.engine.status().pending_count == 0)
        await world.settled()
        assert world.engine.stats.occurrences == 1
        assert not putting.done()
        world.owned.loses_answers = world.owned.is_late = False
        world.owned.tell()
        assert await within(expiring)
        await within(putting)
        await world.settled()
        assert world.engine.recurring.get("orders", "bill").occurrence_count == 1
        world.check()


async def test_transaction_commits_while_nobody_leads_the_control_plane(tmp_path: Path) -> None:
    """What the master itself publishes waits for nobody else."""
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms, topic="bills")
        part = PreparedPart("orders", [world.now_ms + 5_000], (b"x",), (b"",), (0,), (0,))
        preparing = Preparing("tills", (part,), (), bytes(16), 60_000, 2, 600_000)
        of = (await within(world.engine.transactions.prepare(preparing))).transaction_id
        every = RecurrenceConfig(topic="orders", every_ms=10_000, body=b"x")
        await within(world.engine.recurring.put(every, "report", None))
        await world.settled()
        world.owned.loses_answers = world.owned.is_late = True
        commands = len(world.owned.entries)
        ended = await within(
            world.engine.transactions.end_transaction(of, ("orders",), is_commit=True)
        )
        assert len(ended.messages) == 1
        world.advance(10_000)
        await until(lambda: world.engine.stats.occurrences == 2)
        assert len(world.owned.entries) == commands


async def test_former_master_deletes_nothing(tmp_path: Path) -> None:
    """Its command comes late: who is master now may have taken something for the topic."""
    world = OwnedWorld(tmp_path)
    world.owned.is_alone = False
    state = world.owned.applied
    shards = {0: replace(state.shards[0], epoch=1)}
    world.owned.applied = world.owned.state = replace(state, shards=shards)
    async with world:
        await unused(world)
        shards = {0: replace(state.shards[0], epoch=2)}  # another one is elected
        world.owned.applied = replace(world.owned.applied, shards=shards, revision=99)
        assert not await expire(world)
        assert "orders" in world.owned.topics
        assert (await world.publish(world.now_ms)).count == 1


async def test_unused_group_goes_by_command(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.receive() is not None
        number = world.log_groups["billing"]
        service = world.service.catalog_service
        assert await within(service.expire_group(number, lambda _: True))
        assert not world.owned.groups
        world.check()
        assert [one.name for one in world.topics(include_internal=True)] == ["orders"]


async def test_no_topic_is_made_where_the_configuration_says_so(tmp_path: Path) -> None:
    defaults = replace(DEFAULTS, topics_auto_create=False)
    async with OwnedWorld(tmp_path, defaults=defaults) as world:
        with pytest.raises(errors.UnknownTopic):
            await world.publish(world.now_ms)
        with pytest.raises(errors.UnknownTopic):
            await world.receive()
        with pytest.raises(errors.UnknownTopic):
            await world.put_subscription("a")
        await within(world.engine.create_topic("orders", 1))
        await world.publish(world.now_ms)
        assert world.owned.topics.keys() == {"orders"}
