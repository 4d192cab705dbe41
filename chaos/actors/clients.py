"""The clients of the load: its groups and consumers, and a publisher for each part of the mix."""

from collections.abc import Coroutine
from typing import Any, Final

from chaos.actors import (
    broadcasts,
    expiry,
    ordered_keys,
    priorities,
    recurrences,
    redrives,
    reschedules,
    resets,
)
from chaos.actors.dedup_keys import publish_unique
from chaos.actors.expiry import publish_expiring
from chaos.actors.load import Load
from chaos.actors.ordered_keys import publish_in_order
from chaos.actors.priorities import publish_prioritized
from chaos.actors.recurrences import RecurrenceClient
from chaos.actors.reschedules import RescheduleClient
from chaos.actors.resets import ResetClient, publish_before_resets
from chaos.history import History
from chaos.message_mix import Mix
from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Channel

GROUPS: Final = {
    "alpha-all": ("alpha", 64),
    "alpha-few": ("alpha", 3),
    "beta-all": ("beta", 64),
    **{name: (ordered_keys.TOPIC, one.attempts_max) for name, one in ordered_keys.GROUPS.items()},
    **{name: (priorities.TOPIC, one.attempts_max) for name, one in priorities.GROUPS.items()},
    reschedules.GROUP: (reschedules.TOPIC, reschedules.ATTEMPTS_MAX),
    **dict.fromkeys(expiry.GROUPS, (expiry.TOPIC, expiry.ATTEMPTS_MAX)),
    **dict.fromkeys(resets.GROUPS, (resets.TOPIC, resets.ATTEMPTS_MAX)),
    broadcasts.PAUSED: (broadcasts.TOPIC, broadcasts.ATTEMPTS_MAX),
}
"""Name -> (topic, most attempts)."""
CONSUMERS: Final = (
    "alpha-all",
    "alpha-all",
    "alpha-few",
    "beta-all",
    *ordered_keys.READERS,
    *expiry.GROUPS,
    *priorities.GROUPS,
    reschedules.GROUP,
    *resets.READERS,
    broadcasts.PAUSED,
)
QUEUES: Final = {
    recurrences.TOPIC: 1,
    **{
        one.TOPIC: one.QUEUES
        for one in (expiry, broadcasts, reschedules, ordered_keys, priorities, redrives, resets)
    },
}
"""Topic of an actor -> its number of queues."""
_RULES: Final = ordered_keys.GROUPS | priorities.GROUPS


def groups_of(mix: Mix) -> dict[str, tuple[str, int]]:
    """The groups that have something to do: name -> (topic, most attempts)."""
    is_used = {
        ordered_keys.TOPIC: mix.has_order,
        expiry.TOPIC: mix.has_expiry,
        priorities.TOPIC: mix.has_priorities,
        reschedules.TOPIC: mix.has_bulk_moves,
        resets.TOPIC: mix.has_resets,
        broadcasts.TOPIC: mix.has_broadcasts,
    }
    return {name: of for name, of in GROUPS.items() if is_used.get(of[0], True)}


def settings_of(group: str) -> dict[str, Any]:
    """What is put of it; only what it needs, so that older nodes know all that they are asked."""
    if group in _RULES:
        return _RULES[group]._asdict()
    keeping = {"keeps_expired": True} if group == expiry.KEEPER else {}
    return {"attempts_max": GROUPS[group][1], **keeping}


def work_ms_max(group: str) -> float:
    """How long a consumer of a group is busy with what it got; 0: it is not.

    Of one with limits: so that what it may hold is what it holds.
    """
    if group == resets.AGAIN:
        return resets.WORK_MS_MAX
    if group not in _RULES or not _RULES[group].in_flight_max:
        return 0.0
    return priorities.WORK_MS_MAX if group in priorities.GROUPS else ordered_keys.WORK_MS_MAX


def note_rules(group: str, history: History) -> None:
    """Take down what it promises."""
    rules = _RULES.get(group, ordered_keys.Rules())
    if rules.order != "none":
        history.ordered.add(group)
    if rules.in_flight_max:
        history.limits[group] = (rules.in_flight_max, rules.per_second_max)


def publishers(
    load: Load, producer: AsyncProducer, admin: AsyncAdmin
) -> list[Coroutine[Any, Any, None]]:
    """Each ends when there shall be no more messages."""
    mix, found = load.mix, list[Coroutine[Any, Any, None]]()
    if mix.unique_names:
        found.append(publish_unique(load, producer))
    if mix.has_expiry:
        found.append(publish_expiring(load, producer))
    if mix.has_priorities:
        found.append(publish_prioritized(load, producer))
    if mix.has_bulk_moves:
        found.append(RescheduleClient(load, producer, admin).work())
    if mix.has_resets:
        found += [publish_before_resets(load, producer), ResetClient(load, admin).work()]
    if mix.has_order:
        found.append(publish_in_order(load, producer))
    if mix.has_recurrences:
        found.append(RecurrenceClient(load, admin).work())
    if mix.has_redrives:
        found += [redrives.publish_rejected(load, producer), redrives.redrive(load, admin)]
    if mix.has_broadcasts:
        found += [
            broadcasts.publish_broadcast(load, producer),
            broadcasts.pause_and_resume(load, admin),
        ]
    return found


def watchers(load: Load, channel: Channel, admin: AsyncAdmin) -> list[Coroutine[Any, Any, None]]:
    """Consumers with books of their own. They go on for ever."""
    mix, found = load.mix, list[Coroutine[Any, Any, None]]()
    if mix.has_recurrences:
        watched = AsyncConsumer(
            channel,
            group=recurrences.GROUP,
            topic=recurrences.TOPIC,
            unavailable_ms_max=load.hang_s * 1_000,
        )
        found.append(recurrences.watch(load, watched))
    if mix.has_redrives:
        found.append(redrives.serve(load, channel, admin))
    if mix.has_broadcasts:
        found += [broadcasts.listen(load, channel, member) for member in broadcasts.MEMBERS]
    return found


def watched_groups(mix: Mix) -> list[str]:
    """Those of the watchers."""
    return [
        *([recurrences.GROUP] * mix.has_recurrences),
        *([redrives.GROUP] * mix.has_redrives),
        *(broadcasts.MEMBER_GROUPS if mix.has_broadcasts else ()),
    ]
