"""Handlers that do nothing: how many a worker gets through, as tasks, in threads, by processes.

`measure` is for comparisons, too: it has one way of running handlers work off a topic.
"""

import asyncio
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Columns
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.transport.channel import Channel
from hourwheel.workers.app import App
from hourwheel.workers.execution import Execution
from hourwheel.workers.processes import Processes
from hourwheel.workers.program import Program
from hourwheel.workers.results import ResultKind
from hourwheel.workers.service import Parts, Runner
from hourwheel.workers.worker import Worker
from tests.bench import subject
from tests.bench.results import Report
from tests.bench.sizes import Size

TOPIC: Final = "bench-noop"
BODY: Final = b"x" * 100
CONCURRENCY: Final = 64
_LOOK_S: Final = 0.005
tasks, threads = App(group="tasks"), App(group="threads")
"""The programs; children load them from here."""


@tasks.handler(TOPIC, concurrency=CONCURRENCY)
async def noop_task(body: bytes) -> None:
    """Nothing."""


@threads.handler(TOPIC, concurrency=CONCURRENCY)
def noop_thread(body: bytes) -> None:
    """Nothing."""


class Kind(NamedTuple):
    """A way of running handlers."""

    name: str
    app: App
    target: str
    process_count: int
    """0: in the worker's own process, as `App.serve`."""


KINDS: Final = (
    Kind("tasks, in one process", tasks, "tests.bench.workers:tasks", 0),
    Kind("threads, in one process", threads, "tests.bench.workers:threads", 0),
    Kind("tasks, 1 child", tasks, "tests.bench.workers:tasks", 1),
    Kind("tasks, 2 children", tasks, "tests.bench.workers:tasks", 2),
    Kind("threads, 2 children", threads, "tests.bench.workers:threads", 2),
)


class Measured(NamedTuple):
    """What one way took for its messages."""

    seconds: float
    worker_cpu_s: float
    """Of the worker and its children, without their start."""


async def fill(server: str, count: int) -> None:
    """So many messages, due at once."""
    async with AsyncProducer(server) as producer:
        columns = Columns(bodies=[BODY] * count)
        await producer.publish_batch(TOPIC, columns)


async def measure(server: str, kind: Kind, count: int) -> Measured:
    """Work off `count` messages of the topic. The group is made anew, and gets all that is there.

    From the first poll to the end of the last handler; children have been started before.
    """
    async with Channel(server) as channel:
        admin = AsyncAdmin(channel)
        group = kind.app.handlers[0].group
        await admin.put_group(group)
        children_before = _children_s()
        async with _runner(kind) as (runner, start_s):
            parts = Parts(channel, runner, SystemClock())
            worker = Worker(parts, kind.app.handlers, process_count=max(1, kind.process_count))
            begun, cpu = time.perf_counter(), time.process_time()
            serving = asyncio.create_task(worker.run())
            while sum(one.counts[ResultKind.DONE] for one in worker.services) < count:
                if serving.done():
                    serving.result()
                await asyncio.sleep(_LOOK_S)
            seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
            worker.stop()
            await serving
        await admin.delete_group(group)
    return Measured(seconds, cpu + max(0.0, _children_s() - children_before - start_s))


@asynccontextmanager
async def _runner(kind: Kind) -> AsyncIterator[tuple[Runner, float]]:
    """What runs handlers, and what its children's start took of the processor, as far as known."""
    if not kind.process_count:
        execution = Execution(kind.app.handlers)
        try:
            yield execution, 0.0
        finally:
            execution.close()
        return
    # Children are counted when they have ended: first some that have nothing to do.
    before = _children_s()
    async with Processes(Program(kind.target), kind.app.handlers, kind.process_count):
        pass
    start_s = _children_s() - before
    async with Processes(Program(kind.target), kind.app.handlers, kind.process_count) as processes:
        yield processes, 2 * start_s


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def run(size: Size, folder: Path) -> Report:
    """Each way works off the same number of messages, one way after the other."""
    count = size.pick(50, 5_000, 50_000)
    report = Report(
        [
            f"{count:,} messages with bodies of {len(BODY)} bytes, all due before that",
            f"handlers that do nothing, {CONCURRENCY} at one time in each process; one node",
            "processor: of the worker and its children, their start left out",
        ]
    )
    async with subject.running(folder / "workers") as node:
        await fill(node.child.address, count)
        for kind in KINDS:
            with node.span() as span:
                found = await measure(node.child.address, kind, count)
            report.add(kind.name, count / found.seconds, "messages/s")
            report.add(f"{kind.name}: worker", found.worker_cpu_s / count * 1e6, "us each")
            report.add(f"{kind.name}: node", span.node_cpu_s / count * 1e6, "us each")
    return report
