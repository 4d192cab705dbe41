"""Celery as its users run it, at a real node: `hourwheel.integrations.kombu`."""

import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message
from hourwheel.client.groups.dead_letters import DeadLetterMessage
from hourwheel.outcomes import DeadLetterReason
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
    """The bridge process sees that the worker is gone, whose leases would last for 15 minutes."""
    async with CeleryWorker(tmp_path, node.address, "--pool", "solo") as first:
        await first.run("shop.late.delay('hang')")
        await until(lambda: first.runs("late"))
        os.kill(first.process.pid, 9)
    async with CeleryWorker(tmp_path, node.address, "--pool", "threads", "-c", "2") as second:
        await until(lambda: len(second.runs("late")) == 2)
        assert await second.stop() == 0


async def test_what_is_rejected_is_a_dead_letter_until_it_is_given_to_the_workers_again(
    node: ChildNode, tmp_path: Path
) -> None:
    """By the task itself, by a worker that does not know the task, or as it is no task at all."""
    async with (
        CeleryWorker(tmp_path, node.address, "-c", "1") as worker,
        AsyncAdmin(node.address) as admin,
        AsyncProducer(node.address) as producer,
    ):

        async def dead() -> list[DeadLetterMessage]:
            return [one async for one in admin.list_dead_letters("celery")]

        async def count_dead(count: int) -> None:
            async def are_there() -> bool:
                return len(await dead()) == count

            await until_told(are_there)

        await worker.run("""
            shop.refuse.delay("x")
            shop.app.send_task("shop.gone")
            shop.note.delay("done")
        """)
        await producer.publish("celery", Message(b"no task"))
        await until(lambda: worker.runs("note"))
        await count_dead(3)
        why = "its worker, whose log says why, rejected"
        assert sorted(one.rejected_because for one in await dead()) == [
            f"{why} it",
            f"{why} task shop.gone",
            f"{why} task shop.refuse",
        ]
        assert {one.topic for one in await dead()} == {"celery"}
        (tmp_path / "willing").touch()
        assert (await admin.redrive("celery", "*")).redriven_count == 3
        await until(lambda: len(worker.runs("refuse")) == 2)
        await count_dead(2)
        assert await worker.stop() == 0


async def test_a_task_that_kills_its_child_each_time_is_a_dead_letter_after_the_last_attempt(
    node: ChildNode, tmp_path: Path
) -> None:
    async with AsyncAdmin(node.address) as admin:
        await admin.put_group("celery", attempts_max=3)
        async with CeleryWorker(tmp_path, node.address, "-c", "1") as worker:
            await worker.run("shop.late.delay('poison')")
            await until(lambda: len(worker.runs("late")) == 3)

            async def is_given_up() -> bool:
                return bool([one async for one in admin.list_dead_letters("celery")])

            await until_told(is_given_up)
            await worker.run("shop.note.delay('next')")
            await until(lambda: worker.runs("note"))
            assert await worker.stop() == 0
        (letter,) = [one async for one in admin.list_dead_letters("celery")]
        assert (letter.attempts, letter.reason) == (3, DeadLetterReason.ATTEMPTS_USED_UP)
    assert [what for what, _ in worker.runs("late")] == ["poison"] * 3


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


async def test_chains_groups_and_chords_run_with_their_countdowns(
    node: ChildNode, tmp_path: Path
) -> None:
    """With results in files: a chord is joined by a task that is retried until all are done."""
    worker = CeleryWorker(tmp_path, node.address, "-c", "2")
    (tmp_path / "results").mkdir()
    worker.environ["RESULTS"] = f"file://{tmp_path}/results"
    async with worker:
        said = await worker.run("""
            import time
            from celery import chain, chord, group

            begun_ms = time.time() * 1_000
            add, total = shop.add, shop.total
            chained = chain(add.s(1, 1), add.s(2).set(countdown=1), add.s(3)).apply_async()
            grouped = group(add.s(n, 10).set(countdown=n / 2) for n in range(3)).apply_async()
            late = group(add.s(n, 20) for n in range(3)).apply_async(countdown=1)
            joined = chord(
                [add.s(n, 30).set(countdown=n / 2) for n in range(3)], total.s().set(countdown=1)
            ).apply_async()
            nested = chain(
                group(add.s(n, 40) for n in range(2)), total.s(), add.s(1), add.s(1)
            ).apply_async(countdown=1)
            failing = chord([add.s(5, 5), add.s(5, None)], total.s()).apply_async()
            print(chained.get(60), grouped.get(60), late.get(60), joined.get(60), nested.get(60))
            try:
                failing.get(60)
            except Exception as error:
                print(type(error).__name__)
            print(begun_ms)
        """)
        assert await worker.stop() == 0
    results, error, begun_ms = said.splitlines()
    assert results == "7 [10, 11, 12] [20, 21, 22] 93 83"
    assert error == "TypeError"
    added = {what: ms - float(begun_ms) for what, ms in worker.runs("add")}
    assert len(added) == len(worker.runs("add")), "each once"
    for what, after_ms in {
        "2+2": 1_000,
        "1+10": 500,
        "2+10": 1_000,
        "0+20": 1_000,
        "2+30": 1_000,
        "0+40": 1_000,
    }.items():
        assert added[what] >= after_ms, what
    (total_ms,) = [ms - float(begun_ms) for what, ms in worker.runs("total") if what == "93"]
    assert total_ms >= 2_000
