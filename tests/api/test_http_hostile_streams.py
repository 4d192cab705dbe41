"""Requests that never end, and far too many of them: others are served."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.eventually import until
from tests.support.http_world import HttpWorld

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
PATH: Final = "/v1/topics/t/messages"
MANY: Final = 1_000
PAUSE_S: Final = 0.01
HEAD: Final = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED: Final = f"{HEAD}transfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def world_of(folder: Path, **settings: Any) -> AsyncIterator[HttpWorld]:
    async with HttpWorld(folder, VALUES, **settings) as found:
        assert (await found.post(PATH, {"text": "x"})).status == 201
        yield found


async def dripped(world: HttpWorld, begin: str, drop: str) -> bytes:
    """What is said to one who sends a drop at a time, and never an end."""
    reader, writer = await asyncio.open_connection(*world.address)
    said = asyncio.ensure_future(reader.read())
    try:
        writer.write(begin.encode())
        async with asyncio.timeout(60):
            while not said.done():
                writer.write(drop.encode())
                await asyncio.wait([said], timeout=PAUSE_S)
        return said.result()
    except OSError:
        return b""
    finally:
        said.cancel()
        writer.close()


STREAMS: list[tuple[str, str, set[int]]] = [
    ("", "G", {408}),
    (HEAD, "x", {408}),
    (HEAD, "x: y\r\n", {408, 431}),
    (f"{HEAD}content-length: 100000\r\n\r\n", "[", {408}),
    (CHUNKED, "1\r\n[\r\n", {408}),
    (f"{CHUNKED}1;", "x", {400, 408}),
    (f"{CHUNKED}1\r\n[\r\n0\r\n", "x: y\r\n", {400, 408, 431}),
    (f"{CHUNKED}", "0", {400, 408}),
]


async def test_streams_that_never_end_are_given_up(tmp_path: Path) -> None:
    """However steadily they drip: heads and bodies have a deadline as a whole."""
    async with world_of(tmp_path, head_ms=300, body_ms=300, head_bytes=4_096) as world:
        every = [asyncio.ensure_future(dripped(world, one, drop)) for one, drop, _ in STREAMS]
        for _ in range(3):
            assert (await world.post(PATH, {"text": "x"})).status == 201
        for (begin, drop, statuses), said in zip(
            STREAMS, await asyncio.gather(*every), strict=True
        ):
            # (One who sends while it is refused may lose the answer with the connection.)
            assert not said or int(said.split()[1]) in statuses, (begin[-40:], drop)
        await until(lambda: world.gateway.health(is_refused=False).body_bytes == 0)


async def test_a_chunked_body_without_an_end_is_read_up_to_the_bound(tmp_path: Path) -> None:
    async with world_of(tmp_path, body_bytes=20_000) as world:
        said = await dripped(world, CHUNKED, "400\r\n" + " " * 1_024 + "\r\n")
        assert not said or int(said.split()[1]) == 413
        assert (await world.post(PATH, {"text": "x"})).status == 201


@contextmanager
def closing(opened: "list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]") -> Iterator[None]:
    try:
        yield
    finally:
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("raw", ["", "POST / HT", f"{HEAD}content-length: 9\r\n\r\n[", CHUNKED])
async def test_a_thousand_connections_that_say_too_little(tmp_path: Path, raw: str) -> None:
    """None, half a head, half a body: with the bounds that a gateway has by itself."""
    async with world_of(tmp_path) as world:
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        with closing(opened):
            for _ in range(MANY):
                reader, writer = await asyncio.open_connection(*world.address)
                writer.write(raw.encode())
                opened.append((reader, writer))
            for _ in range(3):
                assert (await world.post(PATH, {"text": "x"})).status == 201
            assert (await world.get("/healthz")).status == 200


async def test_a_thousand_callers_at_one_time_are_served_or_refused(tmp_path: Path) -> None:
    async with world_of(tmp_path) as world:
        one = f"{HEAD}content-length: 13\r\nconnection: close\r\n\r\n" + '{"text": "x"}'

        async def call() -> bytes:
            try:
                reader, writer = await asyncio.open_connection(*world.address)
            except OSError:
                return b""
            try:
                writer.write(one.encode())
                return await reader.read()
            except OSError:
                return b""
            finally:
                writer.close()

        said = await asyncio.gather(*(call() for _ in range(MANY)))
        statuses = {int(one.split()[1]) for one in said if one}
        assert 201 in statuses
        assert statuses <= {201, 503}
        assert (await world.post(PATH, {"text": "x"})).status == 201


DIGITS: Final = "9" * 100_000
NUMBERS: list[tuple[str, int]] = [
    ('{"text": "x", "delay": 1e400}', 400),
    (f'{{"text": "x", "delay": {DIGITS}}}', 400),
    (f'{{"text": "x", "due": -{DIGITS}}}', 400),
    ('{"text": "x", "due": 9223372036854775808}', 400),
    ('{"text": "x", "delay": 18446744073709551616}', 400),
    ('{"text": "x", "delay": 1.5}', 400),
    (f'{{"text": "x", "priority": {DIGITS}}}', 400),
    ('{"json": 1e400}', 400),
    (f'{{"json": {DIGITS}}}', 400),
    (f'{{"json": 0.{DIGITS}}}', 201),
]


async def test_numbers_that_are_too_large(tmp_path: Path) -> None:
    async with world_of(tmp_path) as world:
        for raw, status in NUMBERS:
            answer = await world.ask("POST", PATH, raw.encode(), content_type="application/json")
            assert answer.status == status, (raw[:40], answer.raw[:300])
            assert len(answer.raw) < 2_000
        wrong = {"topic": "t", "max_messages": int(DIGITS[:300]), "wait_ms": 1 << 80}
        answer = await world.post("/v1/groups/g/receive", wrong)
        assert (answer.status, answer.reason) == (400, "INVALID_ARGUMENT")
