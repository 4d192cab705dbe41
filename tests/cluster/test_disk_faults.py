"""Crashes at chosen calls of the operating system, failing syncs, and disks without room."""

import os
import secrets
from pathlib import Path
from typing import Final

from node.lifecycle import EXIT_DISK, EXIT_FAILURE
from tests.support.faulty_node import NAMES, ROOM, SYNCS, WRITES, Effect, Fault, injectors
from tests.support.machine import can_lose_power, power_disk
from tests.support.reaper import complaints_of, events_of, reaping, say

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SEED: Final = int(os.environ.get("FAULT_SEED", str(secrets.randbits(32)) if IS_SOAK else "7"))
CRASHES: Final = int(os.environ.get("FAULT_ROUNDS", "40" if IS_SOAK else "6"))

POWER_FAILURES: Final = int(os.environ.get("POWER_FAILURES", "30" if IS_SOAK else "3"))

CRASH_POINTS: Final[tuple[tuple[tuple[str, ...], tuple[Effect, ...], int], ...]] = (
    (SYNCS, ("kill before", "kill after"), 80),
    (NAMES, ("kill before", "kill after"), 12),
    (WRITES, ("kill before", "torn", "kill after"), 80),
    (ROOM, ("kill before", "torn", "kill after"), 80),
)
"""Which calls, what happens at one of them, and which is the last one that it may happen at."""


async def test_promises_hold_when_the_process_dies_at_any_call(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED) as reaper:
        await reaper.some_load(50)
        await reaper.kill_soon(0)
        for number in range(CRASHES):
            calls, effects, at_most = CRASH_POINTS[number % len(CRASH_POINTS)]
            first = 1 + int(at_most * reaper.chooser.random() ** 2)
            fault = Fault(calls, reaper.chooser.choice(effects), first)
            reaper.node.fault = fault
            say(f"{fault}")
            assert await reaper.die() == -9
            await reaper.look(f"{fault.calls[0]} {fault.effect}")
        await reaper.start()
    assert complaints_of(tmp_path / "node.log") == []


async def test_process_ends_when_a_sync_fails(tmp_path: Path) -> None:
    for injector in injectors():
        folder = tmp_path / injector
        folder.mkdir()
        async with reaping(folder, SEED) as reaper:
            await reaper.some_load(50)
            await reaper.kill_soon(0)
            for first in (reaper.chooser.randint(3, 40), reaper.chooser.randint(3, 40)):
                reaper.node.fault = Fault(("fdatasync",), "EIO", first, injector=injector)
                say(f"{reaper.node.fault}")
                code = await reaper.die()
                assert code in {EXIT_FAILURE, EXIT_DISK}
                await reaper.look(f"{injector} {code}")
            await reaper.start()
        said = complaints_of(folder / "node.log")
        assert {one["error_type"] for one in said} == {"FsyncFailed"}
        assert len(said) == 2


async def test_node_goes_on_when_there_was_no_room_for_a_while(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED) as reaper:
        for _ in range(2):
            assert await reaper.node.stop() == 0
            first = reaper.chooser.randint(20, 60)
            reaper.node.fault = Fault(ROOM, "ENOSPC", first, first + reaper.chooser.randint(1, 20))
            say(f"{reaper.node.fault}")
            await reaper.node.start()
            await reaper.some_load(300)
            reaper.node.fault = None
    said = [one["event"] for one in events_of(tmp_path / "node.log")]
    assert said.count("messages are refused: the disk is full") >= 2
    assert "messages are accepted" in said


async def test_promises_hold_when_the_power_fails(tmp_path: Path) -> None:
    if not can_lose_power():
        say("no power failures: this machine cannot mount and shut down a file system")
        return
    with power_disk(tmp_path, 256) as disk:
        async with reaping(tmp_path, SEED, directory=disk.path / "data") as reaper:
            for _ in range(POWER_FAILURES):
                await reaper.some_load(250)
                disk.cut_power()
                code = await reaper.node.ended()
                assert code == EXIT_FAILURE
                disk.take_out()
                disk.power_on()
                await reaper.look(f"power failure {code}")
                await reaper.start()
