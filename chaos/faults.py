"""What is done to a cluster. Each is an async context manager that heals what it did at its end.

async with killed([master]):
    ...                     # it is gone
                            # it serves again
"""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chaos.decay import Decay
from chaos.machine import PowerDisk, Tmpfs
from chaos.network import Link, Network
from chaos.node_process import NodeProcess, members_of

Nodes = Sequence[NodeProcess]
_WAKING_S: Final = 1.0
_MIB: Final = 1 << 20


@asynccontextmanager
async def killed(nodes: Nodes, *, whole: bool = True) -> AsyncIterator[None]:
    """SIGKILL, to all at once; then start them again.

    `whole` False: to the brokers only, whose control processes notice and end by themselves.
    """
    await asyncio.gather(*(node.kill(whole=whole) for node in nodes if node.is_running))
    try:
        yield
    finally:
        await restart(nodes)


async def restart(nodes: Nodes) -> None:
    """Start those that do not run, all at once, and wait until they serve."""
    away = [node for node in nodes if not node.is_running]
    await asyncio.gather(*(node.spawn() for node in away))
    await asyncio.gather(*(node.ready() for node in away))


@asynccontextmanager
async def stopped(nodes: Nodes) -> AsyncIterator[None]:
    """SIGTERM, one after the other, as for an upgrade; then start them again."""
    for node in nodes:
        await node.stop()
    try:
        yield
    finally:
        await restart(nodes)


@asynccontextmanager
async def frozen(nodes: Nodes, *, whole: bool = True) -> AsyncIterator[None]:
    """SIGSTOP, then SIGCONT. `whole` False: the brokers only; their control processes go on."""

    def send(number: signal.Signals) -> None:
        for node in nodes:
            (node.send_all if whole else node.send)(number)

    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)
        await asyncio.sleep(_WAKING_S)
        await restart(nodes)  # those that gave themselves up when they saw how long it had been


@asynccontextmanager
async def cut(network: Network, links: Iterable[Link]) -> AsyncIterator[None]:
    """Lose all that goes these ways."""
    links = list(links)
    await network.cut(links)
    try:
        yield
    finally:
        await network.mend(links)


def alone(node: NodeProcess, others: Nodes) -> list[Link]:
    """Links between a node and the others, both ways."""
    return [link for one in others for link in ((node.node_id, one.node_id), _back(node, one))]


def _back(node: NodeProcess, other: NodeProcess) -> Link:
    return (other.node_id, node.node_id)


def outwards(node: NodeProcess, others: Nodes) -> list[Link]:
    """Links from a node to the others: it hears, and is not heard."""
    return [(node.node_id, one.node_id) for one in others]


def inwards(node: NodeProcess, others: Nodes) -> list[Link]:
    """Links from the others to a node: it is heard, and does not hear."""
    return [_back(node, one) for one in others]


@asynccontextmanager
async def stepped_clock(nodes: Nodes, step_ms: float) -> AsyncIterator[None]:
    """Set the wall clock of nodes that run under `clock_plan` forward or back."""
    for node in nodes:
        node.clock_file.write_text(f"{step_ms}")
    try:
        yield
    finally:
        for node in nodes:
            node.clock_file.unlink(missing_ok=True)


def clock_plan(node: NodeProcess) -> dict[str, Any]:
    """For `NodeProcess.plan`: a node whose wall clock can be set."""
    return {"clock_file": str(node.clock_file)}


def crash_plan(calls: Sequence[str], first: int, effect: str = "kill before") -> dict[str, Any]:
    """For `NodeProcess.plan`: a node that dies at its call number `first` of the system."""
    return {"calls": list(calls), "first": first, "effect": effect}


def fill_disk(folder: Path) -> Path:
    """Fill the disk that `folder` is on to the last byte; the file that takes the room.

    Whatever is given up on it later is free: called again, it takes that, too.
    """
    ballast = folder / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        size = _MIB
        while size:
            try:
                os.write(fd, bytes(size))
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                size //= 2
    finally:
        os.close(fd)
    return ballast


@asynccontextmanager
async def full_disk(node: NodeProcess, disk: Tmpfs, larger_mib: int) -> AsyncIterator[None]:
    """Fill a node's disk to the last byte; then make it so large."""
    ballast = fill_disk(node.data)
    try:
        yield
    finally:
        ballast.unlink()
        disk.resize(larger_mib)
        await restart([node])


@asynccontextmanager
async def full_disks(nodes: Nodes) -> AsyncIterator[None]:
    """Fill the disk of each to the last byte; then make room again."""
    ballasts = [fill_disk(node.data) for node in nodes]
    try:
        yield
    finally:
        for ballast in ballasts:
            ballast.unlink()
        await restart(nodes)


@asynccontextmanager
async def control_killed(node: NodeProcess) -> AsyncIterator[None]:
    """SIGKILL to the control process; its broker ends by itself. Then start the node again."""
    for pid in members_of(node.mark):
        if pid != node.pid:
            os.kill(pid, signal.SIGKILL)
    await node.ended()
    try:
        yield
    finally:
        await restart([node])


@asynccontextmanager
async def frozen_unwatched(node: NodeProcess) -> AsyncIterator[None]:
    """SIGSTOP to a broker, SIGKILL to its control process; then SIGCONT. Then start it again.

    The broker sees that it is alone, and ends. The others do not hear when it has.
    """
    node.send(signal.SIGSTOP)
    for pid in members_of(node.mark):
        if pid != node.pid:
            os.kill(pid, signal.SIGKILL)
    try:
        yield
    finally:
        node.send(signal.SIGCONT)
        await node.ended()
        await restart([node])


@asynccontextmanager
async def low_disks(nodes: Nodes, leave_mib: int) -> AsyncIterator[None]:
    """Leave so much room on the disk of each; then make room again."""
    ballasts = [node.data / "ballast" for node in nodes]
    for ballast in ballasts:
        room = os.statvfs(ballast.parent)
        ballast.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - leave_mib * _MIB)))
    try:
        yield
    finally:
        for ballast in ballasts:
            ballast.unlink()
        await restart(nodes)


@asynccontextmanager
async def decaying(
    nodes: Nodes, decay: Decay, kinds: Iterable[str], flips: int
) -> AsyncIterator[None]:
    """Flip bits in the files of nodes that run; then flip back those that were not repaired.

    Nodes that end by themselves are started again all the while, as a supervisor would.
    """
    for node in nodes:
        for kind in kinds:
            decay.flip(node.data, kind, flips)
    supervisor = asyncio.create_task(_supervise(nodes))
    try:
        yield
    finally:
        supervisor.cancel()
        await asyncio.wait([supervisor])
        decay.undo()
        await restart(nodes)


async def _supervise(nodes: Nodes) -> None:
    while True:
        for node in nodes:
            if not node.is_running:
                await node.spawn()
        await asyncio.sleep(_WAKING_S / 4)


@asynccontextmanager
async def power_failure(nodes: Nodes, disk: PowerDisk) -> AsyncIterator[None]:
    """All nodes' disk forgets what was not durable, in one moment, and all processes end."""
    disk.cut_power(pid for node in nodes for pid in members_of(node.mark))
    await asyncio.gather(*(node.kill() for node in nodes if node.is_running))
    await asyncio.gather(*(node.reaped() for node in nodes))
    disk.take_out()
    disk.power_on()
    try:
        yield
    finally:
        await restart(nodes)
