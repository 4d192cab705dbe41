"""Groups that begin anew in a topic, as the naive reading of a log (`chaos.log_model`) knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from chaos.log_parts.entries import Entry
from chaos.log_parts.order import Turns
from chaos.log_parts.owners import Owners
from hourwheel.internal.v1.state_pb2 import Subscription, SubscriptionReset

Places = dict[int, set[tuple[int, int]]]


class Reading(Protocol):
    """What is changed by it."""

    topics: dict[int, str]
    deleted: dict[int, str]
    owners: Owners
    queues: dict[int, list[Entry]]
    starts: dict[int, int]
    resolved: dict[tuple[int, int], set[int]]
    held: dict[tuple[int, int, int], tuple[int, int]]
    done: Places
    passed: Places
    turns: Turns
    subscriptions: list[Subscription]


@dataclass
class Resets:
    """What is left of the time before them."""

    letters: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """(group, topic) -> sequences of dead letters that were there when the group began anew last:
    their messages come again beside them."""
    done: list[SubscriptionReset] = field(default_factory=list)
    """Those that had an effect, in log order."""

    def begin_anew(
        self,
        reading: Reading,
        delete_topic: Callable[[int], object],
        letters_of: Callable[[int], list[int]],
        reset: SubscriptionReset,
    ) -> bool:
        """Void: the group does not read the topic, or what takes its retries is another."""
        group, topic, fresh = reset.group_id, reset.topic_id, reset.retry_topic_id
        found = [
            one
            for one in reading.subscriptions
            if (one.group_id, one.topic_id, one.retry_topic_id)
            == (group, topic, reset.former_retry_topic_id)
        ]
        topics = reading.topics
        if not found or topics[topic].startswith("%"):
            return False
        if not reading.owners.is_free(fresh, topics, reading.deleted):
            return False
        self.done.append(reset)
        self.letters[group, topic] = letters_of(group)
        name = topics[found[0].retry_topic_id]
        delete_topic(found[0].retry_topic_id)
        assert reading.owners.take(fresh, name, topics, reading.deleted)
        topics[fresh] = name
        again = Subscription()
        again.CopyFrom(found[0])
        again.retry_topic_id = fresh
        reading.subscriptions.append(again)
        positions = dict(zip(reset.topic_queues, reset.positions, strict=True))
        for queue in [one for one in reading.queues if one >> 8 == topic]:
            start, end = reading.starts.get(queue, 0), len(reading.queues[queue])
            first = min(positions.get(queue, 0), end)
            _begin_at(reading, group, queue, first if first > start else 0)
        return True


def _begin_at(reading: Reading, group: int, queue: int, first: int) -> None:
    reading.resolved[group, queue] = set(range(first))
    reading.turns.floors.pop((group, queue), None)
    for place in [one for one in reading.held if one[:2] == (group, queue)]:
        del reading.held[place]
    for places in (reading.done, reading.passed):
        places[group] = {one for one in places.get(group, ()) if one[0] != queue}
    reading.passed[group].update((queue, at) for at in range(first))
