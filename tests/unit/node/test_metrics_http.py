"""The HTTP server for Prometheus."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from hourwheel.errors import ConfigError
from node.metrics_http import MetricsServer, in_loop


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
