"""Celery and dramatiq at three nodes whose master is killed: nothing is lost."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from node.tools.local_cluster.nodes import LocalCluster
from tests.support.celery_worker import CeleryWorker
from tests.support.dramatiq_worker import DramatiqWorker
from tests.support.eventually import until

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
COUNT: Final = 60
HELD_MAX: Final = 16
"""What workers may have had in hand when the master died: it may come twice."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "nodes", values=SMALL) as found:
        await found.wait_for_master(in_sync=3)
        yield found


async def kill_master(cluster: LocalCluster) -> None:
    await cluster.kill_node(await cluster.wait_for_master())


def check(runs: Counter[str], *, is_healthy: bool) -> None:
    assert set(runs) == {str(number) for number in range(COUNT)}
    assert sum(runs.values()) - COUNT <= (0 if is_healthy else HELD_MAX)


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
@pytest.mark.parametrize("is_healthy", [True, False])
async def test_tasks_with_an_eta_run_once_in_a_healthy_cluster_and_all_in_any(
    cluster: LocalCluster, tmp_path: Path, pool: str, is_healthy: bool
) -> None:
    worker = CeleryWorker(tmp_path, cluster.servers, "-c", "2", "--pool", pool)
    async with worker:
        await worker.run(f"""
            for n in range({COUNT}):
                shop.note.apply_async((n,), countdown=2 + n / 20)
        """)
        await until(lambda: len(worker.runs("note")) >= COUNT // 4)
        if not is_healthy:
            await kill_master(cluster)
            await worker.run("shop.flaky.delay('f')")
        await until(lambda: len({what for what, _ in worker.runs("note")}) == COUNT)
        if not is_healthy:
            await until(lambda: len(worker.runs("flaky")) >= 3)
        assert await worker.stop() == 0
    check(Counter(what for what, _ in worker.runs("note")), is_healthy=is_healthy)


async def test_beat_goes_on_publishing_when_the_master_is_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with (
        CeleryWorker(tmp_path, cluster.servers, "--pool", "solo") as worker,
        CeleryWorker(tmp_path, cluster.servers, kind="beat") as beat,
    ):
        for _ in range(2):
            before = len(worker.runs("note"))
            await until(lambda before=before: len(worker.runs("note")) >= before + 3)  # type: ignore[misc]
            if not before:
                await kill_master(cluster)
        assert beat.process.returncode is None
        assert worker.process.returncode is None


@pytest.mark.parametrize("is_healthy", [True, False])
async def test_delayed_messages_of_dramatiq_run_once_in_a_healthy_cluster_and_all_in_any(
    cluster: LocalCluster, tmp_path: Path, is_healthy: bool
) -> None:
    async with DramatiqWorker(tmp_path, cluster.servers) as worker:
        await worker.run(f"""
            for n in range({COUNT}):
                shop.note.send_with_options(args=(n,), delay=2_000 + n * 50)
        """)
        await until(lambda: len(worker.runs("note")) >= COUNT // 4)
        if not is_healthy:
            await kill_master(cluster)
        await until(lambda: len({what for what, _ in worker.runs("note")}) == COUNT)
    check(Counter(what for what, _ in worker.runs("note")), is_healthy=is_healthy)
