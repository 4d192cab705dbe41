"""One system that keeps messages until they are due, as the workloads see it: started, used by one
client in this process, stopped.

Every peer is as durable as it can be told to be: what a call has accepted is on the disk.
"""

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

T = TypeVar("T")
Ids = Sequence[Any]
"""Of published messages, as the peer names them."""

STARTUP_S: Final = 60.0
_STOP_S: Final = 20.0
_RETRY_S: Final = 0.01
TAKE_MAX: Final = 500
"""Messages that a peer without push takes at a time."""
POLL_S: Final = 0.001
"""So long it waits where nothing is due: the best case for those who poll."""


class Peer(ABC):
    """A server, or a library, with one connection. `start`, then the rest, then `stop`."""

    name: ClassVar[str]
    durability: ClassVar[str]
    """What is true of a message when its publish call returns."""

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Serve from the empty `folder`, and connect."""

    @abstractmethod
    def stop(self) -> None:
        """End everything; also after a `start` that failed halfway."""

    @abstractmethod
    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        """Accept a list of messages; their ids, of this call or, pipelined, of earlier ones."""

    def flush(self) -> Ids:
        """Wait for calls under way; ids that no call has given yet."""
        return []

    @abstractmethod
    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        """(time of receipt, bodies) of what falls due, until that time; taken out as it comes."""

    @abstractmethod
    def cancel(self, ids: Ids) -> int:
        """Take messages back; how many really were."""


class ServerProcess:
    """A child process that writes its words into a file."""

    def __init__(self, command: Sequence[str | Path], log_file: Path, **options: Any) -> None:
        """Start it; `options` are those of `subprocess.Popen`."""
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **options,
            )
        self._log_file = log_file

    def until_ready(self, connect: Callable[[], T], errors: type[Exception]) -> T:
        """What `connect` gives, tried until it raises no `errors`.

        Raises:
            RuntimeError: the process has ended, or time is up.
        """
        until_s = time.monotonic() + STARTUP_S
        while True:
            try:
                return connect()
            except errors as error:
                if self._process.poll() is not None or time.monotonic() > until_s:
                    said = self._log_file.read_text(errors="replace")[-2_000:]
                    raise RuntimeError(f"the server does not serve: {said}") from error
            time.sleep(_RETRY_S)

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End it: as asked, then by force."""
        self._process.send_signal(first)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
