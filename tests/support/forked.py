"""Processes of Python programs, forked from one that has imported everything already.

    code, out, problems = await forked.run("hourwheel.cli", ["status"], {...})
    use_for_nodes()             # from now on each `ChildNode` of this process starts so

To import the server takes most of a second of the processor, and the tests start hundreds of nodes.
A parent is started when it is needed first; it imports what its children need, uses none of it, and
then only forks. A child is a process like any other: of its own session, with the environment and
the arguments that it is given, killed and waited for as always. That `python -m node` and the
commands begin as they should by themselves is tested where they are run: by chaos, by faulty nodes,
from the wheel, from the chart, by `hourwheel cluster up`.

What goes over the parent's socket: a request, with the child's three standard streams and one end
of a socket, over which its number comes, and in the end how it ended.
"""

import array
import asyncio
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from node.process.subprocess_node import ChildNode
from replication.control.launcher import ControlProcess

ROOT: Final = Path(__file__).resolve().parents[2]
PRELOADED: Final = ("node.process.command", "replication.control.process", "hourwheel.cli.app")
_REQUEST_BYTES_MAX: Final = 1 << 17
_FD_COUNT: Final = 4
_NUMBER: Final = struct.Struct("<i")
_READY: Final = b"r"
_STARTED: Final[list[subprocess.Popen[bytes]]] = []
"""By this process: nobody waits for it."""
_INHERITED: Final[list[socket.socket]] = []
"""In a child: a socket to the parent, which it was given."""


class Child:
    """As much of `asyncio.subprocess.Process` as tests use. On the loop that it was started in."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.stdin: BinaryIO | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._status = status
        self._loop.add_reader(status, self._on_end)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Until it ends."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError where it has ended."""
        if self._ended.done():
            raise ProcessLookupError
        with contextlib.suppress(ProcessLookupError):  # just ended; its parent tells of it next
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM, as `send_signal`."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as `send_signal`."""
        self.send_signal(signal.SIGKILL)

    def _on_end(self) -> None:
        raw = b""
        with contextlib.suppress(OSError):
            raw = self._status.recv(_NUMBER.size)
        self._loop.remove_reader(self._status)
        self._status.close()
        if self.stdin is not None:
            self.stdin.close()
        if not self._ended.done():
            # Without a number the parent has died, and its children with it.
            self._ended.set_result(_NUMBER.unpack(raw)[0] if raw else -signal.SIGKILL)


async def start(
    module: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    streams: Sequence[int],
    cwd: Path = ROOT,
) -> Child:
    """Start `python -m module`.

    Args:
        module: which program.
        arguments: of it.
        environ: the variables of its environment.
        streams: its standard input, output and error, as descriptors.
        cwd: where it works.
    """
    request = json.dumps([module, list(arguments), dict(environ), str(cwd)]).encode()
    ours, its = socket.socketpair()
    with its:
        fds = array.array("i", [*streams, its.fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        _parent().sendmsg([request], rights)
    return Child(_NUMBER.unpack(ours.recv(_NUMBER.size))[0], ours)


async def run(
    module: str, arguments: Sequence[str], environ: Mapping[str, str], stdin: bytes = b""
) -> tuple[int, bytes, bytes]:
    """Run `python -m module` to its end: its exit code, and what it wrote on output and error."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        child = await start(module, arguments, environ, [one.fileno() for one in files])
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            raise
        found = []
        for one in files[1:]:
            one.seek(0)
            found.append(one.read())
    return code, found[0], found[1]


def use_for_nodes() -> None:
    """Have nodes that this process starts begin so, and their control processes."""

    async def launch(
        arguments: Sequence[str], environ: Mapping[str, str], log: BinaryIO | None
    ) -> Any:
        return await start("node", arguments, environ, [0, 1, 2 if log is None else log.fileno()])

    async def launch_control(arguments: Sequence[str], log: BinaryIO | None) -> Any:
        its, ours = os.pipe()
        streams = [its, 1, 2 if log is None else log.fileno()]
        try:
            child = await start("replication.control", arguments, os.environ, streams)
        finally:
            os.close(its)
        child.stdin = os.fdopen(ours, "wb")
        return child

    ChildNode.launch = staticmethod(launch)
    ControlProcess.launch = staticmethod(launch_control)


def end() -> None:
    """Nothing more is forked for this process."""
    if _STARTED:
        _parent().close()
        _STARTED[0].kill()
        _STARTED[0].wait()


@cache
def _parent() -> socket.socket:
    """A socket to the parent of what is forked, which ends when nobody has one any more."""
    if _INHERITED:
        return _INHERITED[0]
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
    with its:
        _STARTED.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(its.fileno())],
                cwd=ROOT,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        )
    assert ours.recv(1) == _READY
    return ours


# --- in the parent of what is forked --------------------------------------------------------------


class Parent:
    """Forks as it is asked to, and says how its children end."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = {requests}
        """Of the process of the tests, and of each child, for children of its own."""
        self._children: dict[int, socket.socket] = {}
        self._waker, self._woken = socket.socketpair()
        for one in (self._waker, self._woken):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno())
        requests.send(_READY)

    def serve(self) -> bool:
        """Fork as requested: true in each child, false in the end, when nobody asks any more."""
        while self._requests or self._children:
            readable, _, _ = select.select([*self._requests, self._woken], [], [])
            for one in readable:
                if one is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        one.recv(4_096)
                    self._reap()
                elif self._fork(one):
                    return True
        return False

    def _fork(self, requests: socket.socket) -> bool:
        """Do what is asked for; whether this is the child."""
        raw, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, _FD_COUNT)
        if not raw:  # nobody asks any more
            self._requests.discard(requests)
            requests.close()
            return False
        status = socket.socket(fileno=fds.pop())
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            open_ones = (self._waker, self._woken, status, ours)
            for one in (*open_ones, *self._requests, *self._children.values()):
                one.close()
            _become(fds, its, *json.loads(raw))
            return True
        its.close()
        for fd in fds:
            os.close(fd)
        self._requests.add(ours)
        self._children[pid] = status
        status.send(_NUMBER.pack(pid))
        return False

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._children.pop(pid) as told, contextlib.suppress(OSError):
                told.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(
    fds: list[int],
    requests: socket.socket,
    module: str,
    arguments: list[str],
    environ: dict[str, str],
    cwd: str,
) -> None:
    """In the child: what the system and Python give to a program that is started."""
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [module, *arguments]
    _INHERITED.append(requests)
    use_for_nodes()


def main() -> None:
    """Run as the parent, and in each child as the program that it is to be."""
    for module in PRELOADED:
        import_module(module)
    gc.collect()
    gc.freeze()
    if Parent(socket.socket(fileno=int(sys.argv[1]))).serve():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
