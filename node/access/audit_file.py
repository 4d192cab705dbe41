"""The audit log in a file of its own: one JSON object a line, appended by a thread.

The file may be renamed at any time, as logrotate does: the next event makes a new one. Nothing
here stops the node or makes a call wait: what the file cannot take, for want of room or because the
disk is slow, goes to the log, and the log says that the file failed. The lines are not synced: they
survive the end of the process, and not a machine without power.
"""

import errno
import json
import os
import queue
import stat
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.types import NodeId
from node.access.audit import AuditEvent, log_event
from node.telemetry import logs

QUEUE_MAX: Final = 4_096
"""Events that wait to be written."""
_BATCH_MAX: Final = 256
_CLOSE_S: Final = 2.0
_SECOND_MS: Final = 1_000
_MODE: Final = 0o640
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_log = logs.get(__name__)


class AuditFile:
    """`write` takes an event, `close` ends it."""

    def __init__(
        self,
        path: str,
        node_id: NodeId,
        queue_max: int = QUEUE_MAX,
        note: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Open it, and begin to write.

        Args:
            path: of the file; made where it is not there.
            node_id: on each line.
            queue_max: events that wait at most.
            note: gets whether the file fails, when that changes. Called in another thread, too.

        Raises:
            ConfigError: it cannot be opened, other than for want of room.
        """
        self._path, self._node_id = Path(path), node_id
        self._queue: queue.Queue[AuditEvent | None] = queue.Queue(queue_max)
        self._fd: int | None = None
        self._is_failing, self._note = False, note
        try:
            self._fd = _open(self._path)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                key = "access.audit_file"
                raise errors.ConfigError(
                    f"{key} = {path!r}: cannot be written: {error.strerror}", key=key, value=path
                ) from error
            self._fail(error)
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, event: AuditEvent) -> None:
        """Append it soon; where too many wait, it goes to the log."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            log_event(event)

    def close(self) -> None:
        """Write what waits, and end; a disk that does not answer is not waited for."""
        try:
            self._queue.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        is_over = False
        while not is_over:
            found = [self._queue.get()]
            while len(found) < _BATCH_MAX and not self._queue.empty():
                found.append(self._queue.get())
            is_over = None in found
            batch = [event for event in found if event is not None]
            if batch:
                self._append(batch)
        self._leave()

    def _append(self, batch: Sequence[AuditEvent]) -> None:
        try:
            _write_all(self._find_file(), b"".join(map(self._line, batch)))
        except OSError as error:
            self._leave()
            self._fail(error)
            for event in batch:
                log_event(event)
            return
        if self._is_failing:
            self._is_failing = False
            self._note(False)
            _log.info("audit_file_recovered", file=str(self._path))

    def _fail(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._note(True)
            _log.error("audit_file_failed", file=str(self._path), error=error.strerror)

    def _line(self, event: AuditEvent) -> bytes:
        at = datetime.fromtimestamp(event.time_ms / _SECOND_MS, UTC)
        fields = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": "call_audited",
            "node_id": self._node_id,
            **event._asdict(),
        }
        return json.dumps(fields).encode() + b"\n"

    def _find_file(self) -> int:
        """The file that has the name now."""
        if self._fd is not None:
            try:
                is_same = os.path.samestat(self._path.stat(), os.fstat(self._fd))
            except FileNotFoundError:
                is_same = False
            if is_same:
                return self._fd
            self._leave()
        self._fd = _open(self._path)
        return self._fd

    def _leave(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _open(path: Path) -> int:
    """To append; a line that somebody did not finish is ended."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        found = os.fstat(fd)
        _check_is_file(found)
        if found.st_size and os.pread(fd, 1, found.st_size - 1) != b"\n":
            _write_all(fd, b"\n")
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_is_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _write_all(fd: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(fd, raw) :]
