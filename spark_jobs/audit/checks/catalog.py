"""Topics, groups and subscriptions as of any place in the log, from its CONFIG records.

The rules are `storage.views.catalog`'s; this only writes down when what changed. Numbers of topics
and groups are never used again, so a topic has one stretch of life.
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.tag_gene import GeneSpec
from hourwheel.internal.v1.state_pb2 import Checkpoint, ConfigChange, SubscriptionReset
from hourwheel.types import QUEUE_BITS, TOPIC_ID_MAX
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.scan import Blob
from spark_jobs.logs.replica import ERROR
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription

FOREVER: Final = 1 << 62
"""Behind the end of every log."""

U64 = NDArray[np.uint64]
K = TypeVar("K")
V = TypeVar("V")


class Life(NamedTuple):
    """From when to when something is there: a record at offset o sees it if born < o <= died."""

    born: int
    died: int


class Reset(NamedTuple):
    """A group began anew in a topic."""

    offset: int
    """Of the record."""
    group_id: int
    topic_id: int
    retry_topic_id: int
    """What takes its retries from then on."""
    positions: tuple[tuple[int, int], ...]
    """(topic_queue, first position that is delivered)."""
    store_ms: int
    """When the record was appended."""


@dataclass
class Timeline:
    """What existed when."""

    names: dict[int, str] = field(default_factory=dict)
    """Topic id -> name, deleted ones included."""
    internal: set[int] = field(default_factory=lambda: {0})
    """Ids of topics for retries and dead letters. 0 takes the dead letters of groups whose own
    topic for them was deleted: no group reads its queue."""
    gene_specs: dict[int, GeneSpec] = field(default_factory=dict)
    """Topic id -> how its genes are made; it never changes."""
    topics: dict[int, Life] = field(default_factory=dict)
    group_names: dict[int, str] = field(default_factory=dict)
    groups: dict[int, list[tuple[int, Group | None]]] = field(default_factory=dict)
    """Group id -> (offset of the change, the group from then on), ascending."""
    subscriptions: dict[tuple[int, int], list[tuple[int, Subscription | None]]] = field(
        default_factory=dict
    )
    """(group, topic it reads from, its own retries too) -> changes, ascending."""
    retentions_ms: dict[int, list[tuple[int, int | None]]] = field(default_factory=dict)
    """Topic id, of retries too -> changes of the retention that it has of its own, ascending."""
    queue_counts: dict[int, int] = field(default_factory=dict)
    """Topic id -> how many queues of its own it has."""
    resets: list[Reset] = field(default_factory=list)
    """In the order of the log."""
    real_groups: dict[int, int] = field(default_factory=dict)
    """Number of a group that stands for another one behind a reset -> that one's: see `resets`."""
    window_ends: dict[tuple[int, int], int] = field(default_factory=dict)
    """(group, topic) -> offset of the reset that ended its windows there; `FOREVER`: none did."""
    catalogs: dict[int, Catalog] = field(default_factory=dict)
    """Offset of a checkpoint -> all that was there when records below it were applied."""
    findings: list[Finding] = field(default_factory=list)
    is_whole: bool = True
    """The log begins at 0: nothing existed before it."""

    @property
    def deleted(self) -> dict[int, int]:
        """Topic id -> offset of the record that deleted it."""
        return {each: life.died for each, life in self.topics.items() if life.died < FOREVER}

    def name_of(self, topic_id: int) -> str:
        """For people."""
        return self.names.get(topic_id, f"#{topic_id}")

    def lives(self) -> tuple[U64, U64]:
        """(born, died): offsets by topic id, as arrays over ids 0 .. the highest and one more.

        Of topics that messages are published to: numbers of the cluster's own are from the top.
        The last one stands for all numbers that no such topic has.
        """
        count = self._count
        born = np.full(count, FOREVER if self.is_whole else 0, np.uint64)
        died = np.full(count, FOREVER, np.uint64)
        for topic_id, life in self.topics.items():
            if topic_id < count - 1:
                born[topic_id], died[topic_id] = life
        return born, died

    def genes(self) -> NDArray[np.uint32]:
        """uint32: numbers of `gene_specs` by topic id, as `lives`."""
        found = np.zeros(self._count, np.uint32)
        for topic_id, spec in self.gene_specs.items():
            if topic_id < len(found) - 1:
                found[topic_id] = spec.number
        return found

    @property
    def _count(self) -> int:
        return max(self.topics.keys() - self.internal, default=0) + 2

    def group_at(self, group_id: int, offset: int) -> Group | None:
        """A group as a record at `offset` sees it."""
        return _at(self.groups.get(group_id, []), offset)

    def owns_letters(self, group_id: int, topic_queue: int, offset: int) -> bool:
        """Whether, for a record at `offset`, a group's dead letters stand in a queue."""
        group = self.group_at(group_id, offset)
        letters = 0 if group is None else int(group.dead_letter_topic_id)
        return letters > 0 and topic_queue == letters << QUEUE_BITS

    def retention_at(self, topic_id: int, offset: int) -> int:
        """A topic's own retention in ms, as a record at `offset` sees it; 0: it has none."""
        return _at(self.retentions_ms.get(topic_id, []), offset) or 0

    def subscription_at(self, group_id: int, topic_id: int, offset: int) -> Subscription | None:
        """How a group reads a topic, as a record at `offset` sees it."""
        return _at(self.subscriptions.get((group_id, topic_id), []), offset)


def _at(changes: list[tuple[int, V | None]], offset: int) -> V | None:
    found = bisect_left(changes, offset, key=lambda one: one[0])
    return changes[found - 1][1] if found else None


def build_timeline(
    configs: list[Blob],
    manifest: Checkpoint | None,
    shard: int,
    *,
    is_whole: bool = True,
    catalogs_at: Sequence[int] = (),
) -> Timeline:
    """Follow the CONFIG records of a log.

    Args:
        configs: in the order of the log.
        manifest: of a log that does not begin at 0: some checkpoint, whose topics, groups and
            subscriptions were there at the beginning, as far as anyone knows; else None.
        shard: for the findings.
        is_whole: the log begins at 0.
        catalogs_at: where the whole catalog is kept: `Timeline.catalogs`.
    """
    line = Timeline(is_whole=is_whole)
    catalog = _catalog_of(manifest, configs)
    _note(line, catalog, -1)
    waiting = sorted(catalogs_at, reverse=True)
    for blob in configs:
        while waiting and waiting[-1] <= blob.offset:
            line.catalogs[waiting.pop()] = _copied(catalog)
        try:
            change = ConfigChange.FromString(blob.raw)
            done = catalog.apply(change)
        except (DecodeError, errors.HourwheelError) as error:
            line.findings.append(
                Finding(
                    ERROR,
                    "kind-unknown",
                    shard,
                    "",
                    offset=blob.offset,
                    detail=f"a change of the configuration that is not known here: {error}",
                )
            )
            continue
        if done:
            _note(line, catalog, blob.offset)
        if done and change.HasField("reset_subscription"):
            line.resets.append(_reset_of(change.reset_subscription, blob))
    line.catalogs.update((at, _copied(catalog)) for at in waiting)
    return line


def _reset_of(reset: SubscriptionReset, blob: Blob) -> Reset:
    positions = tuple(zip(reset.topic_queues, reset.positions, strict=False))
    of = reset.group_id, reset.topic_id, reset.retry_topic_id
    return Reset(blob.offset, *of, positions, blob.store_ms)


def _copied(catalog: Catalog) -> Catalog:
    return Catalog(
        [one.config() for one in catalog.topics()],
        [one.config() for one in catalog.groups()],
        [one.config() for one in catalog.subscriptions()],
        next_topic_id=catalog.next_topic_id,
        next_group_id=catalog.next_group_id,
        control_revision=catalog.control_revision,
        next_internal_topic_id=catalog.next_internal_id if catalog.is_controlled else 0,
    )


def _catalog_of(manifest: Checkpoint | None, configs: list[Blob]) -> Catalog:
    if manifest is None:
        return Catalog()
    made, is_controlled = set(), manifest.control_revision > 0
    for blob in configs:  # what the log itself makes was not there before
        with suppress(DecodeError):  # `build_timeline` reports it
            change = ConfigChange.FromString(blob.raw)
            made.add((change.WhichOneof("change"), _number(change)))
            is_controlled &= not change.adopt_control_state
    topics = [one for one in manifest.topics if ("put_topic", one.topic_id) not in made]
    groups = [one for one in manifest.groups if ("put_group", one.group_id) not in made]
    ids = {one.topic_id for one in topics}
    group_ids = {one.group_id for one in groups}
    subscriptions = [
        one
        for one in manifest.subscriptions
        if {one.topic_id, one.retry_topic_id} <= ids and one.group_id in group_ids
    ]
    top = (manifest.next_internal_topic_id or TOPIC_ID_MAX) + 1
    return Catalog(
        topics,
        groups,
        subscriptions,
        next_topic_id=max((one for one in ids if one < top), default=0) + 1,
        next_group_id=max(group_ids, default=0) + 1,
        control_revision=int(is_controlled),  # the true revision is not known here
        next_internal_topic_id=min((one for one in ids if one >= top), default=TOPIC_ID_MAX + 1)
        - 1,
    )


def _number(change: ConfigChange) -> int:
    if change.HasField("put_topic"):
        return change.put_topic.topic_id
    return change.put_group.group_id if change.HasField("put_group") else 0


def _note(line: Timeline, catalog: Catalog, offset: int) -> None:
    """Write down how things are behind the record at `offset`."""
    alive = {topic.topic_id: topic for topic in catalog.topics()}
    for topic_id, topic in alive.items():
        line.topics.setdefault(topic_id, Life(max(offset, 0), FOREVER))
        line.names[topic_id] = topic.name
        line.gene_specs[topic_id] = topic.gene
        line.queue_counts[topic_id] = topic.queue_count
        if topic.internal:
            line.internal.add(topic_id)
    for number, life in line.topics.items():
        if life.died == FOREVER and number not in alive:
            line.topics[number] = life._replace(died=offset)
    groups: dict[int, Group] = {group.group_id: group for group in catalog.groups()}
    line.group_names.update({number: group.name for number, group in groups.items()})
    _note_changes(line.groups, groups, offset)
    subscriptions: dict[tuple[int, int], Subscription] = {}
    every = catalog.subscriptions()
    subscriptions.update({(one.group_id, one.topic_id): one for one in every})
    # A group's own retries come before a subscription to them.
    subscriptions.update({(one.group_id, one.retry_topic_id): one for one in every})
    _note_changes(line.subscriptions, subscriptions, offset)
    retentions_ms: dict[int, int] = dict(catalog.retentions_ms.items())
    _note_changes(line.retentions_ms, retentions_ms, offset)


def _note_changes(log: dict[K, list[tuple[int, V | None]]], now: dict[K, V], offset: int) -> None:
    for key, value in now.items():
        changes = log.setdefault(key, [])
        if not changes or changes[-1][1] != value:
            changes.append((offset, value))
    for key, changes in log.items():
        if key not in now and changes[-1][1] is not None:
            changes.append((offset, None))
