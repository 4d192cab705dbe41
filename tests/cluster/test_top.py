"""`hourwheel top` beside real nodes: while they die, on a terminal, and in a script."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Channel, Message
from hourwheel.cli.top.look import GROUPS_PER_LOOK, Look, Watch
from hourwheel.cli.top.reading import Reading, read
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.embedded_node import EmbeddedNode

TOP: Final = (sys.executable, "-m", "hourwheel.cli", "top", "--every", "200ms")
SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}


async def look_until(watch: Watch, condition: Callable[[Reading], object]) -> Reading:
    """Look again and again, as the command does."""
    before: Look | None = None
    async with asyncio.timeout(60):
        while True:
            look = await watch.look()
            reading = read(look, before, 10)
            if condition(reading):
                return reading
            before = look


async def test_nodes_may_die_while_it_looks(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        follower = cluster.nodes[(master + 1) % 3].address
        async with AsyncProducer(cluster.servers) as producer:
            await producer.publish_many("t", [Message(b"", delay_ms=3_600_000)] * 5)
        async with Channel(follower) as channel, Watch(channel, follower) as watch:
            found = await look_until(watch, lambda it: it.pending_count == 5 and it.rates)
            assert found.trouble == ""
            assert [one.state for one in found.nodes] == ["ready"] * 3
            assert sum(one.is_master for one in found.nodes) == 1

            await cluster.kill_node(master)
            found = await look_until(watch, lambda it: it.master not in {"", found.master})
            assert [one.state for one in found.nodes].count("does not answer") == 1
            again = await look_until(watch, lambda it: it.pending_count == 5)
            assert again.epoch >= found.epoch

            await cluster.kill_node((master + 2) % 3)
            found = await look_until(watch, lambda it: it.trouble.startswith("no majority"))
            assert found.master == ""
            assert [one.state for one in found.nodes].count("does not answer") == 2


async def test_script_reads_a_line_each_time(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path) as node:
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("t", [Message(b"")] * 3)
            await producer.publish("t", Message(b"", delay_ms=3_600_000))
        async with AsyncConsumer(node.address, group="g", topic="t") as consumer:
            assert await consumer.receive(1)
            process = await asyncio.create_subprocess_exec(
                *(*TOP, "--server", node.address, "--json"), stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None
            lines = [json.loads(await process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGINT)
            await process.stdout.read()
            assert await process.wait() == 0
    shown: dict[str, Any] = lines[-1]
    assert shown["trouble"] == ""
    assert [one["state"] for one in shown["nodes"]] == ["ready"]
    assert shown["pending_count"] == 1
    within_hour = next(one for one in shown["due"] if one["within_s"] == 3_600)
    assert within_hour["message_count"] == 1
    assert shown["groups"] == [
        {"group": "g", "topic": "t", "unresolved_count": 3, "leased_count": 3}
    ]
    assert set(shown["rates"]) == {"published", "released", "delivered", "acknowledged"}
    assert lines[0]["rates"] is None


async def test_groups_are_asked_about_in_turn_when_there_are_many(tmp_path: Path) -> None:
    count = GROUPS_PER_LOOK * 2
    async with EmbeddedNode(tmp_path) as node, Channel(node.address) as channel:
        admin = AsyncAdmin(channel)
        for number in range(count):
            await admin.put_group(f"g{number:03}")
        async with Watch(channel, node.address) as watch:
            first = read(await watch.look(), None, 10)
            assert (first.group_count, first.groups_read_count) == (count, GROUPS_PER_LOOK)
            await look_until(watch, lambda it: it.groups_read_count == count)


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def test_terminal_is_used_whole_and_given_back(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    set_size(theirs, 30, 100)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    async with EmbeddedNode(tmp_path) as node:
        process = await asyncio.create_subprocess_exec(
            *(*TOP, "--server", node.address),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
        )
        seen = await reader.readuntil(b"pending")
        assert b"\x1b[?1049h" in seen, "the alternate screen"
        set_size(ours, 20, 60)
        process.send_signal(signal.SIGWINCH)
        await reader.readuntil(b"pending")
        process.send_signal(signal.SIGINT)
        rest = await read_to_the_end(reader)
        assert await process.wait() == 0
        transport.close()
    assert b"\x1b[?1049l" in rest, "back to the screen as it was"
    assert b"\x1b[?25h" in rest, "with its cursor"
    assert b"Traceback" not in rest


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    """What is left; Linux ends a terminal whose other side is closed with an error."""
    pieces = []
    try:
        while piece := await reader.read(65_536):
            pieces.append(piece)
    except OSError:
        pass
    return b"".join(pieces)
