"""kill -9 of a real node under load, again and again: everything that was promised holds.

Each round kills the process at a moment that the seed chooses: under load, while it stops, or while
it starts after another death.

    KILL_ROUNDS=50 KILL_SEED=7 pytest -s tests/cluster/test_kill.py

`make soak` runs 50 rounds of a new seed.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from chaos.message_mix import Mix
from tests.support.reaper import complaints_of, reaping, say

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
ROUNDS: Final = int(os.environ.get("KILL_ROUNDS", "50" if IS_SOAK else "4"))
SEED: Final = int(os.environ.get("KILL_SEED", str(secrets.randbits(32)) if IS_SOAK else "20"))
MOMENTS: Final = ("load", "load", "load", "start", "stop")
EVENTS_MAX: Final = 1_000 if IS_SOAK else 250
"""Answers from one start to the kill, at most."""


async def test_promises_hold_when_the_node_is_killed_again_and_again(tmp_path: Path) -> None:
    mix = Mix(open_max=4_000) if IS_SOAK else Mix()
    async with reaping(tmp_path, SEED, mix=mix) as reaper:
        for number in range(ROUNDS):
            moment = reaper.chooser.choice(MOMENTS)
            await reaper.some_load(EVENTS_MAX)
            if moment == "stop":
                await reaper.kill_while_it_stops()
            else:
                await reaper.kill_soon(20)
            await reaper.look(moment)
            if moment == "start":
                await reaper.kill_while_it_starts()
                await reaper.look("again")
            await reaper.start()
            say(f"round {number + 1}: {reaper.report()}")
    assert reaper.load.given_up == []
    assert complaints_of(tmp_path / "node.log") == []
