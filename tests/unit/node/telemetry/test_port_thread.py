"""A listening socket with a thread of its own."""

import asyncio
import socket
import threading

import pytest

from hourwheel.errors import ConfigError
from node.telemetry.port_thread import PortThread


class Server:
    """Greets the first who comes, and says which thread it is."""

    async def serve(self, listening: socket.socket, is_over: asyncio.Event) -> None:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(listening)
        await loop.sock_sendall(connection, threading.current_thread().name.encode())
        connection.close()
        await is_over.wait()
        listening.close()


def greeting(address: str) -> str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as connection:
        return connection.recv(100).decode()


def test_port_is_served_on_a_thread_of_its_own_until_it_is_stopped() -> None:
    port = PortThread("key", "127.0.0.1:0", "a-name")
    address = port.start(Server().serve)
    assert greeting(address) == "a-name"
    port.stop()
    with pytest.raises(ConnectionRefusedError):
        greeting(address)
    port.stop()  # harmless
    again = port.start(Server().serve)
    assert greeting(again) == "a-name"
    port.stop()


def test_start_is_refused_by_its_key_when_the_address_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"^the\.key = "),
    ):
        PortThread("the.key", f"127.0.0.1:{taken.getsockname()[1]}", "x").start(Server().serve)
