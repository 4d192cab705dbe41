"""A process that runs handlers for a worker: `python -m hourwheel.workers.child PROGRAM FDS`.

The first of three descriptors is its socket to the worker, see `frames`; the second one is a pipe
that ends with the worker, so that a child which is busy notices, too; the third one is that of
`begun`. It ends by them, and not by the signals that stop a worker: who stops a service signals
all its processes at once, and the worker lets handlers end what they have begun.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
from functools import partial
from pathlib import Path

from hourwheel import errors
from hourwheel.workers import frames
from hourwheel.workers.app import App
from hourwheel.workers.begun import BegunMarks
from hourwheel.workers.execution import Execution
from hourwheel.workers.program import Program


def main(arguments: list[str]) -> None:
    """Serve the worker until it is gone."""
    program = Program.unpack(arguments[0])
    socket_fd, alive_fd, begun_fd = map(int, arguments[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is the worker's business
    signal.signal(signal.SIGTERM, _leave_to_worker)
    os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    threading.Thread(target=_end_with_worker, args=(alive_fd,), daemon=True).start()
    sys.path.insert(0, str(Path.cwd()))
    try:
        app = program.load_in_child()
    except errors.HourwheelError as error:
        sys.exit(error.message)
    marks = BegunMarks(begun_fd)
    os.close(begun_fd)
    asyncio.run(_serve(app, marks, socket.socket(fileno=socket_fd)))
    os._exit(0)  # threads that are past their time limit would be waited for


def _leave_to_worker(*_: object) -> None:
    """As if it were ignored; but what handlers start is not to ignore it, too."""


def _end_with_worker(alive_fd: int) -> None:
    os.read(alive_fd, 1)
    os._exit(1)


async def _serve(app: App, marks: BegunMarks, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    execution = Execution(app.handlers, app.middleware)
    running: set[asyncio.Task[None]] = set()
    writer.write(frames.pack(frames.Frame({"ready": True})))

    async def work(frame: frames.Frame) -> None:
        handler, number = app.handlers[frame.head["handler"]], frame.head["number"]
        note_begun = partial(marks.set, number)
        result = await execution.run(handler, frames.context_of(frame), note_begun)
        is_spoiled = execution.is_spoiled
        writer.write(frames.pack_result(number, result, is_spoiled=is_spoiled))

    while (frame := await frames.read(reader)) is not None:
        task = asyncio.create_task(work(frame))
        running.add(task)
        task.add_done_callback(partial(_on_done, running))


def _on_done(running: "set[asyncio.Task[None]]", task: "asyncio.Task[None]") -> None:
    running.discard(task)
    if not task.cancelled():
        task.result()


if __name__ == "__main__":
    main(sys.argv[1:])
