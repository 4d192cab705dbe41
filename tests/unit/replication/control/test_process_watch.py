"""What counts as the end of a process: its end, and nothing that only looks like it."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hourwheel.internal.v1 import control_link_pb2 as link
from replication.control.broker_link import LINK_VERSION, BrokerLink, ProcessWatch
from replication.raft.frames import pack_frame
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

_CHILD = """
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(bytes.fromhex(sys.argv[2]))
print("connected", flush=True)
for line in sys.stdin:
    if line == "hang up\\n":
        link.close()
    print("done", flush=True)
"""


def hello(number: int) -> bytes:
    said = link.LinkHello(version=LINK_VERSION, node_id="n1", boot_id=bytes([number]) * 16)
    return pack_frame(link.BrokerFrame(hello=said).SerializeToString())


class World:
    """A control process's end of the link, and what it hears."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.link = BrokerLink(self, FakeClock(), 1_000.0)
        self.boots: list[int] = []
        self.ends: list[int] = []

    def on_broker(self, hello: link.LinkHello) -> None:
        self.boots.append(hello.boot_id[0])

    def on_frame(self, frame: link.BrokerFrame) -> None:
        raise AssertionError(frame)

    def on_alive_changed(self) -> None:
        """Asked of the link."""

    def on_ended(self) -> None:
        self.ends.append(self.link.ended_boot_id[0])

    async def connect(self, number: int) -> asyncio.subprocess.Process:
        """A process that says hello with a boot id of its own."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CHILD, str(self.path), hello(number).hex()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"connected\n"
        await until(lambda: number in self.boots)
        return process


async def hang_up(process: asyncio.subprocess.Process) -> None:
    """Have it close its connection, and live on."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hang up\n")
    assert await process.stdout.readline() == b"done\n"


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "run" / "control.sock")
    await world.link.start(world.path)
    try:
        yield world
    finally:
        world.link.close()


async def test_end_of_the_process_is_told_when_it_is_killed(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        broker = await world.connect(7)
        broker.kill()
        await until(lambda: world.ends == [7])
        assert not world.link.is_alive
        assert world.link.left_ms is not None
        await broker.wait()


async def test_end_is_told_also_when_nobody_listens_any_more(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        broker = await world.connect(7)
        world.link.cut_off()
        broker.kill()
        await until(lambda: world.ends == [7])
        await broker.wait()


@pytest.mark.parametrize("how", ["hangs up", "is stopped"])
async def test_I4_nothing_has_ended_when_a_process_only_falls_silent(  # noqa: N802
    tmp_path: Path, how: str
) -> None:
    async with listening(tmp_path) as world:
        broker = await world.connect(7)
        if how == "hangs up":
            await hang_up(broker)
            await until(lambda: world.link.left_ms is not None)
        else:
            broker.send_signal(signal.SIGSTOP)
        other = await world.connect(8)  # by now the loop has seen what there was to see
        assert world.ends == []
        assert world.link.ended_boot_id == b""
        for process in (other, broker):
            process.kill()
            await process.wait()


async def test_incarnation_that_connected_last_is_the_one_that_is_watched(tmp_path: Path) -> None:
    async with listening(tmp_path) as world:
        former, present = await world.connect(7), await world.connect(8)
        former.kill()
        await former.wait()
        present.kill()
        await until(lambda: bool(world.ends))
        assert world.ends == [8]
        await present.wait()


@pytest.mark.parametrize(
    ("error", "ends"), [(ProcessLookupError(), 1), (PermissionError(), 0), (OSError(), 0)]
)
async def test_process_that_cannot_be_watched_has_ended_only_if_there_is_none(
    error: OSError, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise error

    monkeypatch.setattr("os.pidfd_open", refuse)
    heard: list[str] = []
    here, there = socket.socketpair()
    with here, there:
        ProcessWatch().watch(here, lambda: heard.append("ended"))
    assert len(heard) == ends


async def test_nothing_is_told_where_the_system_has_no_such_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.pidfd_open")
    heard: list[str] = []
    here, there = socket.socketpair()
    with here, there:
        ProcessWatch().watch(here, lambda: heard.append("ended"))
    assert heard == []
