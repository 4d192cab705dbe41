import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_link_pb2 as link
from replication.control.broker_link import LINK_VERSION, TO_CONTROL_BYTES_MAX, BrokerLink
from replication.raft.frames import pack_frame, read_frame
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

HELLO = link.BrokerFrame(
    hello=link.LinkHello(version=LINK_VERSION, node_id="n1", boot_id=b"b" * 16)
)
PING = link.BrokerFrame(ping=link.LinkPing())


class World:
    """A link with a clock that stands still."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.link = BrokerLink(self, self.clock, 1_000.0)
        self.brokers: list[str] = []
        self.frames: list[str | None] = []
        self.changes: list[bool] = []

    def on_broker(self, hello: link.LinkHello) -> None:
        self.brokers.append(hello.node_id)

    def on_frame(self, frame: link.BrokerFrame) -> None:
        self.frames.append(frame.WhichOneof("frame"))

    def on_alive_changed(self) -> None:
        self.changes.append(self.link.is_alive)

    def on_ended(self) -> None:
        raise AssertionError("this process lives")

    async def connect(
        self, *frames: link.BrokerFrame
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        for frame in frames:
            writer.write(pack_frame(frame.SerializeToString()))
        return reader, writer


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "run" / "control.sock")
    await world.link.start(world.path)
    try:
        yield world
    finally:
        world.link.close()


async def test_broker_is_alive_while_it_speaks(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        assert world.link.left_ms is not None
        _, writer = await world.connect(HELLO)
        await until(lambda: world.brokers == ["n1"])
        assert world.changes == [True]
        assert world.link.check_alive() == world.clock.monotonic_ms() + 1_000
        for _ in range(9):
            world.clock.pass_ms(100)
            assert world.link.is_alive
        world.clock.pass_ms(100)
        assert world.link.check_alive() is None
        assert world.changes == [True, False], "it hangs"
        writer.write(pack_frame(PING.SerializeToString()))
        await until(lambda: world.frames == ["ping"])
        assert world.changes == [True, False, True], "it lives again"
        writer.close()


async def test_broker_is_dead_at_once_when_its_connection_ends(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        _, writer = await world.connect(HELLO)
        await until(lambda: world.link.is_alive)
        writer.close()
        await until(lambda: world.changes == [True, False])
        assert world.link.left_ms == world.clock.monotonic_ms()


async def test_broker_is_not_blamed_when_this_process_was_stopped(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        _, writer = await world.connect(HELLO)
        await until(lambda: world.link.is_alive)
        world.clock.pass_ms(5_000)
        assert world.link.is_alive
        for _ in range(10):
            world.clock.pass_ms(100)
            world.link.check_alive()
        assert world.changes == [True, False]
        writer.close()


async def test_new_broker_replaces_the_old_one(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        reader, old = await world.connect(HELLO)
        await until(lambda: len(world.brokers) == 1)
        new_reader, new = await world.connect(HELLO)
        await until(lambda: len(world.brokers) == 2)
        assert await reader.read() == b""
        assert world.link.is_alive
        world.link.send(link.ControlFrame(ping=link.LinkPing()))
        frame = link.ControlFrame.FromString(await read_frame(new_reader, 100))
        assert frame.HasField("ping")
        old.close()
        new.close()


@pytest.mark.parametrize(
    "raw",
    [
        pack_frame(PING.SerializeToString()),
        pack_frame(link.BrokerFrame(hello=link.LinkHello(version=99)).SerializeToString()),
        pack_frame(b"\x80\x04pickle"),
        pack_frame(b""),
        (TO_CONTROL_BYTES_MAX + 1).to_bytes(4, "little"),
    ],
)
async def test_nonsense_is_cut_off(tmp_path: Path, raw: bytes) -> None:
    async with listening(tmp_path) as world:
        reader, writer = await world.connect()
        writer.write(raw)
        assert await reader.read() == b""
        assert world.brokers == []
        writer.close()


async def test_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        assert world.path.parent.stat().st_mode & 0o777 == 0o700
    assert not world.path.exists()


async def test_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    world = World(tmp_path / "run" / "control.sock")
    with pytest.raises(errors.ConfigError, match="0700"):
        await world.link.start(world.path)


async def test_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        left_over = World(world.path)
        await left_over.link.start(world.path)
        _, writer = await world.connect(HELLO)
        await until(lambda: left_over.brokers == ["n1"])
        writer.close()
        left_over.link.close()


async def test_path_that_is_too_long_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    world = World(tmp_path / "run" / ("x" * 200))
    with pytest.raises(errors.ConfigError, match="cannot listen"):
        await world.link.start(world.path)


async def test_nothing_is_logged_when_the_process_ends_beside_a_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As `asyncio.run` ends when Raft has died: all tasks are cancelled, nothing is closed."""
    async with listening(tmp_path) as world:
        _, writer = await world.connect(HELLO)
        await until(lambda: world.brokers)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # callbacks of what has ended
        writer.transport.abort()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_bug_of_the_handler_is_logged_and_the_broker_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(tmp_path) as world:
        monkeypatch.setattr(world, "on_frame", lambda frame: 1 / 0)
        reader, writer = await world.connect(HELLO, PING)
        with pytest.raises((EOFError, OSError)):
            await read_frame(reader, 10)
        writer.transport.abort()
        await until(lambda: "broker_handler_failed" in caplog.text)


async def test_start_says_it_when_there_is_no_room_for_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(errors.DiskFull):
        await World(tmp_path / "run" / "control.sock").link.start(tmp_path / "run" / "control.sock")
