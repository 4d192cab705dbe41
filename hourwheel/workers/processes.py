"""Children that run handlers, so that a handler that ends its process ends no other's work.

The worker holds the leases, the children only run functions. A child that is gone takes all that it
had in work with it. What it had not begun (`begun`) runs in another child at once. If it had begun
one message, that one has cost an attempt. If it had begun several, it is unknown which one it was:
so each of them is tried once more, in a child of its own, few at a time. What ends that one, too,
has cost its message one attempt; the others are done. A child whose handler is past its time limit
and does not answer is killed, with the same rule.
"""

import asyncio
import contextlib
import heapq
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Self

from hourwheel import errors
from hourwheel.workers import frames
from hourwheel.workers.begun import BegunMarks
from hourwheel.workers.execution import GRACE_S
from hourwheel.workers.handler import Handler, MessageContext
from hourwheel.workers.program import Program
from hourwheel.workers.results import GIVEN_BACK, NOT_BEGUN, Result, failed

OVERTIME_S: Final = GRACE_S + 3.0
"""Beyond a time limit, which the child itself watches, until the child is taken for hung."""
START_WAIT_S: Final = 60.0
RESTART_WAIT_S: Final = 1.0
ALONE_MAX: Final = 4
"""Children at one time that have one message each, which may be what ended another one."""
UNBEGUN_TRIES: Final = 3
"""Children that may end before they begin a message, until it is tried alone: reading it may do."""
_log = logging.getLogger("hourwheel.worker")


class ChildGone(Exception):
    """The child has ended with messages in work."""

    def __init__(self, *, had_begun: bool, was_alone: bool, reason: str) -> None:
        """`had_begun`: this message; `was_alone`: and no other one."""
        super().__init__(reason)
        self.had_begun, self.was_alone = had_begun, was_alone
        self.reason = reason


class Child:
    """One process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        alive_fd: int,
        marks: BegunMarks,
    ) -> None:
        """Use `start`."""
        self._process, self._reader, self._writer = process, reader, writer
        self._alive_fd, self._marks = alive_fd, marks
        self._running: dict[int, asyncio.Future[frames.Frame]] = {}
        self._counts: Counter[Handler] = Counter()
        self._unanswered: set[int] = set()
        """Numbers that are in use: also of messages that are not waited for any more."""
        self._free_numbers: list[int] = []
        self.is_spoiled = False
        """To be given nothing more."""
        self._is_killed = False
        """For one of its messages: it says nothing about the others that it had."""
        self._receiver = asyncio.create_task(self._receive())
        self._watcher = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, program: Program) -> Self:
        """A child that has imported the program.

        Raises:
            FailedPrecondition: it has not come so far.
        """
        ours, theirs = socket.socketpair()
        their_fd, alive_fd = os.pipe()
        marks, marks_fd = BegunMarks.make()
        fds = (theirs.fileno(), their_fd, marks_fd)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hourwheel.workers.child",
                program.pack(),
                *map(str, fds),
                pass_fds=fds,
            )
        except BaseException:
            ours.close()
            os.close(alive_fd)
            marks.close()
            raise
        finally:
            theirs.close()
            os.close(their_fd)
            os.close(marks_fd)
        child: Self | None = None
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(START_WAIT_S):
                reader, writer = await asyncio.open_connection(sock=ours)
                if await frames.read(reader) is not None:
                    child = cls(process, reader, writer, alive_fd, marks)
        except TimeoutError:
            child = None
        finally:
            if child is None:  # or its caller does not wait any more
                (writer or ours).close()
                os.close(alive_fd)
                marks.close()
                if process.returncode is None:
                    process.kill()
                await process.wait()
        if child is None:
            raise errors.FailedPrecondition(
                f"{program.target} could not be loaded in a process of its own; it says why above"
            )
        return child

    @property
    def running_count(self) -> int:
        """Messages in work."""
        return len(self._running)

    @property
    def is_gone(self) -> bool:
        """It takes no message."""
        return self._receiver.done() or self.is_spoiled

    def has_place(self, handler: Handler) -> bool:
        """Whether another message of this handler could begin at once."""
        return self._counts[handler] < handler.concurrency

    async def run(self, handler_index: int, handler: Handler, context: MessageContext) -> Result:
        """What became of a message.

        Raises:
            ChildGone: the child has ended before it said so.
        """
        if self.is_gone:
            raise ChildGone(had_begun=False, was_alone=False, reason="it had ended")
        number = self._take_number()
        answer = asyncio.get_running_loop().create_future()
        self._running[number] = answer
        self._counts[handler] += 1
        try:
            self._writer.write(frames.pack_work(number, handler_index, context))
            async with asyncio.timeout(handler.time_limit_ms / 1_000 + OVERTIME_S):
                return frames.result_of(await answer)
        except TimeoutError:
            begun = self._begun()
            self.kill()
            reason = f"{handler.name} took longer than {handler.time_limit_ms} ms, and hung"
            had_begun, was_alone = number in begun, begun == {number}
            raise ChildGone(had_begun=had_begun, was_alone=was_alone, reason=reason) from None
        finally:
            self._counts[handler] -= 1
            if self._running.get(number) is answer:
                del self._running[number]

    def _take_number(self) -> int:
        """The lowest that is free. It is free again when the child has answered."""
        number = heapq.heappop(self._free_numbers) if self._free_numbers else len(self._unanswered)
        self._marks.clear(number)
        self._unanswered.add(number)
        return number

    def _begun(self) -> set[int]:
        return {number for number in self._unanswered if self._marks.has_begun(number)}

    async def _receive(self) -> None:
        try:
            while (frame := await frames.read(self._reader)) is not None:
                self.is_spoiled |= frame.head["is_spoiled"]
                number = frame.head["number"]
                self._unanswered.remove(number)
                heapq.heappush(self._free_numbers, number)
                answer = self._running.pop(number, None)  # another message may get the number now
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        finally:
            reason = f"the process has ended with {_end_of(await self._process.wait())}"
            begun = self._begun()
            for number, answer in self._running.items():
                had_begun = number in begun
                was_alone = had_begun and len(begun) == 1 and not self._is_killed
                if not answer.done():
                    gone = ChildGone(had_begun=had_begun, was_alone=was_alone, reason=reason)
                    answer.set_exception(gone)

    async def _watch(self) -> None:
        """The end of the process is the end of what it says, even if others have its socket.

        What a handler has forked has it, and may live on for long.
        """
        await self._process.wait()
        with contextlib.suppress(OSError):  # it is closed already
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RD)

    def kill(self) -> None:
        """End it now."""
        self._is_killed = True
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """End it, and wait until it is gone."""
        self.kill()
        self._writer.close()
        await asyncio.wait({self._receiver, self._watcher})
        os.close(self._alive_fd)
        self._marks.close()


def _end_of(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class Processes:
    """Several children. Runs each message in the one that has least to do."""

    def __init__(self, program: Program, handlers: Sequence[Handler], count: int) -> None:
        """`program`: what each loads; `count`: how many."""
        self._program, self._count = program, count
        self._index_of = {handler: index for index, handler in enumerate(handlers)}
        self._children: set[Child] = set()
        self._lone_children: set[Child] = set()
        """Each has one message, which may be what ended another one."""
        self._quarantine = asyncio.Semaphore(ALONE_MAX)
        self._changed = asyncio.Event()
        self._has_place = asyncio.Event()
        """A child has room for another message, perhaps."""
        self._keeper: asyncio.Task[None] | None = None
        self._has_ended = False
        self.restart_count = 0
        """Children that were replaced."""

    async def __aenter__(self) -> Self:
        """Start them. Raises as `Child.start`."""
        starting = [asyncio.create_task(self._start_one()) for _ in range(self._count)]
        is_started = False
        try:
            done, _ = await asyncio.wait(starting, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
            is_started = True
        finally:
            if not is_started:
                for one in starting:
                    one.cancel()
                await asyncio.gather(*starting, return_exceptions=True)
                await self.__aexit__()
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def _start_one(self) -> None:
        self._children.add(await Child.start(self._program))

    async def __aexit__(self, *_: object) -> None:
        """End them."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        await asyncio.gather(*(child.end() for child in self._children))

    def end_handlers(self) -> None:
        """End all handlers now, with their children. Their messages are `GIVEN_BACK`.

        Those that no child has begun are `NOT_BEGUN`.

        So the worker that gets one of them next does not handle it while another handler still
        does.
        """
        self._has_ended = True
        self._has_place.set()
        for child in (*self._children, *self._lone_children):
            child.kill()

    @property
    def live_count(self) -> int:
        """Children that take messages. May be called in another thread."""
        return sum(not child.is_gone for child in self._children.copy())

    async def run(
        self,
        handler: Handler,
        context: MessageContext,
        note_begun: Callable[[], None] = lambda: None,
    ) -> Result:
        """See `Runner.run`."""
        given_back = NOT_BEGUN
        for _ in range(UNBEGUN_TRIES):
            child = await self._pick(handler)
            if child is None:
                return NOT_BEGUN
            note_begun()
            try:
                return await self._run_in(child, handler, context)
            except ChildGone as gone:
                if gone.had_begun:
                    given_back = GIVEN_BACK
                if self._has_ended:
                    return given_back
                if gone.was_alone:
                    return failed(f"{handler.name}: {gone.reason}")
                if gone.had_begun:
                    break
        async with self._quarantine:
            return given_back if self._has_ended else await self._run_alone(handler, context)

    async def _run_alone(self, handler: Handler, context: MessageContext) -> Result:
        """In a child that has nothing else to do: what becomes of it is this message's doing."""
        try:
            child = await Child.start(self._program)
        except errors.FailedPrecondition as error:
            return failed(f"{handler.name}: {error}")
        self._lone_children.add(child)
        try:
            if self._has_ended:
                return GIVEN_BACK
            return await self._run_in(child, handler, context)
        except ChildGone as gone:
            return GIVEN_BACK if self._has_ended else failed(f"{handler.name}: {gone.reason}")
        finally:
            self._lone_children.discard(child)
            await child.end()

    async def _run_in(self, child: Child, handler: Handler, context: MessageContext) -> Result:
        try:
            return await child.run(self._index_of[handler], handler, context)
        finally:
            self._has_place.set()
            if child.is_gone:
                self._changed.set()

    async def _pick(self, handler: Handler) -> Child | None:
        """The child that has least to do, of those in which the message would begin at once.

        None: no handler is to run any more.

        While one is missing, the others are not given its part: there it would wait for a thread,
        at the cost of its time limit, and be lost with what else ends the child.
        """
        while not self._has_ended:
            usable = [one for one in self._children if not one.is_gone and one.has_place(handler)]
            if usable:
                return min(usable, key=lambda child: child.running_count)
            if self.live_count < self._count:
                self._changed.set()
            self._has_place.clear()
            await self._has_place.wait()
        return None

    async def _keep(self) -> None:
        """Replace children that are gone; end a spoiled one when it has nothing left."""
        while not self._has_ended:
            self._changed.clear()
            for child in [child for child in self._children if child.is_gone]:
                if not child.running_count:
                    self._children.discard(child)
                    await child.end()
            if self.live_count < self._count:
                await self._replace()
                continue
            try:
                async with asyncio.timeout(RESTART_WAIT_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _replace(self) -> None:
        try:
            await self._start_one()
            self._has_place.set()
            self.restart_count += 1
        except errors.FailedPrecondition as error:
            _log.error("%s", error)
            await asyncio.sleep(RESTART_WAIT_S)
