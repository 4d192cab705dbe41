"""Crashes at chosen calls of the operating system, failing syncs, disks without room or power.

FAULT_ROUNDS=60 POWER_FAILURES=50 FAULT_SEED=7 pytest -s tests/cluster/test_disk_faults.py
"""

import os
import secrets
import signal
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from chaos.machine import can_lose_power, power_disk
from chaos.message_mix import QUICK_MIX
from node.process.lifecycle import EXIT_DISK, EXIT_FAILURE
from tests.support.faulty_node import NAMES, ROOM, SYNCS, WRITES, Effect, Fault, Injector, injectors
from tests.support.reaper import complaints_of, events_of, reaping, say

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SEED: Final = int(os.environ.get("FAULT_SEED", str(secrets.randbits(32)) if IS_SOAK else "7"))
CRASHES: Final = int(os.environ.get("FAULT_ROUNDS", "60" if IS_SOAK else "6"))
POWER_FAILURES: Final = int(os.environ.get("POWER_FAILURES", "30" if IS_SOAK else "3"))
ERRORS: Final = max(2, CRASHES // 6)


class Point(NamedTuple):
    """Where a process may die."""

    calls: tuple[str, ...]
    effects: tuple[Effect, ...]
    last: int
    """Number of the last call that it may happen at, counted from the start."""


POINTS: Final = (
    Point(SYNCS, ("kill before", "kill after"), 80),
    Point(NAMES, ("kill before", "kill after"), 12),
    Point(WRITES, ("kill before", "torn", "kill after"), 80),
    Point(ROOM, ("kill before", "torn", "kill after"), 80),
)


async def test_promises_hold_when_the_process_dies_at_any_call(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        await reaper.some_load(50)
        await reaper.kill_soon(0)
        chooser = reaper.chooser
        for number in range(CRASHES):
            calls, effects, last = POINTS[number % len(POINTS)]
            # The early ones are those of a start, and there are few of them.
            first = 1 + int(last * chooser.random() ** 2)
            effect = chooser.choice(effects)
            can_strace = calls == SYNCS and effect == "kill before"
            injector = chooser.choice(injectors() if can_strace else injectors()[:1])
            reaper.node.fault = fault = Fault(calls, effect, first, injector=injector)
            say(f"{fault}")
            assert await reaper.die() == -signal.SIGKILL
            await reaper.look(f"{calls[0]} {effect} {injector}")
        await reaper.start()
    assert complaints_of(tmp_path / "node.log") == []


@pytest.mark.parametrize("injector", injectors())
async def test_process_ends_and_is_sound_again_when_the_disk_fails(
    tmp_path: Path, injector: Injector
) -> None:
    calls = ("fdatasync", "fdatasync", "pwritev") if injector == "patched" else ("fdatasync",)
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        await reaper.some_load(50)
        await reaper.kill_soon(0)
        for number in range(ERRORS):
            first = reaper.chooser.randint(3, 40)
            name = calls[number % len(calls)]
            reaper.node.fault = Fault((name,), "EIO", first, injector=injector)
            say(f"{reaper.node.fault}")
            code = await reaper.die()
            assert code in {EXIT_FAILURE, EXIT_DISK}
            await reaper.look(f"{name} EIO {injector}, exit code {code}")
        await reaper.start()
    said = complaints_of(tmp_path / "node.log")
    assert {one["error_type"] for one in said} <= {"FsyncFailed", "DiskFailed"}
    # A call that waited for the disk tells as well: a Receive for the subscription that it makes.
    assert len([one for one in said if "method" not in one]) == ERRORS


async def test_promises_hold_when_there_was_no_room_for_a_while(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        for _ in range(ERRORS):
            assert await reaper.node.stop() == 0
            first = reaper.chooser.randint(20, 60)
            reaper.node.fault = Fault(ROOM, "ENOSPC", first, first + reaper.chooser.randint(1, 20))
            say(f"{reaper.node.fault}")
            await reaper.node.start()
            await reaper.some_load(300, or_end=True)
            if reaper.node.has_ended:  # without a reserve, what is committed may find no room
                assert await reaper.node.ended() == EXIT_FAILURE
                await reaper.look("no room")
                await reaper.start()
    log = tmp_path / "node.log"
    said = [one["event"] for one in events_of(log)]
    assert "publishes_refused" in said
    assert "publishes_accepted" in said
    assert {one.get("error_type") for one in complaints_of(log)} <= {None, "DiskFull"}


async def test_promises_hold_when_the_power_fails(tmp_path: Path) -> None:
    if not can_lose_power():
        say("no power failures: this machine cannot mount and shut down a file system")
        return
    with power_disk(tmp_path, 512) as disk:
        directory = disk.path / "data"
        async with reaping(tmp_path, SEED, mix=QUICK_MIX, directory=directory) as reaper:
            for _ in range(POWER_FAILURES):
                await reaper.some_load(250)
                disk.cut_power([reaper.node.pid])
                await reaper.node.kill()
                disk.take_out()
                disk.power_on()
                await reaper.look("power failure")
                await reaper.start()
