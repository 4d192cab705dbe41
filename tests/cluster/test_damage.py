"""Damaged files of a node that does not run: what is found, what is said, what is still delivered.

One real node is killed under way, and one is stopped. Each test damages a copy of what they left,
and opens it with a real node in this process; that such errors become exit codes and log lines of a
process is shown once for each.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from chaos.history import body_of, serial_of
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CancelOutcome,
    Message,
    MessageId,
    errors,
)
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Kind, RecordBatch
from node.process.lifecycle import EXIT_DATA
from storage.files.file_header import FILE_HEADER_BYTES, VERSIONS, FileType
from tests.support.embedded_node import EmbeddedNode
from tests.support.faulty_node import FaultyNode
from tests.support.reaper import complaints_of, events_of, small_node
from tests.support.stored import SHARD, digests_of

FAR, NOW = 30 * 86_400_000, 0
ANY_SIZE: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
_VERSION_AT: Final = 8


@dataclass
class Left:
    """What a node left, and what it had promised."""

    directory: Path
    ids: dict[int, MessageId]
    """By serial."""
    pending: int

    def copy(self, folder: Path) -> "Left":
        """The same, to be damaged."""
        directory = folder / "data"
        shutil.copytree(self.directory, directory)
        return Left(directory, self.ids, self.pending)

    @property
    def segments(self) -> list[Path]:
        """Files of the log, oldest first."""
        return sorted((self.directory / SHARD / "log").glob("*.log"))


async def _live(folder: Path, *, stopped: bool) -> Left:
    """A node's short life: messages released and not consumed, cancelled, and far ahead."""
    directory = folder / "data"
    values = small_node(log={"segment_bytes": 1 << 16, "index_interval_bytes": 1 << 12})
    if not stopped:
        values["wheel"] = {}  # no checkpoint comes under way: all is to be read from the log
    ids: dict[int, MessageId] = {}
    async with FaultyNode(directory, values, log_file=folder / "node.log") as node:
        async with AsyncProducer(node.address) as producer:
            for first in range(0, 3_000, 100):
                delay_ms = (NOW, FAR, FAR + first)[first // 100 % 3]
                serials = range(first, first + 100)
                messages = [Message(body_of(one), delay_ms=delay_ms) for one in serials]
                found = await producer.publish_many("orders", messages)
                ids.update(zip(serials, found, strict=True))
        async with AsyncAdmin(node.address) as admin:
            await admin.cancel_many([ids[one] for one in range(100, 200)])
        if stopped:
            assert await node.stop() == 0
        else:
            await node.kill()
    return Left(directory, ids, 1_900)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Of a node that was killed before any checkpoint."""
    return asyncio.run(_live(tmp_path_factory.mktemp("killed"), stopped=False))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Of a node that wrote checkpoints under way, and one when it was stopped."""
    return asyncio.run(_live(tmp_path_factory.mktemp("stopped"), stopped=True))


def flip(path: Path, at: int) -> None:
    """Flip a bit."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def batches_of(segment: Path) -> Iterator[tuple[int, RecordBatch]]:
    """(byte in the file, batch) of each batch in a segment."""
    raw, start = segment.read_bytes()[FILE_HEADER_BYTES:], int(segment.stem)
    at = 0
    while at < len(raw):
        batch = RecordBatch(raw[at:])
        assert batch.header.offset == start + at
        yield FILE_HEADER_BYTES + at, batch
        at += batch.header.total_bytes


async def opens(left: Left) -> None:
    """It opens, holds what was promised, and is the same when it is opened again."""
    async with EmbeddedNode(left.directory, ANY_SIZE) as node, AsyncAdmin(node.address) as admin:
        shard = (await admin.status()).shards[0]
        assert shard.published_count == len(left.ids)
        assert shard.pending_count == left.pending
        assert shard.cancelled_count == 100
    found = digests_of(left.directory)
    assert found.restored == found.rebuilt


async def refusal(left: Left) -> errors.HourwheelError:
    """What keeps a node from starting there."""
    with pytest.raises(errors.HourwheelError) as caught:
        await EmbeddedNode(left.directory, ANY_SIZE).node.start()
    return caught.value


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What a node in this process has logged."""
    logged: list[Any] = [record.msg for record in caplog.records]
    return [one for one in logged if isinstance(one, dict) and one["event"] == event]


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["header", "columns", "body"])
async def test_start_is_refused_when_a_bit_of_the_log_has_flipped(
    killed: Left, tmp_path: Path, part: str
) -> None:
    left = killed.copy(tmp_path)
    segment = left.segments[len(left.segments) // 2]
    places = [one for one in batches_of(segment) if one[1].header.kind == Kind.PUBLISH]
    at, batch = places[len(places) // 2]
    flip(segment, at + {"header": 20, "columns": batch.blob_offset - 9, "body": -9}[part])
    if part == "body":
        at, batch = places[len(places) // 2 - 1]
    error = await refusal(left)
    assert isinstance(error, errors.CorruptLog)
    assert error.params["file"] == str(segment.relative_to(left.directory))
    assert str(batch.header.offset) in error.message
    assert str(at) in error.message


async def test_process_says_where_when_a_bit_of_the_log_has_flipped(
    killed: Left, tmp_path: Path
) -> None:
    left, log = killed.copy(tmp_path), tmp_path / "node.log"
    segment = left.segments[0]
    flip(segment, segment.stat().st_size // 2)
    node = FaultyNode(left.directory, small_node(), log_file=log)
    with pytest.raises(errors.Unavailable):
        await node.start()
    assert await node.ended() == EXIT_DATA
    (complaint,) = complaints_of(log)
    assert complaint["error_type"] == "CorruptLog"
    assert complaint["file"] == f"{SHARD}/log/{segment.name}"
    assert int(complaint["offset"]) < segment.stat().st_size


async def test_start_is_refused_when_the_log_is_cut_below_its_durable_end(
    killed: Left, tmp_path: Path
) -> None:
    left = killed.copy(tmp_path)
    last = left.segments[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 100)
    assert isinstance(await refusal(left), errors.CorruptLog)


@pytest.mark.parametrize("which", [0, 1])
async def test_start_is_refused_when_a_segment_is_missing(
    killed: Left, tmp_path: Path, which: int
) -> None:
    left = killed.copy(tmp_path)
    left.segments[which].unlink()
    assert isinstance(await refusal(left), errors.DataLoss)


@pytest.mark.parametrize(
    "tail",
    [bytes(5_000), b"\xff" * 777, b"HWRB" * 100, None],
    ids=["zeros", "garbage", "magic", "half a batch"],
)
@pytest.mark.parametrize("was_killed", [True, False], ids=["killed", "stopped"])
async def test_torn_tail_is_cut_when_it_was_never_durable(
    killed: Left,
    stopped: Left,
    tmp_path: Path,
    tail: bytes | None,
    caplog: pytest.LogCaptureFixture,
    *,
    was_killed: bool,
) -> None:
    caplog.set_level(logging.INFO)
    left = (killed if was_killed else stopped).copy(tmp_path)
    last = left.segments[-1]
    end = last.stat().st_size
    if tail is None:
        _, batch = next(batches_of(left.segments[0]))
        tail = bytes(batch.payload)[: batch.header.total_bytes // 2]
    with last.open("ab") as file:
        file.write(tail)
    await opens(left)
    (cut,) = said(caplog, "torn_tail_cut")
    assert cut["file"] == f"{SHARD}/log/{last.name}"
    assert (cut["position"], cut["bytes"]) == (end, len(tail))


async def test_process_says_what_it_cut_when_it_was_killed_while_writing(
    killed: Left, tmp_path: Path
) -> None:
    left, log = killed.copy(tmp_path), tmp_path / "node.log"
    with left.segments[-1].open("ab") as file:
        file.write(bytes(4_096))
    async with FaultyNode(left.directory, small_node(), log_file=log) as node:
        assert await node.stop() == 0
    cut = next(one for one in events_of(log) if one["event"] == "torn_tail_cut")
    assert (cut["level"], cut["bytes"]) == ("warning", 4_096)


async def test_damaged_message_is_left_out_when_its_batch_was_applied_long_ago(
    stopped: Left, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = stopped.copy(tmp_path)
    segment = left.segments[0]
    at, batch = next(one for one in batches_of(segment) if one[1].header.kind == Kind.PUBLISH)
    flip(segment, at + batch.blob_offset + len(body_of(0)) + 3)  # in the second message's body
    lost = batch.header.base_sequence + 1
    async with (
        EmbeddedNode(left.directory, ANY_SIZE) as node,
        AsyncConsumer(node.address, group="workers", topic="orders") as consumer,
    ):
        seen: set[int] = set()
        while len(seen) < 999:
            messages = await consumer.receive(1_000)
            seen |= {serial_of(one.body) or 0 for one in messages}
            await consumer.ack(messages)
    released = {serial for serial in left.ids if serial // 100 % 3 == 0}
    assert released - seen == {next(n for n, one in left.ids.items() if one.sequence == lost)}
    (complaint,) = said(caplog, "damaged_message_withheld")
    assert complaint["file"] == f"{SHARD}/log/{segment.name}"
    assert int(complaint["offset"]) == batch.header.offset + batch.blob_offset + len(body_of(0))


# -- the views ------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """As an operator's slip, or a file system's repair."""
    path.unlink()


def cut(path: Path) -> None:
    """Half of the file is gone."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """All of it is gone, but not its name."""
    path.write_bytes(b"")


def flip_last(path: Path) -> None:
    """Tables and checksums stand at the end of many files."""
    flip(path, path.stat().st_size - 20)


VIEW_DAMAGE: Final[dict[str, tuple[str, Callable[[Path], None]]]] = {
    f"{name} {damage.__name__}": (pattern, damage)
    for name, pattern, damages in (
        ("checkpoint", "checkpoint", (remove, cut, empty, flip_last)),
        ("run", "wheel/*.run", (remove, cut, empty, flip_last)),
        ("sequence tail", "sequences/tail", (remove, cut, empty, flip_last)),
        ("tombstones", "tombstones/*.tomb", (remove, cut, empty, flip_last)),
        ("sequences", "sequences/*.seq", (remove, empty)),
        ("delay log", "wheel/*.dlog", (remove, cut, empty)),
        ("queue", "queues/*/*.cq", (remove, cut, empty)),
    )
    for damage in damages
}


@pytest.mark.parametrize("name", VIEW_DAMAGE)
async def test_views_are_rebuilt_from_the_log_when_they_are_damaged(
    stopped: Left, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    left = stopped.copy(tmp_path)
    pattern, damage = VIEW_DAMAGE[name]
    damage(min((left.directory / SHARD).glob(pattern)))
    await opens(left)
    (told,) = said(caplog, "views_rebuilt")
    assert told["reason"]


async def test_node_is_sound_again_in_the_same_process_when_damage_shows_under_way(
    stopped: Left, tmp_path: Path
) -> None:
    left, log = stopped.copy(tmp_path), tmp_path / "node.log"
    path = min((left.directory / SHARD / "sequences").glob("*.seq"))
    flip(path, path.stat().st_size // 2)  # of sequences that nobody asks for at a start
    node = FaultyNode(left.directory, small_node(), log_file=log)
    waiting = [one for one in left.ids if one // 100 % 3 == 2]
    ids = [left.ids[one] for one in waiting]
    try:
        await node.start()
        async with AsyncAdmin(node.address) as admin:  # it tries again: cancelling is repeatable
            assert set(await admin.cancel_many(ids)) == {CancelOutcome.CANCELLED}
        assert await node.stop() == 0
    finally:
        if node.is_there:
            await node.kill()
    told = [one["event"] for one in events_of(log)]
    assert told.index("views_damaged") < told.index("node_restarting")
    assert "views_rebuilt" in told
    assert complaints_of(log)[-1]["file"] == str(path.relative_to(left.directory))


VERSIONED: Final = {
    FileType.NODE: "node.meta",
    FileType.LOG_SEGMENT: f"{SHARD}/log/*.log",
    FileType.LOG_INDEX: f"{SHARD}/log/*.index",
    FileType.FLUSHED_MARK: f"{SHARD}/flushed.mark",
    FileType.EPOCHS: f"{SHARD}/epochs",
    FileType.CHECKPOINT: f"{SHARD}/checkpoint",
    FileType.CONSUME_QUEUE: f"{SHARD}/queues/*/*.cq",
    FileType.SEQUENCE_INDEX: f"{SHARD}/sequences/*.seq",
    FileType.TOMBSTONES: f"{SHARD}/tombstones/*.tomb",
    FileType.RUN: f"{SHARD}/wheel/*.run",
    FileType.DELAY_LOG: f"{SHARD}/wheel/*.dlog",
}


def set_version(path: Path, version: int) -> None:
    """As a later version of Hourwheel would have written the file: its header is intact."""
    raw = bytearray(path.read_bytes())
    raw[_VERSION_AT : _VERSION_AT + 2] = version.to_bytes(2, "little")
    crc_at = FILE_HEADER_BYTES - 4
    raw[crc_at:FILE_HEADER_BYTES] = crc32c(bytes(raw[:crc_at])).to_bytes(4, "little")
    path.write_bytes(raw)


@pytest.mark.parametrize("file_type", VERSIONED, ids=lambda one: str(one.name.lower()))
async def test_start_is_refused_when_a_file_is_of_another_version(
    stopped: Left, tmp_path: Path, file_type: FileType
) -> None:
    left = stopped.copy(tmp_path)
    path = min(left.directory.glob(VERSIONED[file_type]))
    set_version(path, VERSIONS[file_type] + 1)
    before = path.read_bytes()
    error = await refusal(left)
    assert isinstance(error, errors.IncompatibleFormat)
    assert str(path.relative_to(left.directory)) in error.message
    assert path.read_bytes() == before
