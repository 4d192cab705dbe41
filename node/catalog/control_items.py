"""Topics and groups between the log and the control state: how they are written, what is missing.

The control state keeps a topic's or a group's settings as bytes that only nodes read: a TopicConfig
or GroupConfig without what the state itself says (name, number, version) and without what belongs
to one shard (the topic for dead letters).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.state_pb2 import GroupConfig, TopicConfig
from hourwheel.types import Epoch, GroupId, ShardId, TopicId
from replication.control_state.state import ControlState, NamedObject
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Topic

PIECE_BYTES: Final = 20 * 1024
"""Of an import: well below what a command may have."""
_OBJECT_BYTES: Final = 32
"""More than an object takes beside its name and settings."""


def topic_settings(topic: Topic) -> bytes:
    """What the control state keeps of a topic."""
    config = topic.config()
    for name in ("topic_id", "name", "version", "internal"):
        config.ClearField(name)
    return config.SerializeToString(deterministic=True)


def topic_of(kept: NamedObject) -> Topic:
    """The topic that the control state has."""
    config = TopicConfig.FromString(kept.settings)
    config.topic_id, config.name, config.version = kept.object_id, kept.name, kept.version
    return Topic.read(config)


def group_settings(group: Group) -> bytes:
    """What the control state keeps of a group."""
    config = group.config()
    for name in ("group_id", "name", "version", "dead_letter_topic_id"):
        config.ClearField(name)
    return config.SerializeToString(deterministic=True)


def group_of(kept: NamedObject, letters: TopicId) -> Group:
    """The group that the control state has, with the shard's topic for its dead letters."""
    config = GroupConfig.FromString(kept.settings)
    config.group_id, config.name, config.version = kept.object_id, kept.name, kept.version
    config.dead_letter_topic_id = letters
    return Group.read(config)


# --- from the log to the control state


def import_commands(
    catalog: Catalog, shard: ShardId, epoch: Epoch, next_version: int
) -> list[wire.ImportCatalogCommand]:
    """What makes the control state begin with what a log has: `next_version` is above all of it."""
    first = wire.ImportCatalogCommand(
        revision_floor=max(next_version, catalog.control_revision),
        next_topic_id=catalog.next_topic_id,
        next_group_id=catalog.next_group_id,
    )
    pieces, room = [first], PIECE_BYTES
    for is_topic, one in _objects(catalog):
        size = len(one.name) + len(one.settings) + _OBJECT_BYTES
        if size > room:
            pieces.append(wire.ImportCatalogCommand())
            room = PIECE_BYTES
        room -= size
        (pieces[-1].topics if is_topic else pieces[-1].groups).append(one)
    for number, piece in enumerate(pieces):
        piece.shard, piece.epoch, piece.piece = shard, epoch, number
    pieces[-1].is_last = True
    return pieces


def _objects(catalog: Catalog) -> Iterator[tuple[bool, wire.ObjectData]]:
    for topic in catalog.topics():
        if not topic.internal:
            settings = topic_settings(topic)
            yield (
                True,
                wire.ObjectData(name=topic.name, object_id=topic.topic_id, settings=settings),
            )
    for group in catalog.groups():
        settings = group_settings(group)
        yield (
            False,
            wire.ObjectData(name=group.name, object_id=group.group_id, settings=settings),
        )


# --- from the control state to the log


@dataclass
class Missing:
    """What a log lacks of a control state."""

    revision: int
    gone_topics: list[TopicId] = field(default_factory=list)
    gone_groups: list[GroupId] = field(default_factory=list)
    topics: list[NamedObject] = field(default_factory=list)
    """New and changed, by number: numbers are given out upwards."""
    groups: list[NamedObject] = field(default_factory=list)


def missing_of(state: ControlState, catalog: Catalog) -> Missing:
    """All that a log lacks. Looks at each topic and group."""
    missing = Missing(state.revision)
    numbers = {one.object_id for one in state.topics.values()}
    for topic in catalog.topics():
        if not topic.internal and topic.topic_id not in numbers:
            missing.gone_topics.append(topic.topic_id)
    numbers = {one.object_id for one in state.groups.values()}
    missing.gone_groups += [one.group_id for one in catalog.groups() if one.group_id not in numbers]
    for kept in state.topics.values():
        known = catalog.find_topic_by_id(TopicId(kept.object_id))
        if known is None or known.version != kept.version:
            missing.topics.append(kept)
    for kept in state.groups.values():
        group = catalog.find_group_by_id(GroupId(kept.object_id))
        if group is None or group.version != kept.version:
            missing.groups.append(kept)
    return _sorted(missing)


def missing_between(old: ControlState, new: ControlState) -> Missing:
    """What a log lacks that has all of `old`."""
    gone_topics, topics = _changes(old.topics, new.topics, old.revision)
    gone_groups, groups = _changes(old.groups, new.groups, old.revision)
    return _sorted(
        Missing(
            new.revision,
            [TopicId(one) for one in gone_topics],
            [GroupId(one) for one in gone_groups],
            topics,
            groups,
        )
    )


def _changes(
    old: Mapping[str, NamedObject], new: Mapping[str, NamedObject], revision: int
) -> tuple[list[int], list[NamedObject]]:
    """Numbers of what is there no more, and what has come or changed."""
    if old is new:
        return [], []
    changed = [one for one in new.values() if one.version > revision]
    gone, added_count = [], 0
    for one in changed:
        before = old.get(one.name)
        if before is None:
            added_count += 1
        elif before.object_id != one.object_id:
            gone.append(before.object_id)
    if len(old) + added_count != len(new):
        gone += [one.object_id for one in old.values() if one.name not in new]
    return gone, changed


def _sorted(missing: Missing) -> Missing:
    missing.topics.sort(key=lambda one: one.object_id)
    missing.groups.sort(key=lambda one: one.object_id)
    return missing
