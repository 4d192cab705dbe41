"""dramatiq as its users run it, at a real node: `hourwheel.integrations.dramatiq`."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourwheel import AsyncAdmin
from node.process.subprocess_node import ChildNode
from tests.support.dramatiq_worker import DramatiqWorker
from tests.support.eventually import until, until_told


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as found:
        yield found


async def test_messages_are_held_by_the_broker_retried_and_kept_as_dead_letters(
    node: ChildNode, tmp_path: Path
) -> None:
    async with DramatiqWorker(tmp_path, node.address) as worker:
        due_ms = await worker.run("""
            import time
            shop.note.send("soon")
            shop.fail.send("bad")
            print(int(time.time() * 1_000) + 1_000)
            shop.note.send_with_options(args=("due",), delay=1_000)
            gone = shop.note.send_with_options(args=("never",), delay=1_000)
            assert shop.broker.cancel(gone) and not shop.broker.cancel(gone)
            for n in range(20):
                shop.note.send_with_options(args=(n,), delay=9_999_000)
        """)
        await until(lambda: {what for what, _ in worker.runs("note")} == {"soon", "due"})
        await until(lambda: len(worker.runs("fail")) == 3)
        async with AsyncAdmin(node.address) as admin:

            async def is_kept() -> bool:
                found = [one async for one in admin.list_dead_letters("dramatiq")]
                return [one.reason for one in found] != []

            await until_told(is_kept)
            assert (await admin.count_pending("default")).matched_count == 20
        await worker.run("shop.broker.flush_all(); shop.broker.join('default', timeout=60_000)")
        async with AsyncAdmin(node.address) as admin:
            assert (await admin.count_pending("default")).matched_count == 0
    counts = Counter(what for what, _ in worker.runs("note"))
    assert counts == {"soon": 1, "due": 1}
    assert all(ms >= int(due_ms) for what, ms in worker.runs("note") if what == "due")


async def test_what_a_killed_worker_had_comes_again(node: ChildNode, tmp_path: Path) -> None:
    async with DramatiqWorker(tmp_path, node.address) as first:
        await first.run("shop.kill.send('self')")
        await until(lambda: first.runs("kill"))
    async with DramatiqWorker(tmp_path, node.address) as second:
        await until(lambda: len(second.runs("kill")) == 2)
