"""Celery as its users run it, at a real node: `hourwheel.integrations.kombu`."""

import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourwheel import AsyncAdmin
from node.process.subprocess_node import ChildNode
from tests.support.celery_worker import CeleryWorker
from tests.support.eventually import until, until_told


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as found:
        yield found


async def test_tasks_are_held_by_the_broker_retried_revoked_and_survive_their_child(
    node: ChildNode, tmp_path: Path
) -> None:
    async with CeleryWorker(tmp_path, node.address, "-c", "2") as worker:
        said = await worker.run("""
            import time
            shop.note.delay("soon")
            shop.flaky.delay("f")
            shop.late.delay("kill")
            due_ms = int(time.time() * 1_000) + 1_500
            shop.note.apply_async(("due",), countdown=1.5)
            revoked = shop.note.apply_async(("never",), countdown=2.5)
            kept = [shop.note.apply_async((n,), countdown=9_999) for n in range(20)]
            shop.app.control.revoke(revoked.id)
            print(due_ms)
        """)
        await until(lambda: len(worker.runs("late")) == 2)
        await until(lambda: {what for what, _ in worker.runs("note")} == {"soon", "due"})
        await until(lambda: len(worker.runs("flaky")) == 3)
        held = await worker.run("""
            found = shop.app.control.inspect(timeout=30, limit=1)
            print(*found.scheduled().values(), *found.reserved().values())
            with shop.app.connection_for_read() as connection:
                channel = connection.default_channel
                print(channel.queue_declare("celery", passive=True).message_count)
                print(channel.queue_purge("celery"))
        """)
        async with AsyncAdmin(node.address) as admin:
            assert (await admin.count_pending("celery")).matched_count == 0
            groups = [one.name for one in await admin.groups()]
            assert [name.partition("|")[0] for name in groups] == ["celery", "celery"]
            assert await worker.stop() == 0

            async def is_tidy() -> bool:
                return [one.name for one in await admin.groups()] == ["celery"]

            await until_told(is_tidy)
    due_ms = int(said)
    assert Counter(what for what, _ in worker.runs("note")) == {"soon": 1, "due": 1}
    assert all(ms >= due_ms for what, ms in worker.runs("note") if what == "due")
    assert held.split("\n")[:3] == ["[] []", "0", "20"]


async def test_what_a_killed_worker_had_comes_to_the_next_one_at_once(
    node: ChildNode, tmp_path: Path
) -> None:
    """The bridge process sees that the worker is gone: nobody waits for its leases."""
    async with CeleryWorker(tmp_path, node.address, "--pool", "solo") as first:
        await first.run("shop.late.delay('hang')")
        await until(lambda: first.runs("late"))
        os.kill(first.process.pid, 9)
    async with CeleryWorker(tmp_path, node.address, "--pool", "threads", "-c", "2") as second:
        await until(lambda: len(second.runs("late")) == 2)
        assert await second.stop() == 0


async def test_a_busy_worker_hears_what_is_revoked_where_it_is_told_to_listen(
    node: ChildNode, tmp_path: Path
) -> None:
    """As the guide says: its only child has a task that does not end, and others wait for it."""
    worker = CeleryWorker(tmp_path, node.address, "-c", "1")
    worker.environ["LISTENS"] = "yes"
    async with worker:
        await worker.run("shop.late.delay('hang'); shop.late.delay('hang')")
        await until(lambda: worker.runs("late"))
        said = await worker.run("""
            revoked = shop.note.delay("never")
            shop.app.control.revoke(revoked.id)
            found = shop.app.control.inspect(timeout=30, limit=1)
            print([revoked.id] in found.revoked().values())
        """)
        assert said == "True\n"
