"""The way of programs that fork to a broker: a bridge process that has the connection for them.

Celery's workers fork: their pool when they start, and again whenever a child has died. gRPC does
not survive that (docs/decisions/0024-clients-and-forks.md). So nothing of it is in these processes.
They speak over a Unix socket with a bridge process, which is started when it is first needed and
ends when no client is connected any more; children share that of their parent. All waiting is done
in the caller's threads, by `poll` and locks, so that gevent and eventlet may patch it.

    bridge = Bridge(Target("127.0.0.1:7400"))
    bridge.call("size", topic="orders", group="celery")
"""

import contextlib
import os
import select
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from hourwheel import errors, limits
from hourwheel.clock import SystemClock
from hourwheel.formats.frames import Frame, cut_frames, pack

VERSION: Final = 4
"""Of what is said; both sides are of one installation, but not always of one start."""
PYTHON_VARIABLE: Final = "HOURWHEEL_PYTHON"
"""Of the environment: the interpreter of the bridge process, where it cannot be found."""
CALL_TIMEOUT_S: Final = 150.0
"""Longer than a producer tries a batch."""
_BACKLOG: Final = 64
_CHUNK_BYTES: Final = 1 << 18
_PYTHONS: Final = ("python", "pypy")
_STARTED: Final[list[subprocess.Popen[bytes]]] = []
_OPEN: Final["weakref.WeakSet[Bridge]"] = weakref.WeakSet()
_clock: Final = SystemClock()
_starting = threading.Lock()


@dataclass(frozen=True)
class Target:
    """Which cluster, and as which principal."""

    servers: str
    """host:port, several with commas between."""
    user: tuple[str, str] | None = None
    tls: dict[str, str | None] | bool | None = None
    """Arguments of `hourwheel.Tls`."""
    invisible_ms: int = 0
    """See `LeasedQueue`."""
    connect_ms: int = 5_000
    """How long a node may take to answer at first."""


class Bridge:
    """A connection to the bridge process. Methods may be called from any thread of its process."""

    def __init__(self, target: Target, socket_: socket.socket | None = None) -> None:
        """Connect, by `socket_` or to a bridge process, which is started if there is none.

        Raises:
            Unavailable: no node answers.
            HourwheelError: a node answers, and not as it should.
        """
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._is_reading = False
        self._bells: dict[threading.Lock, int | None] = {}
        """Of those who wait while another one reads, with what they wait for: see `_wait`."""
        self._pushed: deque[Frame] = deque()
        self._answers: dict[int, Frame] = {}
        self._expected: set[int] = {0}
        """Numbers whose answers somebody waits for; later ones are dropped."""
        self._number = 0
        self._received = bytearray()
        self._failure: errors.HourwheelError | None = None
        self._socket = socket_ or _connect()
        _OPEN.add(self)
        hello = {"version": VERSION, **asdict(target)}
        try:
            self._exchange(0, Frame(hello))
        except BaseException:
            self.close()
            raise

    def call(self, operation: str, body: bytes = b"", **arguments: Any) -> Frame:
        """The bridge process's answer.

        Raises:
            MessageTooLarge: `body` is.
            Unavailable: the bridge process is gone.
            HourwheelError: as the bridge process has it.
        """
        if len(body) > limits.MESSAGE_BODY_BYTES_MAX:
            raise errors.MessageTooLarge(
                f"a message of {len(body)} bytes; {limits.MESSAGE_BODY_BYTES_MAX} are possible"
            )
        with self._state:
            self._number += 1
            number = self._number
            self._expected.add(number)
        return self._exchange(number, Frame({"op": operation, "n": number, **arguments}, body))

    def tell(self, operation: str, **arguments: Any) -> None:
        """As `call`, without an answer. Raises Unavailable."""
        self._send(Frame({"op": operation, **arguments}))

    def find_pushed(self, wait_s: float | None) -> Frame | None:
        """The next message; None: none within `wait_s` (None: for ever).

        Raises:
            HourwheelError: the bridge process is gone, or cannot receive any more.
        """
        frame = self._wait(None, wait_s)
        if frame is not None and "error" in frame.head:
            raise _error_of(frame.head)
        return frame

    def close(self) -> None:
        """End; what is held is given back by the bridge process."""
        with self._state:
            self._failure = self._failure or errors.Cancelled("the connection is closed")
            self._ring()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """In a child: the connection is the parent's."""
        self._failure = errors.Forked("the connection belongs to the parent process")
        self._state, self._sending = threading.Lock(), threading.Lock()
        self._socket.close()

    def _send(self, frame: Frame) -> None:
        raw = pack(frame)
        try:
            with self._sending:
                if self._failure is not None:
                    raise self._failure
                self._socket.sendall(raw)
        except OSError as error:
            raise errors.Unavailable(f"the bridge process is gone: {error}") from None

    def _exchange(self, number: int, frame: Frame) -> Frame:
        """Send it; the answer with this number."""
        try:
            self._send(frame)
            answer = self._wait(number, CALL_TIMEOUT_S)
        finally:
            with self._state:
                self._expected.discard(number)
                self._answers.pop(number, None)
        if answer is None:
            raise errors.Timeout("the bridge process does not answer")
        if "error" in answer.head:
            raise _error_of(answer.head)
        return answer

    def _wait(self, number: int | None, wait_s: float | None) -> Frame | None:
        """Wait for an answer, or (None) for what is pushed, and take it; None: not in this time.

        One of those who wait reads for all, until it has its own. It rings for those whose answers
        come, and as it leaves it rings for one that may read on.
        """
        until_ms = None if wait_s is None else _clock.monotonic_ms() + wait_s * 1_000
        try:
            while True:
                left_s = None if until_ms is None else (until_ms - _clock.monotonic_ms()) / 1_000
                bell: threading.Lock | None = None
                with self._state:
                    if self._is_there(number):
                        return self._pushed.popleft() if number is None else self._answers[number]
                    if self._failure is not None:
                        raise self._failure
                    if left_s is not None and left_s <= 0:
                        return None
                    if self._is_reading:
                        bell = threading.Lock()
                        bell.acquire()
                        self._bells[bell] = number
                    else:
                        self._is_reading = True
                if bell is None:
                    self._read(left_s)
                else:
                    self._listen(bell, left_s)
        finally:
            self._let_another_read()

    def _is_there(self, number: int | None) -> bool:
        return bool(self._pushed) if number is None else number in self._answers

    def _listen(self, bell: threading.Lock, wait_s: float | None) -> None:
        try:
            bell.acquire(timeout=-1 if wait_s is None else wait_s)
        finally:
            with self._state:
                self._bells.pop(bell, None)

    def _ring(self) -> None:
        """For all whose wait is over."""
        for bell, number in list(self._bells.items()):
            if self._failure is not None or self._is_there(number):
                del self._bells[bell]
                bell.release()

    def _let_another_read(self) -> None:
        with self._state:
            if not self._is_reading and self._bells:
                self._bells.popitem()[0].release()

    def _read(self, wait_s: float | None) -> None:
        """Take in for all what comes within this time."""
        frames: list[Frame] = []
        failure: errors.HourwheelError | None = None
        try:
            frames = self._read_some(wait_s)
        except OSError as error:
            failure = errors.Unavailable(f"the bridge process is gone: {error}")
        except errors.Internal as error:
            failure = error
        finally:
            with self._state:
                self._is_reading = False
                if self._failure is None:
                    self._failure = failure
                for frame in frames:
                    self._take(frame)
                self._ring()

    def _take(self, frame: Frame) -> None:
        number = frame.head.get("n")
        if number is None:
            self._pushed.append(frame)
        elif number in self._expected:
            self._answers[number] = frame

    def _read_some(self, wait_s: float | None) -> list[Frame]:
        """What has come within this time, if a frame is complete. Raises OSError, Internal."""
        if not _is_readable(self._socket, wait_s):
            return []
        chunk = self._socket.recv(_CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError("it has closed the connection")
        self._received += chunk
        return cut_frames(self._received)


def _is_readable(one: socket.socket, wait_s: float | None) -> bool:
    """Whether there is something to read, or the end, within this time.

    By `poll`, for `select` knows no descriptor above 1,023, and a program with as many connections
    has them. eventlet takes `poll` away, and its own `select` knows all descriptors.
    """
    if not hasattr(select, "poll"):
        return bool(select.select([one], [], [], wait_s)[0])
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return bool(poll.poll(None if wait_s is None else wait_s * 1_000))


def _error_of(head: dict[str, Any]) -> errors.HourwheelError:
    kind = getattr(errors, str(head["error"]), errors.Internal)
    if not (isinstance(kind, type) and issubclass(kind, errors.HourwheelError)):
        kind = errors.Internal
    return kind(head["text"])


# --- the process --------------------------------------------------------------------------------


def _connect() -> socket.socket:
    """To the bridge process of this process, or of its parent; else to a new one."""
    folder = _folder()
    with _starting:
        for pid in (os.getpid(), os.getppid()):
            found = _find_process(folder / f"{pid}.sock")
            if found is not None:
                return found
        return _start_process(folder / f"{os.getpid()}.sock")


def _folder() -> Path:
    """Where bridge processes listen: a folder of this user alone. Raises Unprotected."""
    folder = Path(tempfile.gettempdir()) / f"hourwheel-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise errors.Unprotected(f"{folder} is not a folder of this user alone")
    return folder


def _find_process(path: Path) -> socket.socket | None:
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        ours.connect(str(path))
    except OSError:
        ours.close()
        return None
    return ours


def _start_process(path: Path) -> socket.socket:
    """Start one and connect. It is a session of its own: Ctrl-C is the worker's to see to."""
    for one in [one for one in _STARTED if one.poll() is not None]:
        _STARTED.remove(one)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listening:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        listening.listen(_BACKLOG)
        command = [find_python(), "-m", "hourwheel.integrations.bridge_server"]
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours
                [*command, str(listening.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            raise errors.FailedPrecondition(
                f"{command[0]} cannot be started: {error}; {PYTHON_VARIABLE} names another one"
            ) from None
        _STARTED.append(process)
        found = _find_process(path)
    if found is None:
        raise errors.Unavailable("the bridge process cannot be reached")
    return found


def find_python() -> str:
    """The interpreter for the bridge process: that of this one, if it is one.

    Where Python is embedded in another program, as in uWSGI, `sys.executable` is that program. Then
    it is the one of the installation, or the one that `HOURWHEEL_PYTHON` names.

    Raises:
        FailedPrecondition: there is none.
    """
    if named := os.environ.get(PYTHON_VARIABLE):
        return named
    if Path(sys.executable or "").name.startswith(_PYTHONS):
        return sys.executable
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (Path(sys.prefix, "bin"), Path(sysconfig.get_path("scripts"))):
        for name in (f"python{version}", "python3", "python"):
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    raise errors.FailedPrecondition(
        f"a bridge process needs a Python interpreter, which {sys.executable!r} is not, and there "
        f"is none in {sys.prefix}/bin: name it by the environment variable {PYTHON_VARIABLE}"
    )


def _after_fork() -> None:
    """A child leaves its parent's connections and processes alone."""
    global _starting  # noqa: PLW0603 - a thread that does not exist here may hold it
    _starting = threading.Lock()
    for one in _STARTED:
        one.returncode = 0  # never waited for here
    _STARTED.clear()
    for bridge in list(_OPEN):
        bridge.forget()
    _OPEN.clear()


os.register_at_fork(after_in_child=partial(_after_fork))
