"""Clients in programs that fork, with a real node: gunicorn's workers, and multiprocessing."""

import asyncio
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from hourwheel import AsyncConsumer
from hourwheel.formats.message_id import MessageId
from node.process.subprocess_node import ChildNode
from tests.support.eventually import before_the_next_look, until

APPLICATION: Final = """
import os
from hourwheel import Message, Producer

producer = Producer(os.environ["NODE"])  # once, before gunicorn forks


def application(environ, start_response):
    ids = [producer.publish("orders", Message(b"%d" % os.getpid())) for _ in range(3)]
    start_response("200 OK", [])
    return [f"{os.getpid()} {' '.join(map(str, ids))}".encode()]
"""

POOLS: Final = """
import multiprocessing, os
from hourwheel import Message, Producer, errors

made = Producer(os.environ["NODE"])
used = Producer(os.environ["NODE"])


def publish(which):
    try:
        producer = {"made": made, "used": used}.get(which) or Producer(os.environ["NODE"])
        return str(producer.publish("orders", Message(which.encode())))
    except errors.HourwheelError as error:
        return error.reason


def play(method, which):
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(method, which, *pool.map(publish, [which] * 4, chunksize=2), flush=True)


if __name__ == "__main__":
    play("fork", "made")
    play("fork", "new")
    play("spawn", "made")
    used.publish("orders", Message(b"parent"))
    play("fork", "used")
    play("fork", "new")
    play("spawn", "new")
    used.publish("orders", Message(b"parent"))
    used.close()
    play("fork", "new")
"""
ENVIRONMENT: Final = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}


async def ask(address: Path) -> tuple[int, set[str]]:
    """One request: the worker that answered, and the ids that it got."""
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(address)
            break
        except ConnectionRefusedError:  # the socket's file is there before anybody listens
            await before_the_next_look()
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.split()[1] == b"200", answer
    pid, *ids = answer.split(b"\r\n\r\n")[1].decode().split()
    return int(pid), set(ids)


async def everything(node: str, count: int) -> list[tuple[MessageId, bytes]]:
    """The messages of the topic, of which there are `count`."""
    found: list[tuple[MessageId, bytes]] = []
    async with AsyncConsumer(node, group="g", topic="orders") as consumer:
        while len(found) < count:
            messages = await consumer.receive()
            assert messages, f"only {len(found)} of {count} came"
            found += [(message.message_id, message.body) for message in messages]
            await consumer.ack(messages)
        assert await consumer.receive(wait_ms=1) == []
    return found


async def test_producer_when_gunicorn_forks_its_workers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    address = tmp_path / "http"
    async with ChildNode(tmp_path / "node", log_file=tmp_path / "log") as node:
        gunicorn = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "2"),
            *("--bind", f"unix:{address}", "--log-level", "warning", "shop:application"),
            cwd=tmp_path,
            env={**ENVIRONMENT, "NODE": node.address},
        )
        answers: dict[int, set[str]] = defaultdict(set)
        try:
            async with asyncio.timeout(60):
                await until(address.exists)
                while len(answers) < 2:
                    for pid, ids in await asyncio.gather(*(ask(address) for _ in range(8))):
                        answers[pid] |= ids
        finally:
            gunicorn.terminate()
            assert await gunicorn.wait() == 0
        ids = set[str]().union(*answers.values())
        found = await everything(node.address, len(ids))
    assert {str(message_id) for message_id, _ in found} == ids
    for message_id, body in found:  # none was taken for another worker's
        assert str(message_id) in answers[int(body)]


async def test_producer_when_multiprocessing_forks_or_spawns(tmp_path: Path) -> None:
    (tmp_path / "pools.py").write_text(POOLS)
    async with ChildNode(tmp_path / "node", log_file=tmp_path / "log") as node:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "pools.py"),
            cwd=tmp_path,
            env={**ENVIRONMENT, "NODE": node.address},
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            said, _ = await program.communicate()
        assert program.returncode == 0
        plays = [line.split() for line in said.decode().splitlines()]
        ids = {one for play in plays for one in play[2:] if one != "FORKED"}
        await everything(node.address, len(ids) + 2)
    assert [(method, which, set(got) == {"FORKED"}) for method, which, *got in plays] == [
        ("fork", "made", False),
        ("fork", "new", False),
        ("spawn", "made", False),
        ("fork", "used", True),
        ("fork", "new", True),
        ("spawn", "new", False),
        ("fork", "new", True),
    ]
    assert len(ids) == 4 * 4
