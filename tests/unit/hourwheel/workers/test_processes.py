"""A child of a worker, by what it says: the process and its socket are a test's."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel.workers import frames
from hourwheel.workers.app import App
from hourwheel.workers.begun import BegunMarks
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.processes import Child, Processes
from hourwheel.workers.program import Program
from hourwheel.workers.results import GIVEN_BACK, NOT_BEGUN, Result, ResultKind
from tests.support.eventually import until

CONTEXT = MessageContext("id", "orders", "shop", b"{}", 1, 0, 0)
app = App(group="shop")


@app.handler("orders")
def nothing(_: MessageContext) -> None: ...


class Process:
    returncode: int | None = None

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        return -9

    def kill(self) -> None:
        self.returncode = -9
        self.ended.set()


async def test_message_gets_its_answer_when_it_has_the_number_of_one_just_answered() -> None:
    """The child has answered one message, whose task has not gone on yet, and gets another one."""
    reader, alive_fd, process = asyncio.StreamReader(), os.dup(0), Process()
    writer: Any = SimpleNamespace(
        write=lambda _: None,
        close=reader.feed_eof,
        get_extra_info=lambda _: SimpleNamespace(shutdown=lambda _: reader.feed_eof()),
    )
    marks, marks_fd = BegunMarks.make()
    os.close(marks_fd)
    child = Child(process, reader, writer, alive_fd, marks)  # type: ignore[arg-type]
    handler = app.handlers[0]
    done = frames.pack_result(0, Result(ResultKind.DONE), is_spoiled=False)
    first = asyncio.create_task(child.run(0, handler, CONTEXT))
    for _ in range(3):
        await asyncio.sleep(0)
    reader.feed_data(done)
    second = asyncio.create_task(child.run(0, handler, CONTEXT))  # before the first one goes on
    async with asyncio.timeout(30):
        assert (await first).kind is ResultKind.DONE
        reader.feed_data(done)
        assert (await second).kind is ResultKind.DONE
    assert child.running_count == 0
    await child.end()


@pytest.mark.parametrize("has_begun", [True, False])
async def test_what_a_child_has_not_begun_when_all_end_was_no_attempt(
    monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    children: list[Child] = []

    async def start(_: Program) -> Child:
        reader, process = asyncio.StreamReader(), Process()
        marks, marks_fd = BegunMarks.make()
        os.close(marks_fd)
        writer: Any = SimpleNamespace(
            write=lambda _: marks.set(0) if has_begun else None,
            close=reader.feed_eof,
            get_extra_info=lambda _: SimpleNamespace(shutdown=lambda _: reader.feed_eof()),
        )
        children.append(Child(process, reader, writer, os.dup(0), marks))  # type: ignore[arg-type]
        return children[-1]

    monkeypatch.setattr(Child, "start", start)
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
        running = [asyncio.create_task(processes.run(app.handlers[0], CONTEXT))]
        await until(lambda: children[0].running_count == 1)
        processes.end_handlers()
        running.append(asyncio.create_task(processes.run(app.handlers[0], CONTEXT)))
        async with asyncio.timeout(30):
            results = await asyncio.gather(*running)
    assert results == [GIVEN_BACK if has_begun else NOT_BEGUN, NOT_BEGUN]


async def test_what_a_hung_child_has_not_begun_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first child reads its message, and does nothing with it; the second one handles it."""
    monkeypatch.setattr("hourwheel.workers.processes.OVERTIME_S", 0.01)
    hasty = App(group="shop")
    hasty.handler("orders", time_limit="1ms")(nothing)
    children: list[Child] = []

    async def start(_: Program) -> Child:
        reader, process = asyncio.StreamReader(), Process()
        marks, marks_fd = BegunMarks.make()
        os.close(marks_fd)
        done = frames.pack_result(0, Result(ResultKind.DONE), is_spoiled=False)
        writer: Any = SimpleNamespace(
            write=lambda _: reader.feed_data(done) if len(children) > 1 else None,
            close=reader.feed_eof,
            get_extra_info=lambda _: SimpleNamespace(shutdown=lambda _: reader.feed_eof()),
        )
        children.append(Child(process, reader, writer, os.dup(0), marks))  # type: ignore[arg-type]
        return children[-1]

    monkeypatch.setattr(Child, "start", start)
    async with Processes(Program("shop:app"), hasty.handlers, 1) as processes:
        async with asyncio.timeout(30):
            result = await processes.run(hasty.handlers[0], CONTEXT)
    assert result.kind is ResultKind.DONE
