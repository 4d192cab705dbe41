"""Trouble while topics and groups come from the control state: lost leaders, bugs, others."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.catalog import owner
from node.catalog.log_changes import LogChanges
from node.contracts.broker import GroupSettings
from storage.views.catalog_items import Topic
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until
from tests.support.owned_world import TO_BE_CHANGED, OwnedWorld, aged


async def test_import_that_is_refused_or_has_no_leader_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "AGAIN_S", 0)
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        before = await aged(world)
        world.control = world.owned
        propose, troubles = world.owned.propose, ["no leader", "refused"]

        async def hesitant(command: wire.ControlCommand) -> wire.ControlResult:
            if not troubles:
                return await propose(command)
            if troubles.pop() == "no leader":
                raise errors.Timeout("there is no leader")
            return wire.ControlResult(outcome=wire.CONTROL_OUTCOME_REFUSED, reason="older rules")

        monkeypatch.setattr(world.owned, "propose", hesitant)
        await world.restart()
        while not world.catalog.is_controlled:
            await world.settled()
            world.owned.tell()  # each news is a reason to try again
        await world.settled()
        assert (world.owned.topics, world.owned.groups) == before
        world.check()


async def test_bug_in_the_import_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = OwnedWorld(tmp_path, is_old=True)
    async with world:
        await aged(world)
        world.control = world.owned

        def fail(*_: object) -> object:
            raise ZeroDivisionError

        monkeypatch.setattr("node.catalog.control_items.import_commands", fail)
        with pytest.raises(errors.Internal):
            await world.restart()
        assert isinstance(await world.failed(), errors.Internal)


@pytest.mark.parametrize("count", [1, 3 * owner.APPENDED_AT_ONCE])
async def test_bug_while_the_log_follows_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """At once, or in a later turn."""
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        settings = world.owned.applied.topics["orders"].settings
        for number in range(count):
            world.decide(put_topic=wire.PutObjectCommand(name=f"t{number}", settings=settings))
        put_topic, left = LogChanges.put_topic, count - 1

        def fail(log: LogChanges, topic: Topic) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise ZeroDivisionError
            return put_topic(log, topic)

        monkeypatch.setattr(LogChanges, "put_topic", fail)
        world.owned.tell()
        assert isinstance(await world.failed(), errors.Internal)


async def test_step_down_while_the_log_follows_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        settings = world.owned.applied.topics["orders"].settings
        for number in range(3 * owner.APPENDED_AT_ONCE):
            world.decide(put_topic=wire.PutObjectCommand(name=f"t{number}", settings=settings))
        world.owned.tell()
        world.step_down()
        await let_others_run()
        world.become_master()
        await world.settled()
        await until(lambda: world.log_topics.keys() == world.owned.topics.keys())
        world.check()


async def test_change_of_what_somebody_else_deletes_meanwhile_is_to_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OwnedWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await within(world.engine.put_group("mail", GroupSettings()))
        propose = world.owned.propose

        async def overtaken(command: wire.ControlCommand) -> wire.ControlResult:
            world.owned.is_late = True
            result = await propose(command)
            for kind, objects in (("topic", "topics"), ("group", "groups")):
                name = getattr(command, f"put_{kind}").name
                if name:
                    gone = getattr(world.owned.applied, objects)[name]
                    of = wire.DeleteObjectCommand(name=name, expected_version=gone.version)
                    world.decide(**{f"delete_{kind}": of})
            world.owned.tell()
            return result

        monkeypatch.setattr(world.owned, "propose", overtaken)
        with pytest.raises(errors.Unavailable):
            await within(world.engine.update_topic("orders", TO_BE_CHANGED))
        with pytest.raises(errors.UnknownGroup):  # it was there for a moment
            await within(world.engine.put_group("mail", GroupSettings(attempts_max=7)))
        world.check()
