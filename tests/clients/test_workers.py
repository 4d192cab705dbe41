"""`hourwheel worker` as users run it: processes of its own, at a real node."""

import asyncio
import json
import os
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from hourwheel import (
    App,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Broadcast,
    DeadLetterReason,
    Message,
)
from hourwheel.client.groups.dead_letters import DeadLetterMessage
from node.process.subprocess_node import ChildNode
from tests.support.eventually import until, until_told

HANG_S: Final = 120.0
PROGRAM = """
    import asyncio
    import os
    import time
    from pathlib import Path

    from hourwheel import App, MessageContext, Reject, Retry

    app = App(group="shop")

    def note(context, text):
        line = f"{context.message_id} {context.attempt} {text}\\n"
        with Path("done.txt").open("a") as file:
            file.write(line)

    @app.handler("orders", concurrency=8, time_limit="1s")
    def handle(how: str, context: MessageContext) -> None:
        if how == "reject":
            raise Reject("no such order")
        if how == "always":
            os._exit(4)
        if context.attempt == 1:
            if how == "exit":
                os._exit(3)
            if how == "sysexit":
                raise SystemExit(3)
            if how == "hang":
                time.sleep(1_000)
            if how == "retry":
                raise Retry(delay="1ms")
        note(context, how)

    @app.handler("slow")
    async def slow(how: str, context: MessageContext) -> None:
        Path("begun.txt").write_text(context.message_id)
        await asyncio.sleep(4)
        note(context, how)
"""


LONG_LEASE_MS: Final = 600_000
"""Longer than any test waits: what comes back meanwhile has been given back."""


class RunningWorker:
    """A worker of the program in a folder."""

    def __init__(self, folder: Path, server: str, *options: str, program: str = PROGRAM) -> None:
        self.folder, self._server, self._options = folder, server, options
        self._program = program
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        path, program = self.folder / "shop.py", textwrap.dedent(self._program)
        if not path.exists() or path.read_text() != program:  # others may be reading it
            path.write_text(program)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "hourwheel.cli", "worker", "shop:app", *self._options),
            cwd=self.folder,
            env={**os.environ, "HOURWHEEL_SERVER": self._server},
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # one that reloads has a child
        self.said = (await self.process.communicate())[1].decode()

    async def until_said(self, text: str) -> str:
        """The next line of its log with this text."""
        assert self.process.stderr is not None
        async with asyncio.timeout(HANG_S):
            while text not in (line := (await self.process.stderr.readline()).decode()):
                assert line, f"it has ended without {text!r}"
        return line

    def done(self) -> list[list[str]]:
        """[message id, attempt, how] of each end of a handler."""
        path = self.folder / "done.txt"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


def children_of(worker: int) -> list[str]:
    """Processes in which a worker's handlers run."""
    return Path(f"/proc/{worker}/task/{worker}/children").read_text().split()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as found:
        async with AsyncAdmin(found.address) as admin:
            await put_group(admin, invisible_ms=3_000)
            await admin.create_topic("orders")
            await admin.create_topic("slow")
            await admin.create_topic("answers")
        yield found


async def put_group(admin: AsyncAdmin, invisible_ms: int) -> None:
    await admin.put_group("shop", retry_delay_ms=1, invisible_ms=invisible_ms, attempts_max=3)


async def lease_long(server: str) -> None:
    async with AsyncAdmin(server) as admin:
        await put_group(admin, LONG_LEASE_MS)


async def publish(server: str, topic: str, *hows: str) -> list[str]:
    async with AsyncProducer(server) as producer:
        ids = await producer.publish_many(topic, [Message(how.encode()) for how in hows])
    return [str(one) for one in ids]


async def test_handlers_that_crash_exit_and_hang_cost_their_own_message_one_attempt(
    node: ChildNode, tmp_path: Path
) -> None:
    await lease_long(node.address)
    hows = ["ok", "exit", "ok", "hang", "sysexit", "retry", "exit", *["ok"] * 5]
    (rejected,) = await publish(node.address, "orders", "reject")
    ids = await publish(node.address, "orders", *hows)
    async with RunningWorker(tmp_path, node.address, "--processes", "2") as worker:
        await until(lambda: {one[0] for one in worker.done()} == set(ids))
        assert await worker.stop() == 0
    async with AsyncAdmin(node.address) as admin:
        (letter,) = [one async for one in admin.list_dead_letters("shop")]
    found = str(letter.message_id), letter.attempts, letter.rejected_because
    assert found == (rejected, 1, "no such order")
    attempts = {one[0]: int(one[1]) for one in worker.done()}
    expected = {"ok": 1, "exit": 2, "hang": 2, "sysexit": 2, "retry": 2}
    assert [attempts[one] for one in ids] == [expected[how] for how in hows]
    assert "Task exception" not in worker.said


async def test_a_message_that_always_ends_its_process_is_a_dead_letter_and_others_are_handled(
    node: ChildNode, tmp_path: Path
) -> None:
    """Also those that run beside it in one process."""
    await lease_long(node.address)
    (poison,) = await publish(node.address, "orders", "always")
    ids = await publish(node.address, "orders", *["ok"] * 12)

    async def letters() -> list[DeadLetterMessage]:
        return [one async for one in admin.list_dead_letters("shop")]

    async with AsyncAdmin(node.address) as admin, RunningWorker(tmp_path, node.address) as worker:
        await until(lambda: {one[0] for one in worker.done()} == set(ids))
        await until_told(letters)
        (letter,) = await letters()
        assert await worker.stop() == 0
    found = str(letter.message_id), letter.attempts, letter.reason
    assert found == (poison, 3, DeadLetterReason.ATTEMPTS_USED_UP)
    assert {one[1] for one in worker.done()} == {"1"}, "none of them has lost an attempt"


def held() -> str:
    """The program, whose slow handler ends when a test says so."""
    return PROGRAM.replace(
        "await asyncio.sleep(4)",
        "while not Path('go.txt').exists(): await asyncio.sleep(0.01)",
    )


async def hold_one(server: str, worker: RunningWorker) -> None:
    """Have a message in work, with a lease that outlasts the test."""
    await lease_long(server)
    await publish(server, "slow", "held")
    await until((worker.folder / "begun.txt").exists)


async def test_a_stop_that_takes_too_long_gives_back_what_is_in_work(
    node: ChildNode, tmp_path: Path
) -> None:
    options = "--stop-within", "10ms"
    async with RunningWorker(tmp_path, node.address, *options, program=held()) as worker:
        await hold_one(node.address, worker)
        assert await worker.stop() == 0
    assert "ended with messages in work" in worker.said
    async with AsyncConsumer(node.address, group="shop", topic="slow") as consumer:
        (again,) = await consumer.receive(1, LONG_LEASE_MS / 10)
    assert (again.attempt, worker.done()) == (2, [])


async def test_a_third_signal_ends_a_worker_as_it_is(node: ChildNode, tmp_path: Path) -> None:
    """While it waits for a node that does not answer any more; its children end with it."""
    async with RunningWorker(tmp_path, node.address, program=held()) as worker:
        await hold_one(node.address, worker)
        children = children_of(worker.process.pid)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            worker.process.send_signal(signal.SIGTERM)
            await worker.until_said("stopping")
            worker.process.send_signal(signal.SIGTERM)
            await worker.until_said("ended with messages in work")
            assert await worker.stop() == 1
        finally:
            os.kill(node.pid, signal.SIGCONT)
        await until(lambda: not any(Path(f"/proc/{one}").exists() for one in children))


async def test_leases_last_a_stop_ends_what_is_begun_and_a_second_one_gives_it_back(
    node: ChildNode, tmp_path: Path
) -> None:
    """A handler takes longer than a lease, and than a lease's first half twice."""
    await publish(node.address, "slow", "first")
    begun = tmp_path / "begun.txt"
    async with RunningWorker(tmp_path, node.address) as worker:
        await until(begun.exists)
        assert await worker.stop() == 0
    assert [one[1:] for one in worker.done()] == [["1", "first"]]
    begun.unlink()

    await lease_long(node.address)
    await publish(node.address, "slow", "second")
    async with RunningWorker(tmp_path, node.address) as worker:
        await until(begun.exists)
        worker.process.send_signal(signal.SIGTERM)
        await worker.until_said("stopping")
        assert await worker.stop() == 0
    assert len(worker.done()) == 1
    async with RunningWorker(tmp_path, node.address) as worker:
        await until(lambda: len(worker.done()) == 2)
        assert await worker.stop() == 0
    _, attempt, how = worker.done()[1]
    assert (attempt, how) == ("2", "second"), "no poll has leased what was given back"


LOGGING_PROGRAM = """
    import logging
    import os

    from hourwheel import App

    app = App("127.0.0.1:1", group="shop")
    logging.getLogger("shop").info("imported in %d", os.getpid())

    @app.handler("orders")
    def handle(how: str) -> None:
        logging.getLogger("shop").info("handled by %d", os.getpid())
        app.publish("answers", how)
"""


async def test_children_log_and_publish_as_the_command_line_says(
    node: ChildNode, tmp_path: Path
) -> None:
    """JSON, from the import on; and at the node of an option, which the code does not know."""
    await publish(node.address, "orders", "ok")
    options = "--log-format", "json", "--server", node.address, "-p", "2"
    worker = RunningWorker(tmp_path, "127.0.0.1:2", *options, program=LOGGING_PROGRAM)
    async with worker, AsyncConsumer(node.address, group="x", topic="answers") as consumer:
        handled = json.loads(await worker.until_said("handled by"))
        assert handled["logger"] == "shop"
        assert handled["event"] != f"handled by {worker.process.pid}"
        async with asyncio.timeout(60):
            while not (found := await consumer.receive()):
                pass
        assert [one.body for one in found] == [b"ok"]
        assert await worker.stop() == 0
    lines = [json.loads(line) for line in worker.said.splitlines()]
    assert all(one["event"] for one in lines)


BROADCAST_PROGRAM = """
    import os
    from pathlib import Path

    from hourwheel import App, Broadcast

    app = App(group="caches")
    member = os.environ.get("MEMBER", "")

    @app.handler(["orders", "answers"], broadcast=Broadcast(member=member) if member else True)
    def refresh(what: str) -> None:
        with Path(f"seen-{os.environ['NAME']}.txt").open("a") as file:
            file.write(f"{what}\\n")
"""


async def test_each_worker_gets_all_messages_of_a_broadcast(
    node: ChildNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is named goes on where it was, and all of its processes and topics are one."""

    def seen(name: str) -> list[str]:
        path = tmp_path / f"seen-{name}.txt"
        return sorted(path.read_text().split()) if path.exists() else []

    async def worker(name: str, member: str) -> RunningWorker:
        monkeypatch.setenv("NAME", name)
        monkeypatch.setenv("MEMBER", member)
        options = "-p", "2", "--health", "127.0.0.1:0"
        made = RunningWorker(tmp_path, node.address, *options, program=BROADCAST_PROGRAM)
        await ending.enter_async_context(made)
        url = (await made.until_said("health and metrics on")).split()[-1]
        await until(lambda: is_receiving(url))
        return made

    def is_receiving(url: str) -> bool:
        try:
            with urlopen(f"{url}/healthz") as answer:
                return bool(answer.status == 200)
        except HTTPError:
            return False

    async with AsyncExitStack() as ending:
        named, unnamed = await worker("named", "host-7"), await worker("unnamed", "")
        for topic in ("orders", "answers"):
            await publish(node.address, topic, f"{topic}-1", f"{topic}-2")
        both = ["answers-1", "answers-2", "orders-1", "orders-2"]
        await until(lambda: seen("named") == seen("unnamed") == both)
        assert await named.stop() == 0
        await publish(node.address, "orders", "orders-3")
        await until(lambda: seen("unnamed") == [*both, "orders-3"])
        await worker("named", "host-7")
        await until(lambda: seen("named") == [*both, "orders-3"])
        assert await unnamed.stop() == 0


async def test_an_app_that_serves_is_a_member_of_a_broadcast(node: ChildNode) -> None:
    app = App(node.address, group="caches")
    seen: list[bytes] = []
    app.handler(["orders", "answers"], broadcast=Broadcast("host-7", "first"))(seen.append)
    await publish(node.address, "orders", "a")
    await publish(node.address, "answers", "b")
    stopping = asyncio.Event()
    serving = asyncio.create_task(app.serve(stopping))
    await until(lambda: sorted(seen) == [b"a", b"b"])
    stopping.set()
    await serving


async def test_probes_and_metrics(node: ChildNode, tmp_path: Path) -> None:
    await publish(node.address, "orders", "ok", "retry")
    async with RunningWorker(tmp_path, node.address, "--health", "127.0.0.1:0") as worker:
        url = (await worker.until_said("health and metrics on")).split()[-1]

        def fetch(path: str) -> tuple[int, str]:
            try:
                with urlopen(url + path) as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        def is_done() -> bool:
            done = (
                'hourwheel_worker_messages_total{group="shop",handler="shop.handle",result="done"'
            )
            return f'{done},topic="orders"}} 2.0' in fetch("/metrics")[1]

        await until(is_done)
        await until(lambda: fetch("/healthz")[0] == 200)
        health: dict[str, Any] = json.loads(fetch("/healthz")[1])
        receiving = {"shop.handle": {"orders": True}, "shop.slow": {"slow": True}}
        assert health == {"processes": 1, "receiving": receiving}
        taken = 'hourwheel_worker_message_duration_seconds_count{group="shop",handler="shop.handle"'
        assert f'{taken},topic="orders"}} 3.0' in fetch("/metrics")[1], "one of them twice"
        assert fetch("/")[0] == 404
        assert await worker.stop() == 0


async def test_a_worker_begins_anew_when_its_program_changes_and_ends_by_one_interrupt(
    node: ChildNode, tmp_path: Path
) -> None:
    """A terminal sends SIGINT to all processes of a command. Handlers end what they have begun."""
    begun, go_on = tmp_path / "begun.txt", tmp_path / "go.txt"
    worker = RunningWorker(tmp_path, node.address, "--reload", program=held())
    async with worker:
        for how in ("reload", "interrupt"):
            await worker.until_said("handlers: 2")
            await publish(node.address, "slow", how)
            await until(begun.exists)
            if how == "reload":
                changed = (tmp_path / "shop.py").read_text()
                (tmp_path / "shop.py").write_text(changed + "# changed\n")
            else:
                os.killpg(worker.process.pid, signal.SIGINT)
            await worker.until_said("stopping")
            begun.unlink()
            go_on.touch()
            await until(lambda: [one[2] for one in worker.done()][-1:] == [how])  # noqa: B023
            go_on.unlink()
        assert await worker.process.wait() == 0
    assert [one[1:] for one in worker.done()] == [["1", "reload"], ["1", "interrupt"]]


async def test_an_app_serves_within_a_program(node: ChildNode) -> None:
    app = App(node.address, group="shop")
    seen: Counter[str] = Counter()
    stopping = asyncio.Event()

    @app.handler("orders")
    def handle(how: str) -> None:
        seen[how] += 1

    @app.handler("later", group="later")
    async def later(how: dict[str, int]) -> None:
        seen[f"later {how['id']}"] += 1
        stopping.set()

    serving = asyncio.create_task(app.serve(stopping))
    await publish(node.address, "orders", "a", "b")
    await until(lambda: len(seen) == 2)
    await app.publish_async("later", {"id": 1}, in_="1h", key="gone")
    assert (await app.cancel_async("later", "gone")).name == "CANCELLED"
    await app.publish_async("later", {"id": 3}, in_="1h", key="k")
    assert (await app.move_async("later", "k", in_="10ms")).name == "RESCHEDULED"
    await serving
    assert seen == {"a": 1, "b": 1, "later 3": 1}
    await asyncio.to_thread(app.close)
