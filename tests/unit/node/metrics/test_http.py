"""The HTTP server for Prometheus."""

import asyncio
import gzip
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.parser import text_string_to_metric_families

from hourwheel.errors import ConfigError
from hourwheel.stalls import Stall
from node.metrics.http import (
    ANSWERED_COUNT_MAX,
    ASKING_COUNT_MAX,
    HEAD_BYTES_MAX,
    MetricsServer,
    admit_in_loop,
    in_loop,
    probe_in_loop,
)
from node.telemetry.stalls import Stalls


@pytest.fixture
def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    Gauge("answer", "The answer.", registry=found).set(42)
    return found


@pytest.fixture
def address(registry: CollectorRegistry) -> Iterator[str]:
    server = MetricsServer("127.0.0.1:0", registry)
    yield server.start()
    server.stop()


def get(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    found = (answer.status, answer.read().decode())
    connection.close()
    return found


def test_metrics_are_served_in_prometheus_format(address: str) -> None:
    status, text = get(address, "/metrics")
    (family,) = text_string_to_metric_families(text)
    assert (status, family.name, family.samples[0].value) == (200, "answer", 42)


def test_last_stalls_are_told_newest_first() -> None:
    stalls = Stalls()
    for at_ms in (1, 2):
        stalls.add(Stall(at_ms, 20.0, 20.0, 0.0, 0.0, {"apply": 20.0}))
    server = MetricsServer("127.0.0.1:0", stalls=stalls)
    address = server.start()
    try:
        status, text = get(address, "/stalls")
    finally:
        server.stop()
    shown = json.loads(text)
    assert (status, shown["count"], shown["by_cause"]["apply"]) == (200, 2, 2)
    assert [one["at_ms"] for one in shown["last"]] == [2, 1]


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/metrics/", "/debug", "/../etc/passwd"])
def test_nothing_else_is_served(address: str, path: str) -> None:
    status, text = get(address, path)
    assert status == 404
    assert "answer" not in text


def test_only_reading_is_allowed(address: str) -> None:
    assert get(address, "/metrics", "POST")[0] == 405


def test_scrapes_are_answered_while_somebody_says_nothing(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))):
        assert get(address, "/metrics")[0] == 200


class Wait:
    """A collector that answers when the test says so."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.scrape_count = 0
        registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        self.scrape_count += 1
        self.has_begun.set()
        self.may_go_on.wait()
        return []


def sent(address: str, raw: bytes) -> socket.socket:
    """A connection on which this was sent."""
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


def test_scrapes_are_answered_when_many_connections_send_halves(address: str) -> None:
    before = threading.active_count()
    slow = [sent(address, b"GET /metrics HTTP/1.1\r\n") for _ in range(ASKING_COUNT_MAX)]
    for one in slow:
        one.sendall(b"X")
    for _ in range(3):
        slow += [sent(address, b"G") for _ in range(ASKING_COUNT_MAX)]
        assert get(address, "/metrics")[0] == 200
    assert threading.active_count() <= before + 2
    # Who came above the number took the place of who was there longest.
    assert [received(one) for one in slow[: 3 * ASKING_COUNT_MAX]] == [b""] * 3 * ASKING_COUNT_MAX
    for one in slow:
        one.close()


def test_connection_is_cut_when_its_request_trickles_in(registry: CollectorRegistry) -> None:
    server = MetricsServer("127.0.0.1:0", registry, deadline_s=0.1)
    connection = sent(server.start(), b"GET /metrics HTTP/1.1\r\n")
    connection.settimeout(0.01)
    is_open = True
    while is_open:  # a byte, and another, as long as it is let
        try:
            connection.sendall(b"a")
            is_open = connection.recv(1) != b""
        except TimeoutError:
            continue
        except ConnectionError:
            is_open = False
    connection.close()
    server.stop()


def test_request_is_refused_when_its_head_is_too_long(address: str) -> None:
    connection = sent(address, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES_MAX + 1))
    assert received(connection).startswith(b"HTTP/1.1 431 ")
    assert get(address, "/metrics")[0] == 200


@pytest.mark.parametrize("raw", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\0 / FTP\r\n\r\n"])
def test_request_is_refused_when_it_is_none(address: str, raw: bytes) -> None:
    assert received(sent(address, raw)).startswith(b"HTTP/1.1 400 ")


def test_answers_that_nobody_reads_are_few(address: str, registry: CollectorRegistry) -> None:
    many = Gauge("many", "Much to read.", ["name"], registry=registry)
    for number in range(20_000):
        many.labels(f"{number:0200}").set(number)
    ask = b"GET /metrics HTTP/1.1\r\n\r\n"
    deaf = [sent(address, ask) for _ in range(2 * ANSWERED_COUNT_MAX)]
    assert get(address, "/metrics")[0] == 200
    heard = [received(one) for one in deaf]
    assert sum(b"19999" in one for one in heard) <= ANSWERED_COUNT_MAX


def test_those_who_ask_together_share_a_scrape(address: str, registry: CollectorRegistry) -> None:
    wait = Wait(registry)
    ask = b"GET /metrics HTTP/1.1\r\n\r\n"
    asking = [sent(address, ask) for _ in range(ANSWERED_COUNT_MAX - 1)]
    assert wait.has_begun.wait(30)
    assert get(address, "/")[0] == 404  # read after theirs
    wait.may_go_on.set()
    assert all(b"answer 42" in received(one) for one in asking)
    assert wait.scrape_count in {1, 2}


def test_scrape_fails_and_the_next_one_works_when_a_collector_raises(
    address: str, registry: CollectorRegistry
) -> None:
    class Failing:
        def describe(self) -> list[Metric]:
            return []

        def collect(self) -> list[Metric]:
            raise TimeoutError

    failing = Failing()
    registry.register(failing)
    assert get(address, "/metrics")[0] == 503
    registry.unregister(failing)
    assert get(address, "/metrics")[0] == 200


def test_forms_are_those_that_prometheus_asks_for(address: str) -> None:
    raw = received(
        sent(
            address,
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n"
            b"accept: application/openmetrics-text;version=99;q=0.5,text/plain\r\n\r\n",
        )
    )
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"Content-Type: application/openmetrics-text; version=1.0.0" in head
    assert b"Content-Encoding: gzip" in head
    assert gzip.decompress(body).endswith(b"answer 42.0\n# EOF\n")


async def test_probes_tell_by_their_status_and_say_why() -> None:
    reasons = {"/live": "", "/ready": "it is not in sync"}
    loop = asyncio.get_running_loop()
    probes = {
        path: probe_in_loop(loop, lambda path=path: reasons[path])  # type: ignore[misc]
        for path in reasons
    }
    server = MetricsServer("127.0.0.1:0", probes=probes)
    address = server.start()
    try:
        assert await asyncio.to_thread(get, address, "/live") == (200, "yes\n")
        assert await asyncio.to_thread(get, address, "/ready?verbose") == (
            503,
            "it is not in sync\n",
        )
        reasons["/ready"] = ""
        assert await asyncio.to_thread(get, address, "/ready") == (200, "yes\n")
        assert (await asyncio.to_thread(get, address, "/startup"))[0] == 404
        assert (await asyncio.to_thread(get, address, "/live", "POST"))[0] == 405
    finally:
        await asyncio.to_thread(server.stop)


def test_probe_says_no_when_the_loop_does_not_answer() -> None:
    hanging = asyncio.new_event_loop()  # nobody runs it
    try:
        answer = asyncio.run(probe_in_loop(hanging, lambda: "", timeout_s=0.05)())
        assert answer == "the event loop does not answer"
        hanging.run_until_complete(asyncio.sleep(0))  # what was asked is not left behind
    finally:
        hanging.close()


def test_probes_are_answered_while_a_scrape_waits_for_the_node() -> None:
    registry = CollectorRegistry()
    wait = Wait(registry)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = MetricsServer("127.0.0.1:0", registry, {"/live": probe_in_loop(loop, lambda: "")})
    address = server.start()
    try:
        asking = sent(address, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert wait.has_begun.wait(30)
        assert get(address, "/live")[0] == 200
        wait.may_go_on.set()
        assert received(asking).startswith(b"HTTP/1.1 200 ")
    finally:
        server.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_scrapes_fail_while_there_is_nothing_to_tell(registry: CollectorRegistry) -> None:
    server = MetricsServer("127.0.0.1:0")
    address = server.start()
    try:
        assert get(address, "/metrics")[0] == 503
        server.tell(registry)
        assert get(address, "/metrics")[0] == 200
        server.tell(None)
        assert get(address, "/metrics")[0] == 503
    finally:
        server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/stalls"])
async def test_numbers_and_stalls_are_for_those_who_are_let_in(
    registry: CollectorRegistry, path: str
) -> None:
    asked = list[tuple[str, str, str, int]]()

    async def admit(authorization: str, host: str, path: str) -> HTTPStatus:
        asked.append((authorization, host, path, threading.get_ident()))
        known = {"": HTTPStatus.UNAUTHORIZED, "Bearer good": HTTPStatus.OK}
        return known.get(authorization, HTTPStatus.FORBIDDEN)

    loop = asyncio.get_running_loop()
    probes = {"/live": probe_in_loop(loop, lambda: "")}
    server = MetricsServer("127.0.0.1:0", registry, probes, admit=admit_in_loop(loop, admit))
    address = server.start()

    async def ask(path: str, *fields: str) -> bytes:
        raw = "\r\n".join([f"GET {path} HTTP/1.1", *fields, "", ""]).encode()
        return await asyncio.to_thread(lambda: received(sent(address, raw)))

    try:
        stranger = await ask(path)
        assert stranger.startswith(b"HTTP/1.1 401 ")
        assert b"WWW-Authenticate: Bearer, Basic realm=Hourwheel" in stranger
        other = await ask(path, "Authorization: Bearer other")
        assert other.startswith(b"HTTP/1.1 403 ")
        assert b"answer 42" not in stranger + other
        assert (await ask(path, "AUTHORIZATION:  Bearer good")).startswith(b"HTTP/1.1 200 ")
        here = threading.get_ident()
        assert asked == [
            (given, "127.0.0.1", path, here) for given in ("", "Bearer other", "Bearer good")
        ]
        assert (await ask("/live")).startswith(b"HTTP/1.1 200 ")  # for everybody
        assert len(asked) == 3
    finally:
        await asyncio.to_thread(server.stop)


def test_nobody_is_let_in_when_the_loop_does_not_answer() -> None:
    hanging = asyncio.new_event_loop()  # nobody runs it

    async def admit(_authorization: str, _host: str, _path: str) -> HTTPStatus:
        return HTTPStatus.OK

    async def ask() -> HTTPStatus:
        there = admit_in_loop(hanging, admit, timeout_s=0.05)
        return await there("Bearer good", "host", "/metrics")

    try:
        assert asyncio.run(ask()) is HTTPStatus.SERVICE_UNAVAILABLE
        hanging.run_until_complete(asyncio.sleep(0))  # what was asked is not left behind
    finally:
        hanging.close()


def test_methods_are_told_to_who_asks_for_them(address: str) -> None:
    answer = received(sent(address, b"OPTIONS /metrics HTTP/1.1\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Allow: OPTIONS,GET\r\n" in answer
    assert b"answer" not in answer


def test_stop_cuts_off_who_waits(registry: CollectorRegistry) -> None:
    wait = Wait(registry)
    server = MetricsServer("127.0.0.1:0", registry)
    address = server.start()
    asking = sent(address, b"GET /metrics HTTP/1.1\r\n\r\n")
    silent = sent(address, b"")
    assert wait.has_begun.wait(30)
    server.stop()
    assert (received(asking), received(silent)) == (b"", b"")
    wait.may_go_on.set()
    with pytest.raises(ConnectionRefusedError):
        get(address, "/metrics")


def test_start_is_refused_when_the_port_is_taken(address: str, registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigError, match=r"node\.metrics_listen"):
        MetricsServer(address, registry).start()


def test_stop_is_harmless_when_it_never_started(registry: CollectorRegistry) -> None:
    MetricsServer("127.0.0.1:0", registry).stop()


async def test_in_loop_runs_on_the_loops_thread() -> None:
    async def ident() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    ask = in_loop(asyncio.get_running_loop(), ident)
    assert await asyncio.to_thread(ask) == threading.get_ident()


async def test_in_loop_hands_errors_to_who_asked() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.to_thread(in_loop(asyncio.get_running_loop(), fail))
