"""Who works in the load: its groups and consumers, and a publisher for each actor of the mix."""

from collections.abc import Coroutine
from typing import Any, Final

from chaos.actors import (
    clockmaker,
    grocer,
    newsroom,
    postponer,
    pupils,
    ranker,
    redriver,
    rereader,
)
from chaos.actors.clockmaker import Clockmaker
from chaos.actors.grocer import publish_perishables
from chaos.actors.load import Load
from chaos.actors.namer import publish_unique
from chaos.actors.postponer import Postponer
from chaos.actors.pupils import publish_in_order
from chaos.actors.ranker import publish_ranked
from chaos.actors.rereader import Rereader, publish_reread
from chaos.history import History
from chaos.message_mix import Mix
from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Channel

GROUPS: Final = {
    "alpha-all": ("alpha", 64),
    "alpha-few": ("alpha", 3),
    "beta-all": ("beta", 64),
    **{name: (pupils.TOPIC, one.attempts_max) for name, one in pupils.GROUPS.items()},
    **{name: (ranker.TOPIC, one.attempts_max) for name, one in ranker.GROUPS.items()},
    postponer.GROUP: (postponer.TOPIC, postponer.ATTEMPTS_MAX),
    **dict.fromkeys(grocer.GROUPS, (grocer.TOPIC, grocer.ATTEMPTS_MAX)),
    **dict.fromkeys(rereader.GROUPS, (rereader.TOPIC, rereader.ATTEMPTS_MAX)),
    newsroom.PAUSED: (newsroom.TOPIC, newsroom.ATTEMPTS_MAX),
}
"""Name -> (topic, most attempts)."""
CONSUMERS: Final = (
    "alpha-all",
    "alpha-all",
    "alpha-few",
    "beta-all",
    *pupils.READERS,
    *grocer.GROUPS,
    *ranker.GROUPS,
    postponer.GROUP,
    *rereader.READERS,
    newsroom.PAUSED,
)
QUEUES: Final = {
    clockmaker.TOPIC: 1,
    **{
        one.TOPIC: one.QUEUES
        for one in (grocer, newsroom, postponer, pupils, ranker, redriver, rereader)
    },
}
"""Topic of an actor -> its number of queues."""
_RULES: Final = pupils.GROUPS | ranker.GROUPS


def groups_of(mix: Mix) -> dict[str, tuple[str, int]]:
    """The groups that have something to do: name -> (topic, most attempts)."""
    is_used = {
        pupils.TOPIC: mix.has_order,
        grocer.TOPIC: mix.has_expiry,
        ranker.TOPIC: mix.has_priorities,
        postponer.TOPIC: mix.has_bulk_moves,
        rereader.TOPIC: mix.has_resets,
        newsroom.TOPIC: mix.has_broadcasts,
    }
    return {name: of for name, of in GROUPS.items() if is_used.get(of[0], True)}


def settings_of(group: str) -> dict[str, Any]:
    """What is put of it; only what it needs, so that older nodes know all that they are asked."""
    if group in _RULES:
        return _RULES[group]._asdict()
    keeping = {"keeps_expired": True} if group == grocer.KEEPER else {}
    return {"attempts_max": GROUPS[group][1], **keeping}


def work_ms_max(group: str) -> float:
    """How long a consumer of a group is busy with what it got; 0: it is not.

    Of one with limits: so that what it may hold is what it holds.
    """
    if group == rereader.AGAIN:
        return rereader.WORK_MS_MAX
    if group not in _RULES or not _RULES[group].in_flight_max:
        return 0.0
    return ranker.WORK_MS_MAX if group in ranker.GROUPS else pupils.WORK_MS_MAX


def note_rules(group: str, history: History) -> None:
    """Take down what it promises."""
    rules = _RULES.get(group, pupils.Rules())
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
        found.append(publish_perishables(load, producer))
    if mix.has_priorities:
        found.append(publish_ranked(load, producer))
    if mix.has_bulk_moves:
        found.append(Postponer(load, producer, admin).work())
    if mix.has_resets:
        found += [publish_reread(load, producer), Rereader(load, admin).work()]
    if mix.has_order:
        found.append(publish_in_order(load, producer))
    if mix.has_recurrences:
        found.append(Clockmaker(load, admin).work())
    if mix.has_redrives:
        found += [redriver.publish_doomed(load, producer), redriver.redrive(load, admin)]
    if mix.has_broadcasts:
        found += [newsroom.publish_news(load, producer), newsroom.pause_and_resume(load, admin)]
    return found


def watchers(load: Load, channel: Channel, admin: AsyncAdmin) -> list[Coroutine[Any, Any, None]]:
    """Consumers with books of their own. They go on for ever."""
    mix, found = load.mix, list[Coroutine[Any, Any, None]]()
    if mix.has_recurrences:
        watched = AsyncConsumer(
            channel,
            group=clockmaker.GROUP,
            topic=clockmaker.TOPIC,
            unavailable_ms_max=load.hang_s * 1_000,
        )
        found.append(clockmaker.watch(load, watched))
    if mix.has_redrives:
        found.append(redriver.serve(load, channel, admin))
    if mix.has_broadcasts:
        found += [newsroom.listen(load, channel, member) for member in newsroom.MEMBERS]
    return found


def watched_groups(mix: Mix) -> list[str]:
    """Those of the watchers."""
    return [
        *([clockmaker.GROUP] * mix.has_recurrences),
        *([redriver.GROUP] * mix.has_redrives),
        *(newsroom.MEMBER_GROUPS if mix.has_broadcasts else ()),
    ]
