"""The control process's end of the link to its own broker: a Unix-domain socket.

One broker at a time; a new one replaces the old one. The folder is made for its user alone (0700),
so the operating system says who may connect. The broker is *alive* while it has a connection and
sends frames; silence of `timeout_ms` is death, even if the connection stays: a broker that hangs
must give up mastership. If it speaks again, it lives again.

That a broker is not alive says that it should not be master. That it has *ended* says that it can
be none any more, and is known of its process only, by a `ProcessWatch`:

    kernel's word who connected (SO_PEERCRED) --> a file descriptor of that process (pidfd)
    readable: all its threads have ended

That is proof, because it is about a process and not about a connection: one that is stopped, hangs
or has closed its socket has not ended. Where the number was given to another process before the
descriptor was opened, the first one had ended by then; so whatever is watched instead, its end is
reported too late, never too early. Without the kernel's help (no Linux, a peer in another PID
namespace) no end is ever reported, and leases are waited for.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.internal.v1 import control_link_pb2 as pb
from replication.raft.frames import pack_frame, read_frame
from storage.files.real_file import NO_ROOM

LINK_VERSION: Final = 2
TO_CONTROL_BYTES_MAX: Final = 256 * 1024
"""Cap of a broker's frames."""
TO_BROKER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Cap of a control process's frames: the state is one of them."""
_UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user, group: `struct ucred` of Linux."""

_log = logging.getLogger(__name__)


class LinkHandler(Protocol):
    """What becomes of what the broker says; called on the loop."""

    def on_broker(self, hello: pb.LinkHello) -> None:
        """A broker has connected: tell it everything."""

    def on_frame(self, frame: pb.BrokerFrame) -> None:
        """It says something; not its hello."""

    def on_alive_changed(self) -> None:
        """`BrokerLink.is_alive` has changed."""

    def on_ended(self) -> None:
        """`BrokerLink.ended_boot_id` has changed."""


class ProcessWatch:
    """Whether the process at the other end of a socket has ended; of one process at a time.

    On the event loop's thread. See the top of this file.
    """

    def __init__(self) -> None:
        """Watch none yet."""
        self._descriptor: int | None = None

    def watch(self, peer: Any, on_end: Callable[[], None]) -> None:
        """Call `on_end` once, when the process that connected has ended; forget the former one.

        Args:
            peer: the accepted socket.
            on_end: maybe called before this returns.
        """
        self.close()
        try:
            self._descriptor = _open_process(peer)
        except ProcessLookupError:
            on_end()
            return
        except OSError as error:
            _log.warning("broker_process_not_watched", extra={"error": str(error)})
            return
        if self._descriptor is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._descriptor, self._ended, on_end)

    def _ended(self, on_end: Callable[[], None]) -> None:
        self.close()
        on_end()

    def close(self) -> None:
        """Watch nothing any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def _open_process(peer: Any) -> int | None:
    """A descriptor of the process; None where there are none. Raises OSError."""
    if not hasattr(os, "pidfd_open"):
        return None
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return os.pidfd_open(pid) if pid > 0 else None


class BrokerLink:
    """See the top of this file.

    Attributes:
        hello: of the broker that is or was connected last.
        left_ms: since when no broker is connected, by the monotonic clock; None: one is.
        ended_boot_id: the last incarnation whose process was seen to end; empty: none.
    """

    def __init__(self, handler: LinkHandler, clock: Clock, timeout_ms: float) -> None:
        """Does nothing before `start`."""
        self.hello: pb.LinkHello | None = None
        self.left_ms: float | None = clock.monotonic_ms()
        self.ended_boot_id = b""
        self._watch = ProcessWatch()
        self._handler = handler
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._writer: asyncio.StreamWriter | None = None
        self._heard_ms = 0.0
        self._requested_ms = 0.0
        self._was_alive = False
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        """Listen.

        Raises:
            ConfigError: the folder is somebody else's, or open to others, or the path too long.
            DiskFull: there is no room for the socket.
        """
        try:
            _prepare(path)
            self._server = await asyncio.start_unix_server(self._accepted, path)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise errors.DiskFull(f"no room for the socket {path}", file=path) from error
            raise errors.ConfigError(f"cannot listen on {path}: {error}") from error
        self._path = path

    def close(self) -> None:
        """The end: `cut_off`, and the broker's process is not watched any more."""
        self.cut_off()
        self._watch.close()

    def cut_off(self) -> None:
        """Cut the broker off, who is dead from now on, and listen no more."""
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @property
    def is_alive(self) -> bool:
        """Whether the broker was heard of lately.

        Asked at least every `timeout_ms` / 2. If it was not, this process was the silent one, and
        what the broker said meanwhile lies unread.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._requested_ms > self._timeout_ms / 2:
            self._heard_ms = now_ms
        self._requested_ms = now_ms
        return self._writer is not None and now_ms - self._heard_ms < self._timeout_ms

    def check_alive(self) -> float | None:
        """Tell the handler of a change; when to look again (monotonic ms), if ever."""
        is_alive = self.is_alive
        if is_alive != self._was_alive:
            self._was_alive = is_alive
            if is_alive:
                _log.info("broker_connected")
            else:
                _log.warning("broker_lost")
            self._handler.on_alive_changed()
        return self._heard_ms + self._timeout_ms if is_alive else None

    def send(self, frame: pb.ControlFrame) -> None:
        """Tell the broker, if there is one."""
        writer = self._writer
        if writer is None or writer.is_closing():
            return
        if writer.transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
            writer.transport.abort()
            return
        writer.write(pack_frame(frame.SerializeToString()))

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine: asyncio logs an error of its own where the task of one is cancelled."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("broker_handler_failed", exc_info=error)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = (await self._read(reader)).hello
            _check_hello(hello)
            if self._writer is not None:
                self._writer.transport.abort()
            self._writer, self.hello, self.left_ms = writer, hello, None
            self._heard()
            self._handler.on_broker(hello)
            self._watch.watch(writer.get_extra_info("socket"), partial(self._ended, hello.boot_id))
            while True:
                frame = await self._read(reader)
                if self._writer is not writer:
                    return
                self._heard()
                self._handler.on_frame(frame)
        except errors.InvalidBatch as error:
            _log.warning("broker_link_cut", extra={"error": error.message})
        except (OSError, EOFError):
            pass  # it is over
        finally:
            writer.transport.abort()
            if self._writer is writer:
                self._writer = None
                self.left_ms = self._clock.monotonic_ms()
                self.check_alive()

    def _ended(self, boot_id: bytes) -> None:
        """The process that had said hello has ended."""
        self.ended_boot_id = boot_id
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer, self.left_ms = None, self._clock.monotonic_ms()
        _log.warning("broker_ended")
        self.check_alive()
        self._handler.on_ended()

    async def _read(self, reader: asyncio.StreamReader) -> pb.BrokerFrame:
        raw = await read_frame(reader, TO_CONTROL_BYTES_MAX)
        try:
            frame = pb.BrokerFrame.FromString(raw)
        except Exception as error:  # protobuf's DecodeError has no public home
            raise errors.InvalidBatch("not a frame of a broker") from error
        if frame.WhichOneof("frame") is None:
            raise errors.InvalidBatch("a frame of a kind that is not known")
        return frame

    def _heard(self) -> None:
        self._heard_ms = self._clock.monotonic_ms()
        self.check_alive()


def _prepare(path: Path) -> None:
    """Make the folder, and see that it is ours alone; remove what a killed process left there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise errors.ConfigError(f"{path.parent} has to be this user's alone (mode 0700)")
    path.unlink(missing_ok=True)


def _check_hello(hello: pb.LinkHello) -> None:
    if hello.version != LINK_VERSION or not hello.node_id:
        raise errors.InvalidBatch(f"version {hello.version} of the link is not known")
