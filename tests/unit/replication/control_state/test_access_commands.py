"""Users, grants and quotas: compare-and-set, bounded, refused without sense."""

from typing import Any

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state import access_commands
from replication.control_state.access import GrantKey, QuotaLimits
from replication.control_state.state import CODEC_VERSION, decode_state, encode_state
from tests.support.control_commands import StateWorld

CONFLICT, REFUSED = pb.CONTROL_OUTCOME_CONFLICT, pb.CONTROL_OUTCOME_REFUSED
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"
KEY = pb.GrantKey(principal="ann", kind="topic", name="orders-*")


@pytest.fixture
def world() -> StateWorld:
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    return world


def user(version: int = 0, name: str = "ann", secret_hash: str = HASH) -> pb.PutUserCommand:
    return pb.PutUserCommand(name=name, secret_hash=secret_hash, expected_version=version)


def grant(*operations: str, version: int = 0, key: pb.GrantKey = KEY) -> pb.PutGrantCommand:
    return pb.PutGrantCommand(key=key, operations=operations, expected_version=version)


def quota(version: int = 0, principal: str = "ann", **limits: int) -> pb.PutQuotaCommand:
    return pb.PutQuotaCommand(
        principal=principal, limits=pb.QuotaLimits(**limits), expected_version=version
    )


def test_user_is_made_changed_and_deleted_by_version(world: StateWorld) -> None:
    version = world.ok(put_user=user()).version
    assert world.state.access.users["ann"].secret_hash == HASH
    late = world.do(put_user=user(secret_hash="other"))
    assert (late.outcome, late.version) == (CONFLICT, version)
    assert world.do(delete_user=pb.DeleteUserCommand(name="ann")).outcome == CONFLICT
    newer = world.ok(put_user=user(version, secret_hash="other")).version
    assert newer == world.state.revision == world.state.access.version
    world.ok(delete_user=pb.DeleteUserCommand(name="ann", expected_version=newer))
    assert not world.state.access.users
    assert world.state.access.version == world.state.revision > newer


def test_secret_hash_is_not_shown(world: StateWorld) -> None:
    world.ok(put_user=user())
    assert HASH not in repr(world.state.access)


def test_grant_is_replaced_as_a_whole(world: StateWorld) -> None:
    version = world.ok(put_grant=grant("publish", "look")).version
    version = world.ok(put_grant=grant("receive", version=version)).version
    ((key, found),) = world.state.access.grants.items()
    assert key == GrantKey("ann", "topic", "orders-*")
    assert found.operations == {"receive"}
    world.ok(delete_grant=pb.DeleteGrantCommand(key=KEY, expected_version=version))
    assert not world.state.access.grants


def test_quota_is_put_and_deleted(world: StateWorld) -> None:
    version = world.ok(put_quota=quota(messages_per_s=5, topics=2)).version
    assert world.state.access.quotas["ann"].limits == QuotaLimits(messages_per_s=5, topics=2)
    world.ok(put_quota=quota(principal="*", connections=9))
    world.ok(delete_quota=pb.DeleteQuotaCommand(principal="ann", expected_version=version))
    assert list(world.state.access.quotas) == ["*"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"put_user": user(name="")},
        {"put_user": user(name="a*")},
        {"put_user": user(name="a\n")},
        {"put_user": user(name="ä" * 129)},
        {"put_user": user(secret_hash="")},
        {"put_user": user(secret_hash="x" * 513)},
        {"put_grant": grant()},
        {"put_grant": grant("fly")},
        {"put_grant": grant("look", key=pb.GrantKey(principal="a*b", kind="topic", name="t"))},
        {"put_grant": grant("look", key=pb.GrantKey(principal="", kind="topic", name="t"))},
        {"put_grant": grant("look", key=pb.GrantKey(principal="a", kind="queue", name="t"))},
        {"put_grant": grant("look", key=pb.GrantKey(principal="a", kind="topic", name=""))},
        {"put_grant": grant("look", key=pb.GrantKey(principal="a", kind="cluster", name="t"))},
        {"put_quota": quota(principal="a*")},
        {"put_quota": quota(principal="")},
        {"put_quota": quota(bytes_per_s=1 << 60)},
    ],
)
def test_what_makes_no_sense_is_refused(world: StateWorld, wrong: dict[str, Any]) -> None:
    before = world.state.access
    assert world.do(**wrong).outcome == REFUSED
    assert world.state.access == before


def test_entries_are_bounded(world: StateWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_commands, "ENTRY_COUNT_MAX", 1)
    version = world.ok(put_user=user()).version
    assert world.do(put_user=user(name="bob")).outcome == REFUSED
    world.ok(put_user=user(version, secret_hash="other"))


def test_access_is_the_same_when_it_was_written_and_read(world: StateWorld) -> None:
    world.ok(put_user=user())
    world.ok(put_grant=grant("publish", "administer"))
    world.ok(put_grant=grant("look", key=pb.GrantKey(principal="*", kind="cluster")))
    world.ok(put_quota=quota(calls_in_flight=3))
    again = decode_state(encode_state(world.state))
    assert again == world.state
    again.check()
