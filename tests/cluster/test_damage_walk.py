"""A bit flips in a file of a node that runs, at each kind of place; then everything is asked of it.

Nothing acknowledged is lost, nothing wrong is served, the process stays: a damaged body is withheld
and listed, a damaged view is built anew within the process. One real process for each place.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from chaos.history import body_of, serial_of
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CancelOutcome,
    FilterExpression,
    Message,
    MessageId,
)
from storage.files.file_header import FILE_HEADER_BYTES
from storage.queues.queue_chunk import ENTRIES_AT
from tests.support.eventually import until_told
from tests.support.faulty_node import FaultyNode
from tests.support.reaper import events_of, small_node
from tests.support.stored import SHARD

FAR_MS: Final = 30 * 86_400_000
RELEASED, PENDING, CANCELLED = range(200), range(200, 500), range(500, 540)
FRESH = range(1_000, 1_020)
DAMAGED_PENDING: Final = (PENDING[50], PENDING[60])
_HANG_S: Final = 120.0


@dataclass
class Life:
    """A node that has run for a while, as it lies on the disk, and what it promised."""

    directory: Path
    ids: dict[int, MessageId]


async def _live(folder: Path) -> Life:
    ids: dict[int, MessageId] = {}
    async with FaultyNode(folder / "data", _values()) as node:
        async with AsyncProducer(node.address) as producer, AsyncAdmin(node.address) as admin:
            for serials, delay_ms in ((RELEASED, 0), (PENDING, FAR_MS), (CANCELLED, FAR_MS)):
                drafts = [
                    Message(body_of(one), delay_ms=delay_ms + one, tags=(_tag(one),))
                    for one in serials
                ]
                found = await producer.publish_many("orders", drafts)
                ids.update(zip(serials, found, strict=True))
            await admin.cancel_many([ids[one] for one in CANCELLED])
            await _released(admin)
        assert await node.stop() == 0
    # A second one would have what is released by the time of the walk, which never looks there.
    assert len([*(folder / "data" / SHARD).glob("wheel/*.run")]) == 1
    return Life(folder / "data", ids)


async def _released(admin: AsyncAdmin) -> None:
    """Wait until all that is to be released is: on the disk the wheel has what is pending alone."""

    async def are_released() -> bool:
        return (await admin.get_topic("orders")).released_count >= len(RELEASED)

    await until_told(are_released)


def _values() -> dict[str, dict[str, object]]:
    return small_node(log={"segment_bytes": 1 << 16, "index_interval_bytes": 1 << 12})


def _tag(serial: int) -> str:
    return "even" if serial % 2 == 0 else "odd"


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return asyncio.run(_live(tmp_path_factory.mktemp("life")))


def body(serial: int) -> Callable[[bytes], int]:
    """In a message's body."""
    return lambda raw: raw.index(body_of(serial))


def part(share: float) -> Callable[[bytes], int]:
    """So far behind the header; 1.0 is the last byte."""
    return lambda raw: FILE_HEADER_BYTES + int((len(raw) - 1 - FILE_HEADER_BYTES) * share)


PLACES: Final[dict[str, tuple[str, Callable[[bytes], int]]]] = {
    "log body": ("log/*.log", body(RELEASED[50])),
    "log body of a pending message": ("log/*.log", body(PENDING[50])),
    "log batch header": ("log/*.log", lambda _: FILE_HEADER_BYTES + 20),
    "log file header": ("log/*.log", lambda _: 20),
    "delay log body": ("wheel/*.dlog", body(PENDING[60])),
    "delay log header": ("wheel/*.dlog", lambda _: 20),
    "run header": ("wheel/*.run", lambda _: 20),
    "run units": ("wheel/*.run", part(0.1)),
    "run directory": ("wheel/*.run", part(0.9)),
    "run footer": ("wheel/*.run", part(1.0)),
    "queue seal": ("queues/*/*.cq", lambda _: FILE_HEADER_BYTES + 100),
    "queue entry": ("queues/*/*.cq", lambda _: ENTRIES_AT + 100),
    "queue header": ("queues/*/*.cq", lambda _: 20),
    "sequence index": ("sequences/*.seq", part(0.5)),
    "tombstones": ("tombstones/*.tomb", part(0.5)),
    "checkpoint": ("checkpoint", part(0.5)),
}


NOTICED: Final = {
    "log body": "damaged_message_withheld",
    "run units": "views_damaged",
    "queue entry": "views_damaged",
    "run directory": "views_damaged",
}
"""What the log says where the walk is sure to read the place from its file."""


def flip(root: Path, pattern: str, find: Callable[[bytes], int]) -> Path:
    """Flip a bit in the first file that has the place."""
    for path in sorted((root / SHARD).glob(pattern)):
        try:
            at = find(path.read_bytes())
        except ValueError:
            continue
        with path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes((byte ^ 1,)))
        return path
    raise AssertionError(f"no such place in {pattern}")


async def _drain(address: str, topic: str, group: str) -> set[int]:
    """Serials of what a group gets, acknowledged, until nothing comes any more."""
    serials = set[int]()
    async with AsyncConsumer(address, group=group, topic=topic, prefetch_messages=0) as consumer:
        while messages := await consumer.receive(100, wait_ms=1_500):
            for one in messages:
                serial = serial_of(one.body)
                assert serial is not None, one.body
                serials.add(serial)
            await consumer.ack(messages)
    return serials


async def _nack_some(address: str, group: str) -> set[int | None]:
    """Give back the first messages that come. Returns which."""
    async with AsyncConsumer(address, group=group, topic="orders", prefetch_messages=0) as consumer:
        messages = await consumer.receive(20, wait_ms=5_000)
        await consumer.nack(messages, delay_ms=1)
        return {serial_of(one.body) for one in messages}


@pytest.mark.parametrize("place", PLACES)
async def test_nothing_is_lost_and_the_process_stays_when_a_bit_flips_under_it(
    life: Life, tmp_path: Path, place: str
) -> None:
    directory, log, ids = tmp_path / "data", tmp_path / "node.log", dict(life.ids)
    shutil.copytree(life.directory, directory)
    node = FaultyNode(directory, _values(), log_file=log)
    try:
        async with asyncio.timeout(_HANG_S):
            await node.start()
            process = node.pid
            flip(directory, *PLACES[place])
            address = node.address
            async with AsyncProducer(address) as producer, AsyncAdmin(address) as admin:
                drafts = [Message(body_of(one), tags=(_tag(one),)) for one in FRESH]
                found = await producer.publish_many("orders", drafts)
                ids.update(zip(FRESH, found, strict=True))
                await admin.put_group("once", attempts_max=1)
                await admin.put_subscription("even", "orders", FilterExpression.tags("even"))
                assert await _nack_some(address, "all")
                dead = await _nack_some(address, "once")
                everything, even, letters = await asyncio.gather(
                    _drain(address, "orders", "all"),
                    _drain(address, "orders", "even"),
                    _drain(address, "%DLQ%once", "letters"),
                )
                listed = {one.message_id for one in await admin.list_damaged()}
                damaged = {serial for serial, one in ids.items() if one in listed}
                released = {*RELEASED, *FRESH}
                assert everything | damaged >= released
                assert everything <= released
                assert even | damaged >= {one for one in released if one % 2 == 0}
                assert not any(one % 2 for one in even)
                assert len(damaged) <= ("body" in place)
                assert letters | damaged >= dead
                assert (await admin.count_pending("orders")).matched_count == len(PENDING)
                bodies = {one.body async for one in admin.list_pending("orders", with_bodies=True)}
                assert bodies >= {body_of(one) for one in PENDING if one not in DAMAGED_PENDING}
                assert bodies - {None, b""} <= {body_of(one) for one in PENDING}
                for serial in (RELEASED[0], PENDING[60], CANCELLED[3]):
                    await admin.describe(ids[serial])
                outcomes = await admin.cancel_many([ids[one] for one in PENDING])
                assert set(outcomes) == {CancelOutcome.CANCELLED}
                assert (await admin.count_pending("orders")).matched_count == 0
            assert node.pid == process
            assert await node.stop() == 0
    finally:
        if node.is_there:
            await node.kill()
    told = [str(one["event"]) for one in events_of(log)]
    assert NOTICED.get(place, told[0]) in told
