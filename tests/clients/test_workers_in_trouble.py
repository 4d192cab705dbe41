"""Workers whose clock is not the broker's, and handlers that run out of memory."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from hourwheel import App, AsyncAdmin, AsyncConsumer, AsyncProducer, Message, MessageContext
from hourwheel.clock import SystemClock
from node.process.subprocess_node import ChildNode
from tests.clients.test_workers import RunningWorker
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until

HOUR_MS: Final = 3_600_000
LEASE_MS: Final = 1_000
"""A busy machine stands still for half a second; the worker renews a lease before that ends."""
GREEDY: Final = """
    import mmap
    import resource
    import time
    from pathlib import Path

    from hourwheel import App, MessageContext

    app = App(group="shop")
    FREE_BYTES = 64 << 20

    @app.handler("orders", concurrency=4)
    def handle(how: str, context: MessageContext) -> None:
        note(context, "begun")
        if how == "greedy" and context.attempt == 1:
            while not Path("go.txt").exists():
                time.sleep(0.001)
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            limits = taken + FREE_BYTES, resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_AS, limits)
            b"x" * (2 * FREE_BYTES)
        while how == "waits" and not Path("over.txt").exists():
            time.sleep(0.001)
        note(context, "done")

    def note(context, what):
        with Path("runs.txt").open("a") as file:
            file.write(f"{context.body.decode()} {what} {context.attempt}\\n")
"""


class ClockApart(SystemClock):
    """The machine's, but that somebody has set it wrongly."""

    def __init__(self, ahead_ms: float) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> float:
        return super().wall_ms() + self._ahead_ms


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_clocks_of_worker_and_broker_may_be_an_hour_apart(
    tmp_path: Path, ahead_ms: int
) -> None:
    """Leases last as long as handlers run, and nothing that is for later comes early."""
    clock, stopping = ClockApart(ahead_ms), asyncio.Event()
    seen: list[tuple[MessageContext, float]] = []
    async with EmbeddedNode(tmp_path / "data", clock=clock) as node:
        app = App(node.address, group="shop")

        @app.handler("orders")
        async def handle(context: MessageContext) -> None:
            begun_ms = clock.monotonic_ms()
            seen.append((context, clock.wall_ms()))
            await until(lambda: clock.monotonic_ms() - begun_ms > 4 * LEASE_MS)

        async with AsyncAdmin(node.address) as admin:
            await admin.create_topic("orders")
            await admin.put_group("shop", invisible_ms=LEASE_MS, retry_delay_ms=1)
        serving = asyncio.create_task(app.serve(stopping))
        for delay in (None, "1s"):
            await app.publish_async("orders", b"", in_=delay)
        async with AsyncConsumer(node.address, group="shop", topic="orders") as other:
            await until(lambda: len(seen) == 2)
            assert await other.receive(1, wait_ms=2 * LEASE_MS) == []
        stopping.set()
        await serving
        await asyncio.to_thread(app.close)
    assert [(one.attempt, at_ms >= one.due_ms) for one, at_ms in seen] == [(1, True)] * 2
    assert seen[1][0].due_ms - seen[0][0].due_ms >= 1_000


async def test_a_handler_that_runs_out_of_memory_costs_its_message_one_attempt(
    tmp_path: Path,
) -> None:
    """And those beside it in its process nothing."""

    def runs() -> list[str]:
        path = tmp_path / "runs.txt"
        return path.read_text().splitlines() if path.exists() else []

    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        async with AsyncAdmin(node.address) as admin:
            await admin.create_topic("orders")
            await admin.put_group("shop", retry_delay_ms=1, attempts_max=5)
        async with AsyncProducer(node.address) as producer:
            bodies = [b"greedy", b"waits", b"waits", b"passes"]
            await producer.publish_many("orders", [Message(body) for body in bodies])
        async with RunningWorker(tmp_path, node.address, program=GREEDY) as worker:
            await until(lambda: sum("begun 1" in line for line in runs()) == len(bodies))
            (tmp_path / "go.txt").touch()
            await until(lambda: "greedy done 2" in runs())
            (tmp_path / "over.txt").touch()
            await until(lambda: runs().count("waits done 1") == 2)
            assert await worker.stop() == 0
        assert "MemoryError" in worker.said
    expected = ["greedy begun 1", "greedy begun 2", "greedy done 2"]
    expected += ["passes begun 1", "passes done 1"]
    expected += ["waits begun 1", "waits done 1"] * 2
    assert sorted(runs()) == sorted(expected)
