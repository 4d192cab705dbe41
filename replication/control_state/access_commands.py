"""What commands do to users, grants and quotas. Pure; rules 2.

Each is a compare-and-set: it names the version that it has read, 0 where there is none yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.access import (
    ENTRY_COUNT_MAX,
    AccessState,
    Quota,
    StoredGrant,
    User,
    key_of,
    limits_of,
    why_not_grant,
    why_not_quota,
    why_not_user,
)
from replication.control_state.answers import Answer, conflict, next_revision, ok, refused
from replication.control_state.state import ControlState, with_entry, without_entry

Key = TypeVar("Key")
Entry = TypeVar("Entry", User, StoredGrant, Quota)


def put_user(state: ControlState, command: pb.PutUserCommand) -> Answer:
    """Make a user, or change the secret."""
    if problem := why_not_user(command.name, command.secret_hash):
        return refused(state, problem)
    user = User(command.name, command.secret_hash, state.revision + 1)
    return _put(state, "users", state.access.users, user.name, user, command.expected_version)


def delete_user(state: ControlState, command: pb.DeleteUserCommand) -> Answer:
    """The name has no secret any more."""
    users = state.access.users
    return _delete(state, "users", users, command.name, command.expected_version)


def put_grant(state: ControlState, command: pb.PutGrantCommand) -> Answer:
    """Allow just these operations."""
    key, operations = key_of(command.key), frozenset(command.operations)
    if problem := why_not_grant(key, operations):
        return refused(state, problem)
    grant = StoredGrant(key, operations, state.revision + 1)
    return _put(state, "grants", state.access.grants, key, grant, command.expected_version)


def delete_grant(state: ControlState, command: pb.DeleteGrantCommand) -> Answer:
    """Allow nothing of that any more."""
    key = key_of(command.key)
    return _delete(state, "grants", state.access.grants, key, command.expected_version)


def put_quota(state: ControlState, command: pb.PutQuotaCommand) -> Answer:
    """Limit a principal."""
    limits = limits_of(command.limits)
    if problem := why_not_quota(command.principal, limits):
        return refused(state, problem)
    quota = Quota(command.principal, limits, state.revision + 1)
    quotas = state.access.quotas
    return _put(state, "quotas", quotas, quota.principal, quota, command.expected_version)


def delete_quota(state: ControlState, command: pb.DeleteQuotaCommand) -> Answer:
    """A principal's limits end."""
    quotas = state.access.quotas
    return _delete(state, "quotas", quotas, command.principal, command.expected_version)


def _put(
    state: ControlState,
    where: str,
    entries: Mapping[Key, Entry],
    key: Key,
    entry: Entry,
    expected_version: int,
) -> Answer:
    old = entries.get(key)
    version = 0 if old is None else old.version
    if version != expected_version:
        return conflict(state, "another version", version=version)
    if old is None and len(entries) >= ENTRY_COUNT_MAX:
        return refused(state, f"more than {ENTRY_COUNT_MAX} {where}")
    return _changed(state, entry.version, **{where: with_entry(entries, key, entry)})


def _delete(
    state: ControlState,
    where: str,
    entries: Mapping[Key, Entry],
    key: Key,
    expected_version: int,
) -> Answer:
    old = entries.get(key)
    if old is None or old.version != expected_version:
        found = 0 if old is None else old.version
        return conflict(state, "another version, or none", version=found)
    return _changed(state, 0, **{where: without_entry(entries, key)})


def _changed(state: ControlState, version: int, **changed: Any) -> Answer:
    """The next state, with these fields of its access state; `version` of the entry, if one is."""
    after = next_revision(state)
    access: AccessState = replace(state.access, version=after.revision, **changed)
    return ok(replace(after, access=access), version=version)
