"""Chaos in small: one kill and one stop of a real cluster's master, with permissions that change,
and the checker finds nothing.

What takes part: `runner`, `stage`, `workload`, `autopsy` and the checkers. More of it:
`python -m chaos`, see docs/CHAOS.md.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from chaos.actors import broadcasts, expiry, ordered_keys, priorities, reschedules, resets
from chaos.faults import frozen
from chaos.history import History
from chaos.message_mix import QUICK_MIX
from chaos.runner import Options, Result, find_obstacle, play
from chaos.scenarios import SCENARIOS, Scenario
from chaos.stage import Stage
from chaos.voters import revoke
from hourwheel.outcomes import DedupOutcome
from tests.support.reaper import say

SEED: Final = 5
IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
KEYED_MIN: Final = 150
OCCURRENCES_MIN: Final = 20
RESETS_MIN: Final = 8
LATE_MS: Final = 20_000.0
"""How long a grant may live on where the machine is very busy; the second that is promised is what
`python -m chaos` looks for."""
LOOK_MS: Final = 2_000.0
"""A look through the whole history costs as much as some events of the load."""
SLOW_MIX: Final = replace(QUICK_MIX, pace=2.5, stream_callers=1, batch_messages=30, unique_names=3)
"""Three nodes, and all actors at once: of that a busy machine has enough. Calls that take a second
still meet a pending message with their dedup key."""
DEFAULTS: Final = {"rounds": 1, "mix": QUICK_MIX, "hang_s": 180.0, "keeps_all": True}


async def revoke_and_freeze(stage: Stage) -> None:
    """The master is killed while a permission is taken away, the next one is stopped."""
    await revoke(stage)
    node = await stage.master()
    await stage.ends_mastership("SIGSTOP, whole", [node], frozen([node]))
    for _ in range(int(stage.load.hang_s * 1_000 / LOOK_MS)):  # what is missing then is named
        if not list(_unseen(stage.load.history)):
            return
        await stage.pass_ms(LOOK_MS)


async def played(scenario: Scenario, folder: Path, **options: object) -> Result:
    result = await play(
        scenario,
        SEED,
        Options(folder, **{**DEFAULTS, **options}),  # type: ignore[arg-type]
        say,
    )
    say(result.report())
    return result


async def long_calm(stage: Stage) -> None:
    """Only load, until there was enough of what comes slowly."""
    history = stage.load.history
    await stage.load.wait_for(
        lambda: (
            len(history.keys) >= KEYED_MIN
            and len(history.occurrences) >= OCCURRENCES_MIN
            and len(history.resets) >= RESETS_MIN
        )
    )


SMOKE: Final = Scenario("smoke", "one kill, one stop", revoke_and_freeze, 1, is_guarded=True)
PLAYED: Final = (SMOKE, SCENARIOS["replace"], SCENARIOS["grow"]) if IS_SOAK else (SMOKE,)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda one: one.name)
async def test_promises_hold_whatever_is_done_to_nodes(tmp_path: Path, scenario: Scenario) -> None:
    """With TLS and users: what a principal asks for when its permission is gone is refused."""
    assert not find_obstacle(scenario, is_guarded=True), "no openssl: no test, no pass"
    result = await played(scenario, tmp_path, revoked_ms=LATE_MS, mix=SLOW_MIX)
    assert result.is_good, result.report()
    assert result.operations > 1_000
    if scenario is SMOKE:
        assert len(result.failovers_ms) == len(result.history.faults) == 2
        assert {call.is_ok for call in result.history.guest_calls} == {True, False}
        assert not list(_unseen(result.history))


def _unseen(history: History) -> Iterator[str]:
    """What of all that the load is made of has not been under the faults yet."""
    for group in (*ordered_keys.GROUPS, *priorities.GROUPS, reschedules.GROUP, *resets.GROUPS):
        if len({one.epoch for one in history.deliveries if one.group == group}) < 2:
            yield f"{group} in two masterships"
    came = Counter(one.serial for one in history.deliveries if one.group == resets.AGAIN)
    ranked = {history.ranks.get(one.serial or 0) for one in history.deliveries}
    kept = {one.serial for one in history.deliveries if one.group == expiry.KEEPER}
    living = {serial for serial, life_ms in history.lives.items() if life_ms}
    # Committed, rolled back, and of both some by the check-back.
    fates = {
        (number % 5, serials[0] in history.accepted) for number, serials in enumerate(history.deals)
    }
    seen = {
        "recurrences": {one.verb for one in history.changes} >= {"put", "delete"},
        "occurrences": len(history.occurrences) > len({one.name for one in history.occurrences}),
        "dedup keys": {one.outcome for one in history.uniques} > {DedupOutcome.PUBLISHED},
        "resets": any(one.positions for one in history.resets),
        "messages that come again and again": max(came.values(), default=0) > 2,
        "dead letters in two masterships": len({one.epoch for one in history.chances}) > 1,
        "re-drives": sum(one.redriven_count for one in history.redrives) > 10,
        "broadcasts": {one.member for one in history.heard} == set(broadcasts.MEMBERS),
        "pauses": {one.is_paused for one in history.pauses} == {True, False},
        "priorities": len(ranked - {None}) > 3,
        "messages that did not expire": kept & living,
        "messages that expired": living & history.accepted.keys() - kept,
        "transactions": fates >= {(0, True), (0, False), (1, False), (2, True)},
    }
    yield from (name for name, is_seen in seen.items() if not is_seen)


SCENES: Final = SCENARIOS | {"long": Scenario("long", "nothing goes wrong", long_calm, 1)}
BUGS: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "acknowledge before fsync": ("power", ("n1",), "lost"),
    "truncate at the high watermark": ("master-last", ("n1", "n2", "n3"), "lost"),
    "drop a slot": ("calm", ("n1",), "views and log differ"),
    "tick early": ("calm", ("n1",), "early"),
    "dispatch twice": ("calm", ("n1",), "attempt"),
    "forget the order": ("long", ("n1",), "order"),
    "hold any number": ("long", ("n1",), "in flight"),
    "forget expiries": ("long", ("n1",), "expired"),
    "lowest first": ("long", ("n1",), "priority"),
    "leave one unmoved": ("long", ("n1",), "reschedule"),
    "repeat an occurrence": ("long", ("n1",), "occurrence twice"),
    "leave out an occurrence": ("long", ("n1",), "occurrence lost"),
    "keep what was done": ("long", ("n1",), "not again"),
    "let old receipts count": ("long", ("n1",), "void receipt"),
    "leave one dead": ("long", ("n1",), "not re-driven"),
    "begin with now": ("long", ("n1",), "missed by a member"),
    "serve paused groups": ("long", ("n1",), "while paused"),
}
"""Bug of tests/support/buggy_node.py -> (scenario, nodes, one of the violations that follow)."""


SOUGHT: Final = tuple(BUGS) if IS_SOAK else ("drop a slot", "dispatch twice")
"""All in `make soak`: each takes up to a minute."""


@pytest.mark.parametrize("bug", SOUGHT)
async def test_bug_is_found_when_nodes_have_one(tmp_path: Path, bug: str) -> None:
    name, nodes, violation = BUGS[bug]
    assert not find_obstacle(SCENES[name]), "this machine cannot play it: no test, no pass"
    result = await played(
        SCENES[name],
        tmp_path,
        nodes=nodes,
        launcher=("tests.support.buggy_node", bug),
        hang_s=20.0 if name == "long" else 6.0,  # the long one waits for what comes slowly
    )
    assert result.failure == ""
    assert violation in {one.name for one in result.violations}


async def test_nothing_is_found_when_the_node_has_no_bug(tmp_path: Path) -> None:
    result = await played(
        SCENARIOS["calm"], tmp_path, nodes=("n1",), launcher=("tests.support.buggy_node", "none")
    )
    assert result.is_good, result.report()
