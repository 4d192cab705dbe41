"""Backups of a real node while it is published to, received from and cancelled at, and restored."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.outcomes import CancelOutcome
from node.process.subprocess_node import ChildNode
from tests.support.audit_runs import errors_of, run_audit
from tests.support.backup_commands import Commands
from tests.support.cluster_load import GROUP, TOPIC, ClusterLoad
from tests.support.eventually import until

VALUES: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
LATER: Final = "later"
HOUR_MS: Final = 3_600_000
BACKUPS_MIN: Final = 2
BACKUPS_MAX: Final = 20


class Known(NamedTuple):
    """What the clients have answers for."""

    kept: frozenset[bytes]
    cancelled: frozenset[bytes]
    published: frozenset[bytes]
    arrived: frozenset[bytes]


class Cancels:
    """Publishes messages that are due in an hour, and cancels every second one."""

    def __init__(self, server: str) -> None:
        self.kept: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self._server, self._is_over = server, False

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await self._running

    async def _run(self) -> None:
        async with AsyncProducer(self._server) as producer, AsyncAdmin(self._server) as admin:
            number = 0
            while not self._is_over:
                kept, gone = (b"%d" % (number + one) for one in range(2))
                number += 2
                messages = [Message(body, delay_ms=HOUR_MS) for body in (kept, gone)]
                published = await producer.publish_many(LATER, messages)
                self.kept.add(kept)
                assert await admin.cancel(published[1]) is CancelOutcome.CANCELLED
                self.cancelled.add(gone)


def known(load: ClusterLoad, cancels: Cancels) -> Known:
    sets: Iterable[Iterable[bytes]] = (
        *(cancels.kept, cancels.cancelled),
        *(load.acknowledged, load.arrived),
    )
    return Known(*map(frozenset, sets))


class Taken(NamedTuple):
    """A backup, and what was known before and after it."""

    name: str
    before: Known
    after: Known


def are_enough(taken: list[Taken]) -> bool:
    """Whether all that is done to the node was done during these backups, too: they are quick."""
    return len(taken) >= BACKUPS_MIN and all(
        any(len(one.after[kind]) > len(one.before[kind]) for one in taken)
        for kind in range(len(Known._fields))
    )


async def check_restored(data: Path, before: Known, after: Known) -> None:
    """A node that begins with it has all that was answered before, and nothing that was done."""
    async with ChildNode(data, VALUES, log_file=data.with_suffix(".log")) as node:
        async with AsyncAdmin(node.address) as admin:
            listed = admin.list_pending(LATER, with_bodies=True)
            pending = Counter([one.body async for one in listed])
        assert set(pending.values()) == {1}
        assert before.kept <= pending.keys()
        assert not before.cancelled & pending.keys()
        due = before.published - after.arrived
        got: set[bytes] = set()
        async with AsyncConsumer(node.address, group=GROUP, topic=TOPIC) as consumer:

            async def receive() -> None:
                while True:
                    received = await consumer.receive(100, wait_ms=1_000)
                    got.update(one.body for one in received)
                    consumer.ack_soon(received)

            receiving = asyncio.create_task(receive())
            await until(lambda: receiving.done() or got >= due)
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                await receiving
    assert errors_of(run_audit(data)) == []


async def test_backups_under_load_are_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, data, folder = Commands(capsys), tmp_path / "data", tmp_path / "backups"
    taken: list[Taken] = []
    async with (
        ChildNode(data, VALUES, log_file=tmp_path / "node.log") as node,
        ClusterLoad(node.address) as load,
        Cancels(node.address) as cancels,
    ):
        while not are_enough(taken):
            assert len(taken) < BACKUPS_MAX, "each of them goes on during the backups"
            await load.some(200)
            before = known(load, cancels)
            (made,) = await commands.backup("create", data, "--to", folder)
            taken.append(Taken(made["backup"], before, known(load, cancels)))
        await load.finish()
        assert load.failures == []
    assert errors_of(run_audit(data)) == []
    verified = await commands.backup("verify", folder)
    assert [one["damaged"] for one in verified] == [[]] * len(taken)
    for number, one in enumerate((taken[0], taken[-1])):
        new = tmp_path / f"restored-{number}"
        await commands.restore(
            *("--from", folder, "--backup", one.name, "--to", new, "--overdue", "release")
        )
        await check_restored(new, one.before, one.after)
