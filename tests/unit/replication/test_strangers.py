"""Strangers have few places, and the slow give way."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from replication.strangers import Listener, Places, open_streams
from tests.support.eventually import until


async def test_oldest_has_to_go_when_another_comes() -> None:
    removed: list[None] = []
    places, entered = Places(2, lambda: removed.append(None)), []

    async def stay(name: str, until_: asyncio.Event) -> None:
        with places.one():
            entered.append(name)
            await until_.wait()

    leave = asyncio.Event()
    tasks = [asyncio.ensure_future(stay(name, leave)) for name in "abc"]
    await until(lambda: len(entered) == 3)
    await until(tasks[0].cancelled)
    assert (len(removed), [task.done() for task in tasks[1:]]) == (1, [False, False])
    leave.set()
    await asyncio.gather(*tasks[1:])
    tasks = [asyncio.ensure_future(stay(name, leave)) for name in "de"]
    await asyncio.gather(*tasks)
    assert len(removed) == 1


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[Listener, tuple[str, int], list[BaseException]]]:
    async def serve_one(connection: socket.socket) -> None:
        reader, writer = await open_streams(connection)
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    bugs: list[BaseException] = []
    listener = Listener(serve_one, bugs.append)
    made = socket.create_server(("127.0.0.1", 0))
    accepting = asyncio.ensure_future(listener.accept(made))
    yield listener, made.getsockname(), bugs
    accepting.cancel()
    await asyncio.gather(accepting, return_exceptions=True)
    made.close()
    await listener.close()


async def test_connections_are_served_and_closed_behind_it() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(2))
        await writer.drain()

    async with listening(echo) as (_, address, bugs):
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"hi")
            assert await reader.read() == b"hi"
            writer.close()
            await writer.wait_closed()
    assert bugs == []


async def test_bug_is_told_and_others_are_served() -> None:
    async def fail(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ValueError("no, it is not")

    async with listening(fail) as (_, address, bugs):
        for count in (1, 2):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""
            writer.close()
            assert len(bugs) == count


async def test_close_cuts_off_who_is_served_and_who_was_only_accepted() -> None:
    async def wait(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with listening(wait) as (listener, address, _):
        ends = [await asyncio.open_connection(*address) for _ in range(20)]
        await listener.close()
    for reader, writer in ends:
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            continue  # it was not accepted yet
        finally:
            writer.transport.abort()


async def test_connection_is_not_lost_when_accepting_ends_as_it_comes() -> None:
    """One that nobody holds any more is a ResourceWarning, which fails a test."""

    async def serve(_: socket.socket) -> None:
        await asyncio.Event().wait()

    for turns in range(8):
        listener = Listener(serve, lambda _: None)
        with socket.create_server(("127.0.0.1", 0)) as made:
            accepting = asyncio.ensure_future(listener.accept(made))
            await asyncio.sleep(0)
            with socket.create_connection(made.getsockname(), 30):
                for _ in range(turns):
                    await asyncio.sleep(0)
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)
                await listener.close()


async def test_small_messages_do_not_wait_for_each_others_acknowledgement() -> None:
    found: list[int] = []

    async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async with listening(look) as (_, address, bugs):
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        writer.close()
        assert len(found) == 1
        assert found[0] != 0
        assert bugs == []
