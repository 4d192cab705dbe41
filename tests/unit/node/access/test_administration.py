"""Changes of users and grants: as commands, against a state that moves."""

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.access.administration import Administration
from replication.control_state.access import GrantKey
from replication.control_state.state import ControlState
from tests.support.control_of_one import ControlOfOne

KEY = GrantKey("alice", "topic", "orders")
LOOK = frozenset({"look"})


async def test_users_are_made_changed_and_deleted_also_unseen() -> None:
    world = ControlOfOne()
    first = await world.administration.put_user("alice", "one", 0)
    second = await world.administration.put_user("alice", "two", None)  # the node has not heard
    assert second > first
    assert world.state.access.users["alice"].secret_hash == "#two"
    with pytest.raises(errors.FailedPrecondition) as caught:
        await world.administration.put_user("alice", "three", first)
    assert caught.value.params["version"] == str(second)
    await world.administration.delete_user("alice", None)
    for _ in range(2):
        with pytest.raises(errors.NotFound):
            await world.administration.delete_user("alice", None)
        world.tell()
    assert not world.state.access.users


async def test_grants_are_made_replaced_and_deleted() -> None:
    world = ControlOfOne()
    version = await world.administration.put_grant(KEY, LOOK, None)
    world.tell()
    assert await world.administration.put_grant(KEY, LOOK | {"publish"}, version) > version
    assert world.state.access.grants[KEY].operations == {"look", "publish"}
    with pytest.raises(errors.FailedPrecondition):
        await world.administration.delete_grant(KEY, version)
    await world.administration.delete_grant(KEY, None)
    with pytest.raises(errors.NotFound):
        await world.administration.delete_grant(KEY, 0)


@pytest.mark.parametrize(
    ("name", "secret"),
    [("", "s"), ("a*", "s"), ("a:b", "s"), ("a\n", "s"), ("a" * 257, "s"), ("a", ""),
     ("a", "s" * 1_025)],
)  # fmt: skip
async def test_user_that_cannot_be_is_refused(name: str, secret: str) -> None:
    world = ControlOfOne()
    with pytest.raises(errors.InvalidArgument):
        await world.administration.put_user(name, secret, None)
    assert not world.state.access.users


async def test_grant_that_cannot_be_is_refused() -> None:
    world = ControlOfOne()
    for key, operations in ((KEY, frozenset[str]()), (KEY._replace(name="a*b"), LOOK)):
        with pytest.raises(errors.InvalidArgument):
            await world.administration.put_grant(key, operations, None)
    with pytest.raises(errors.InvalidArgument):
        await world.administration.delete_grant(KEY._replace(principal="a" * 300), None)


async def test_cluster_that_follows_older_rules_says_so() -> None:
    world = ControlOfOne()
    world.state = ControlState(cluster_id=bytes(16))
    with pytest.raises(errors.FailedPrecondition, match="rules 1"):
        await world.administration.put_user("alice", "one", None)


async def test_node_that_knows_no_state_yet_changes_nothing() -> None:
    world = ControlOfOne()
    world.policies.state = None
    with pytest.raises(errors.Unavailable):
        await world.administration.put_user("alice", "one", None)


async def test_change_gives_up_where_others_are_faster_again_and_again() -> None:
    world = ControlOfOne()
    count = 0

    async def lose(command: wire.ControlCommand) -> wire.ControlResult:
        nonlocal count
        count += 1
        return wire.ControlResult(
            outcome=wire.CONTROL_OUTCOME_CONFLICT,
            reason="another version",
            version=command.put_grant.expected_version + 1,
        )

    administration = Administration(world.policies, lose)
    with pytest.raises(errors.FailedPrecondition, match="another version"):
        await administration.put_grant(KEY, LOOK, None)
    assert 1 < count < 100
