"""The process beside each broker that keeps the cluster's control plane.

    python -m replication.control --config '{"node_id": ...}'    (ControlConfig, as JSON)

Of its own because a Python process that serves messages stalls now and then for as long as a Raft
leader may be silent, and because a broker that hangs needs somebody who says so.

It ends: on SIGTERM; when its Raft thread dies, or its disk fails; when its parent dies, after it
has reported that to the other nodes; when no broker has been connected for a while. Exit codes: 0
asked to, 2 cannot start, 70 died, 74 no room on the disk to begin. Once it serves, a full disk does
not end it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.event_loops import loop_factory
from replication.control import logs
from replication.control.config import (
    EXIT_CANNOT_START,
    EXIT_NO_ROOM,
    ControlConfig,
    parse,
)
from replication.control.node import ControlNode
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.real_file import fail

EXIT_DIED: Final = 70
_CHECK_S: Final = 0.2
_LOCK_S: Final = 20.0

_log = logging.getLogger(__name__)


async def run(config: ControlConfig) -> int:
    """Serve until the end; the exit code.

    Raises:
        HourwheelError: it cannot start.
    """
    with await _acquire(config):
        return await _serve(config)


async def _acquire(config: ControlConfig) -> DirectoryLock:
    """The directory's lock. The process of a broker that was killed needs a moment to say so.

    No other has it: the broker that started this one has its own directory's. On a machine that
    is very busy that moment is long.
    """
    deadline_s = asyncio.get_running_loop().time() + config.farewell_ms / 1_000 + _LOCK_S
    while True:
        try:
            return DirectoryLock.acquire(config.directory)
        except errors.DirectoryLocked:
            if asyncio.get_running_loop().time() >= deadline_s:
                raise
        await asyncio.sleep(_CHECK_S)


async def _serve(config: ControlConfig) -> int:
    clock = SystemClock()
    node = ControlNode(config, RealDisk(config.directory), clock)
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()
    orphaned = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, requested.set)
    if config.watch_parent:
        _watch_parent(loop, orphaned)
    try:
        await node.start()
    except OSError as error:
        raise errors.ConfigError(f"cannot listen on {config.listen}: {error}") from error
    waits = [
        asyncio.ensure_future(requested.wait()),
        asyncio.ensure_future(orphaned.wait()),
        asyncio.ensure_future(_broker_is_gone(node, clock, config.linger_ms)),
        asyncio.ensure_future(asyncio.wait([node.died])),
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if node.died.done():
        why = node.died.result()
        if isinstance(why, errors.ConfigError):
            await node.close()
            raise why  # it has left the cluster: to start it again is of no use
        _log.critical("control_raft_failed", extra={"error": repr(why)})
        return EXIT_DIED
    if orphaned.is_set():
        await _farewell(node, config.farewell_ms)
    await node.close()
    return 0


def _watch_parent(loop: asyncio.AbstractEventLoop, orphaned: asyncio.Event) -> None:
    """The parent holds the other end of standard input, and writes nothing."""

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            orphaned.set()

    loop.add_reader(sys.stdin.fileno(), readable)


async def _broker_is_gone(node: ControlNode, clock: SystemClock, linger_ms: float) -> None:
    """Return when no broker has been there for so long."""
    while True:
        now_ms = clock.monotonic_ms()
        left_ms = node.link.left_ms
        rest_ms = (now_ms if left_ms is None else left_ms) + linger_ms - now_ms
        if rest_ms <= 0:
            _log.warning("broker_absent")
            return
        await asyncio.sleep(rest_ms / 1_000)


async def _farewell(node: ControlNode, farewell_ms: float) -> None:
    """The parent is dead: report it, and as Raft's leader elect its successor, then go."""
    node.link.cut_off()
    node.tell_peers()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(farewell_ms / 1_000):
            await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; see the top of this file."""
    logs.configure()
    logging.getLogger("pysyncobj").addFilter(is_true_alarm)
    logging.getLogger("pysyncobj.syncobj").addFilter(is_true_alarm)
    try:
        config = parse(sys.argv[1:] if arguments is None else arguments)
        logs.configure(config.log_format, config.log_level, node_id=config.node_id)
        _make_directory(config.directory)
        with asyncio.Runner(loop_factory=loop_factory(config.event_loop)) as runner:
            code = runner.run(run(config))
    except errors.DiskFull as error:
        _log.critical("control_start_no_room", extra={"error": error.message})
        return EXIT_NO_ROOM
    except errors.HourwheelError as error:
        _log.critical("control_process_failed", extra={"error": error.message})
        return EXIT_CANNOT_START
    if code == EXIT_DIED:
        os._exit(code)  # the dead thread may hold anything
    return code


def _make_directory(path: str) -> None:
    try:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fail(error, "make folder", path)


def is_true_alarm(record: logging.LogRecord) -> bool:
    """PySyncObj cries at entries that our journal only hides (see replication.raft.journal)."""
    return "truncating already-applied" not in str(record.msg)
