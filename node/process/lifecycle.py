"""A node as a process: signals, exit codes, and the end when it cannot go on.

SIGTERM or SIGINT drains and stops; a second one cuts the draining short. SIGUSR1 only lets another
node be the master, and this one serves on: what a hook before the stop asks for. Who may signal a
process may stop it, so this needs no permission of its own.

After a failed fsync or a broken invariant nothing in memory or on the disk can be trusted: the
process writes a log line and ends at once, with code 70, without tidying up. The next start
recovers from what is durable. Where
a node alone finds a file of its views damaged, that next start comes within the same process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.event_loops import loop_factory
from node.config.model import NodeConfig
from node.process import memory
from node.process.app import Node
from node.telemetry import logs
from storage.files.real_file import NO_ROOM

EXIT_OK: Final = 0
EXIT_DATA: Final = 65
"""What is stored is damaged."""
EXIT_FAILURE: Final = 70
"""A failed fsync, a broken invariant: start again to recover."""
EXIT_DISK: Final = 74
"""The disk is full or failing already at the start."""
EXIT_LOCKED: Final = 75
"""Another process has the data directory."""
EXIT_CONFIG: Final = 78
"""The configuration, or a data directory of another node or version."""

_CODES: Final[tuple[tuple[type[HourwheelError], int], ...]] = (
    (errors.DirectoryLocked, EXIT_LOCKED),
    (errors.StartupError, EXIT_CONFIG),
    (errors.DataLoss, EXIT_DATA),
    (errors.InvariantViolated, EXIT_FAILURE),
    (errors.DiskFull, EXIT_DISK),
    (errors.Internal, EXIT_DISK),
)
SWITCH_S: Final = 0.000_5
"""After so long a thread gives up Python's interpreter to another one that wants it.

Each time the event loop waits for the network, another thread may take the interpreter: that of
merges, or of reading filters. With Python's own 5 ms a timer of the loop came 5.6 ms late (median)
beside a busy thread, with these 0.5 ms 0.7 ms; and a group commit began and ended so much later
beside a busy loop. Two busy threads cost a fifth more processor time so."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_HAND_OVER: Final = signal.SIGUSR1
_LET_GO_S: Final = 20.0
_MENDED_S: Final = 2.0
"""Others of the cluster do not wait for longer to hear that the node has ended."""
_log = logs.get(__name__)


def exit_code(error: HourwheelError) -> int:
    """The exit code for what kept a node from starting."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), EXIT_FAILURE)


def run(config: NodeConfig, ready_file: Path | None = None) -> int:
    """Run a node until a signal stops it; the process's exit code.

    Args:
        config: its configuration.
        ready_file: where to write, as JSON, the addresses and the process's number, once it serves.
    """
    memory.configure()
    sys.setswitchinterval(SWITCH_S)
    telemetry = config.telemetry
    logs.configure(telemetry.log_level, telemetry.log_format, node_id=config.node.id)
    try:
        with asyncio.Runner(loop_factory=loop_factory(config.node.event_loop)) as runner:
            return runner.run(serve(config, ready_file))
    except HourwheelError as error:
        _log.error("node_start_failed", **logs.fields_of(error))
        return exit_code(error)


async def serve(
    config: NodeConfig,
    ready_file: Path | None = None,
    end_process: Callable[[int], None] = os._exit,
) -> int:
    """As `run`, in a running loop.

    Args:
        config: see `run`.
        ready_file: see `run`.
        end_process: ends the process at once with a code.

    Raises:
        HourwheelError: what kept the node from starting.
    """
    stops: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stops.put_nowait, number.name)
    handing_over: list[asyncio.Future[None]] = []

    def hand_over() -> None:
        _log.info("transfer_signal_received")
        if all(one.done() for one in handing_over):  # else it is under way
            handing_over[:] = [_task(node.hand_over())]

    try:
        node = Node(config)
        loop.add_signal_handler(_HAND_OVER, hand_over)
        code = await _serve(node, stops, ready_file)
        while code is None and node.renewal.is_set() and node.can_be_replaced:
            _log.info("node_restarting")
            if ready_file is not None and not ready_file.parent.exists():
                ready_file = None  # the program that waited for it is gone, and its folder, too
            node = Node(config, damage=node.damage)
            code = await _serve(node, stops, ready_file)
    finally:
        for number in (*_SIGNALS, _HAND_OVER):
            loop.remove_signal_handler(number)
    if node.failure.found.done():
        failed = node.failure.found.result()
        _log.critical("node_failed", **logs.fields_of(failed))
        # A node that has left its cluster is not to be started again.
        code = EXIT_CONFIG if isinstance(failed, errors.ConfigError) else EXIT_FAILURE
    if code is None:
        return EXIT_OK
    logs.flush()
    end_process(code)
    return code


async def _serve(node: Node, stops: "asyncio.Queue[str]", ready_file: Path | None) -> int | None:
    """Start, wait for a signal, stop: None after a proper stop, else the code to end at once with.

    After a proper stop `node.renewal` says whether another node is to be started in its place.
    Whatever is under way, a failure of the node ends the waiting; one that serves may be replaced.
    """
    failed = node.failure.found
    stop, starting = _task(stops.get()), _task(node.start())
    try:
        await _first(starting, stop, failed)
        if not starting.done():  # what is open now needs no closing: any crash is survived
            return EXIT_OK
        await starting
        _log.debug("event_loop_chosen", kind=type(asyncio.get_running_loop()).__module__)
        memory.settle_garbage_collector()
        if ready_file is not None:
            _write_ready(ready_file, node)
        renewed = _task(node.renewal.wait())
        await _first(stop, failed, renewed)
        renewed.cancel()
        if failed.done():
            if node.can_be_replaced:
                return await _replace(node)
            if node.failure.mending is not None:
                await asyncio.wait([node.failure.mending], timeout=_MENDED_S)
            return EXIT_FAILURE
        if stop.done():
            node.renewal.clear()
            stop = _task(stops.get())
        stopping = _task(node.stop())
        await _first(stopping, stop, failed)
        if stop.done() and not stopping.done():
            _log.warning("node_stop_forced")
            node.renewal.clear()
            await node.cut_short()
        await _first(stopping, failed)
        if failed.done():
            return EXIT_FAILURE
        await stopping
    finally:
        stop.cancel()
    return None


async def _replace(node: Node) -> int | None:
    """Let go of a node that has failed, for another one to be started in its place."""
    _log.error("views_damaged", **logs.fields_of(node.failure.found.result()))
    node.renewal.set()
    try:
        async with asyncio.timeout(_LET_GO_S):
            await node.stop(grace_ms=0)
    except TimeoutError:
        return EXIT_FAILURE
    return None


async def _first(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _task(work: Coroutine[object, None, Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(work)


def _write_ready(path: Path, node: Node) -> None:
    content = {
        "address": node.address,
        "metrics_address": node.metrics_address,
        "console_address": node.console_address,
        "pid": os.getpid(),
    }
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_text(json.dumps(content))
        beside.replace(path)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _log.error("ready_file_not_written", file=str(path))  # the node serves all the same
