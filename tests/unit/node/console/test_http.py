"""Connections to the console, and their bounds."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest

from hourwheel.errors import ConfigError
from node.console.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    Answer,
    ConsolePort,
    PortLimits,
    Request,
)

LIMITS = PortLimits(connections=8, working_count=2, sending_count=2)


class Echo:
    """Answers with what it was asked; at "/wait" when the test says so, at "/bug" not at all."""

    def __init__(self) -> None:
        self.has_begun, self.may_go_on = threading.Semaphore(0), threading.Event()
        self.count = 0

    async def answer(self, request: Request) -> Answer:
        self.count += 1
        if request.target == "/bug":
            raise RuntimeError("a bug")
        if request.target == "/wait":
            self.has_begun.release()
            await asyncio.to_thread(self.may_go_on.wait)
        if request.target == "/much":
            return Answer(HTTPStatus.OK, b"x" * (32 << 20))
        told = f"{request.method} {request.target} {request.headers.get('x-a')} ".encode()
        return Answer(HTTPStatus.OK, told + request.body, headers={"X-B": "1"})


@pytest.fixture
def echo() -> Iterator[Echo]:
    found = Echo()
    yield found
    found.may_go_on.set()


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    ports: list[ConsolePort] = []

    def make(echo: Echo, limits: PortLimits = LIMITS) -> str:
        ports.append(ConsolePort("127.0.0.1:0", echo.answer, limits))
        return ports[-1].start()

    yield make
    for port in ports:
        port.stop()


def connect(address: str, raw: bytes = b"") -> socket.socket:
    host, port = address.split(":")
    made = socket.create_connection((host, int(port)), timeout=30)
    made.sendall(raw)
    return made


def received(connection: socket.socket) -> bytes:
    """All until the server closes."""
    found = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            found += more
    connection.close()
    return found


def get(address: str, path: str = "/") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = (answer.status, answer.read())
    connection.close()
    return found


def test_requests_are_answered_one_after_the_other_on_one_connection(
    start: Callable[..., str], echo: Echo
) -> None:
    connection = http.client.HTTPConnection(start(echo), timeout=30)
    for number in range(3):
        connection.request("POST", f"/{number}?q", body=b"body", headers={"X-A": "a"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["X-B"]) == (200, "1")
        assert answer.read() == f"POST /{number}?q a body".encode()
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


def test_headers_of_one_name_are_joined(start: Callable[..., str], echo: Echo) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nConnection: close\r\n\r\n"
    assert received(connect(start(echo), raw)).endswith(b"GET / 1, 2 ")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\0\x01\0", 400),
        (b"GET / FTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (HEAD_BYTES_MAX + 1), 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (2 * BODY_BYTES_MAX)
            + b"x" * (BODY_BYTES_MAX + 1),
            413,
        ),
    ],
)
def test_request_is_refused_and_the_connection_closed_when_it_is_none(
    raw: bytes, status: int, start: Callable[..., str], echo: Echo
) -> None:
    address = start(echo)
    assert received(connect(address, raw)).startswith(f"HTTP/1.1 {status} ".encode())
    assert echo.count == 0
    assert get(address)[0] == 200


def test_body_is_waited_for_when_the_client_asks_first(
    start: Callable[..., str], echo: Echo
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n"
    connection = connect(start(echo), head + b"Connection: close\r\n\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
    connection.sendall(b"x")
    assert received(connection).endswith(b"POST / None x")


def test_those_who_wait_give_way_when_there_are_too_many(
    start: Callable[..., str], echo: Echo
) -> None:
    address = start(echo)
    silent = [connect(address, b"G") for _ in range(3 * LIMITS.connections)]
    assert get(address)[0] == 200
    assert [received(one) for one in silent[: 2 * LIMITS.connections]] == [b""] * 16
    for one in silent:
        one.close()


def test_thousand_connections_that_stay_open_are_answered_and_cost_few_places(
    start: Callable[..., str], echo: Echo
) -> None:
    address, threads = start(echo), set(threading.enumerate())
    raw = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
    opened = []
    for number in range(1_000):
        opened.append(connect(address, raw % number))
        assert opened[-1].recv(1 << 12).endswith(b"/%d None " % number)
    assert set(threading.enumerate()) <= threads, "none was started"
    closed = [one for one in opened[: 1_000 - LIMITS.connections] if received(one) == b""]
    assert len(closed) == 1_000 - LIMITS.connections
    for one in opened:
        one.close()


def test_request_is_not_cut_off_but_the_next_one_refused_when_many_are_worked_on(
    start: Callable[..., str], echo: Echo
) -> None:
    address = start(echo)
    wait = b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    working = [connect(address, wait) for _ in range(LIMITS.working_count)]
    for _ in working:
        assert echo.has_begun.acquire(timeout=30)
    silent = [connect(address) for _ in range(2 * LIMITS.connections)]
    status, body = get(address)
    assert (status, body) == (503, b"the console is busy: try again\n")
    echo.may_go_on.set()
    assert all(received(one).endswith(b"GET /wait None ") for one in working)
    for one in silent:
        one.close()


def test_answers_that_nobody_reads_are_few(start: Callable[..., str], echo: Echo) -> None:
    address = start(echo)
    ask = b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    deaf = [connect(address, ask) for _ in range(3 * LIMITS.sending_count)]
    assert get(address)[0] == 200
    whole = [one for one in deaf if len(received(one)) > 32 << 20]
    assert len(whole) <= LIMITS.sending_count


@pytest.mark.parametrize("limits", [PortLimits(request_s=0.05)])
def test_connection_is_closed_when_its_request_does_not_come(
    limits: PortLimits, start: Callable[..., str], echo: Echo
) -> None:
    connection = connect(start(echo, limits), b"GET / HTTP/1.1\r\n")
    assert received(connection) == b""


def test_failure_answers_one_request_only(start: Callable[..., str], echo: Echo) -> None:
    address = start(echo)
    assert get(address, "/bug")[0] == 500
    assert get(address)[0] == 200


def test_stop_cuts_off_who_waits(echo: Echo) -> None:
    port = ConsolePort("127.0.0.1:0", echo.answer)
    address = port.start()
    silent = connect(address)
    assert get(address)[0] == 200  # accepted after that one
    port.stop()
    assert received(silent) == b""
    with pytest.raises(ConnectionRefusedError):
        get(address)


def test_start_is_refused_when_the_port_is_taken(start: Callable[..., str], echo: Echo) -> None:
    address = start(echo)
    with pytest.raises(ConfigError, match=r"console\.listen"):
        ConsolePort(address, echo.answer).start()
