"""What commands do to topics and groups. Pure, total, deterministic.

    put, delete   compare-and-set on the version of one
    expire        a deletion that the master thought of: only while that is the master
    import        topics and groups come over from the log of a shard, with their ids; once

What is imported is as of one moment at which that log's master had nothing else on its way: its
epoch is in each piece, so what a former master sends changes nothing. A piece numbered 0 begins
anew, for a master that does not know how far it came. Versions grow on from what the log gave out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.answers import Answer, conflict, next_revision, ok, refused
from replication.control_state.state import (
    CatalogImport,
    ControlState,
    NamedObject,
    with_entry,
    without_entry,
)

CATALOG_RULES: Final = 5
"""The oldest rules by which the control state can have a log's topics and groups."""
MEMBER_RULES: Final = 6
"""By these a group may be the member of a broadcast. No command is another one: every node knows
what its settings say, and serves it by its name."""
OBJECT_COUNT_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 1_024


def is_name(name: str) -> bool:
    """Whether something may be called so."""
    return 0 < len(name.encode()) <= NAME_BYTES_MAX


def _put(
    objects: Mapping[str, NamedObject], next_id: int, state: ControlState, command: Any
) -> tuple[NamedObject | None, Answer]:
    """The new object, or none and the answer why not."""
    old = objects.get(command.name)
    version = old.version if old else 0
    if not is_name(command.name):
        return None, refused(state, f"a name has 1 to {NAME_BYTES_MAX} bytes")
    if version != command.expected_version:
        number = old.object_id if old else 0
        return None, conflict(state, "another version", version=version, object_id=number)
    if old is None and len(objects) >= OBJECT_COUNT_MAX:
        return None, refused(state, f"more than {OBJECT_COUNT_MAX}")
    after = next_revision(state)
    new = NamedObject(
        command.name, old.object_id if old else next_id, command.settings, after.revision
    )
    return new, ok(after, version=new.version, object_id=new.object_id)


def put_topic(state: ControlState, command: pb.PutObjectCommand) -> Answer:
    """Make or change a topic."""
    new, (after, result) = _put(state.topics, state.next_topic_id, state, command)
    if new is None:
        return after, result
    topics = with_entry(state.topics, new.name, new)
    next_id = max(state.next_topic_id, new.object_id + 1)
    return replace(after, topics=topics, next_topic_id=next_id), result


def put_group(state: ControlState, command: pb.PutObjectCommand) -> Answer:
    """Make or change a group."""
    new, (after, result) = _put(state.groups, state.next_group_id, state, command)
    if new is None:
        return after, result
    groups = with_entry(state.groups, new.name, new)
    next_id = max(state.next_group_id, new.object_id + 1)
    return replace(after, groups=groups, next_group_id=next_id), result


def _without(
    objects: Mapping[str, NamedObject], state: ControlState, command: Any
) -> tuple[Mapping[str, NamedObject] | None, Answer]:
    old = objects.get(command.name)
    if old is None or old.version != command.expected_version:
        found = old.version if old else 0
        return None, conflict(state, "another version, or none", version=found)
    left = without_entry(objects, command.name)
    return left, ok(next_revision(state), object_id=old.object_id)


def delete_topic(
    state: ControlState, command: pb.DeleteObjectCommand | pb.ExpireObjectCommand
) -> Answer:
    """Delete the version of a topic that is expected."""
    topics, (after, result) = _without(state.topics, state, command)
    return (after if topics is None else replace(after, topics=topics)), result


def delete_group(
    state: ControlState, command: pb.DeleteObjectCommand | pb.ExpireObjectCommand
) -> Answer:
    """Delete the version of a group that is expected."""
    groups, (after, result) = _without(state.groups, state, command)
    return (after if groups is None else replace(after, groups=groups)), result


def expire_topic(state: ControlState, command: pb.ExpireObjectCommand) -> Answer:
    """Delete an unused topic."""
    return _why_not_master(state, command) or delete_topic(state, command)


def expire_group(state: ControlState, command: pb.ExpireObjectCommand) -> Answer:
    """Delete an unused group."""
    return _why_not_master(state, command) or delete_group(state, command)


def _why_not_master(
    state: ControlState, command: pb.ExpireObjectCommand | pb.ImportCatalogCommand
) -> Answer | None:
    """The refusal of what a shard's former master asks for; None: it is the master."""
    shard = state.shards.get(command.shard)
    if shard is None:
        return refused(state, "no such shard")
    if shard.epoch != command.epoch:
        return conflict(state, "another epoch", epoch=shard.epoch)
    return None


def import_catalog(state: ControlState, command: pb.ImportCatalogCommand) -> Answer:
    """Take over a piece of a log's topics and groups."""
    done = state.catalog_import
    if done.is_done:
        return conflict(state, "topics and groups were imported")
    refusal = _why_not_master(state, command)
    if refusal is not None:
        return refusal
    if command.piece not in {0, done.pieces}:
        return conflict(state, f"piece {done.pieces} is next")
    after = state
    if command.piece == 0:
        none: Mapping[str, NamedObject] = MappingProxyType({})
        revision = max(state.revision, command.revision_floor)
        after = replace(state, revision=revision, topics=none, groups=none)
    after = next_revision(after)
    topics = _joined(after.topics, command.topics, after.revision)
    groups = _joined(after.groups, command.groups, after.revision)
    if topics is None or groups is None:
        return refused(state, "names and ids of what is imported are proper, and unique")
    after = replace(
        after,
        topics=topics,
        groups=groups,
        next_topic_id=_next_id(after.next_topic_id, command.next_topic_id, command.topics),
        next_group_id=_next_id(after.next_group_id, command.next_group_id, command.groups),
        catalog_import=CatalogImport(command.piece + 1, command.is_last),
    )
    return ok(after)


def _joined(
    objects: Mapping[str, NamedObject], more: Sequence[pb.ObjectData], version: int
) -> Mapping[str, NamedObject] | None:
    """All of both; None: they do not fit together."""
    joined = dict(objects)
    ids = {one.object_id for one in joined.values()}
    for one in more:
        if not is_name(one.name) or one.name in joined or not one.object_id or one.object_id in ids:
            return None
        ids.add(one.object_id)
        joined[one.name] = NamedObject(one.name, one.object_id, one.settings, version)
    return MappingProxyType(joined) if len(joined) <= OBJECT_COUNT_MAX else None


def _next_id(known: int, said: int, more: Sequence[pb.ObjectData]) -> int:
    return max([known, said, *(one.object_id + 1 for one in more)])
