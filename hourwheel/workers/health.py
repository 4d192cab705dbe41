"""Probes and metrics of a worker, by HTTP, in a thread of their own.

GET /healthz    200 while all handlers receive, else 503; as JSON, which of them
GET /metrics    for Prometheus
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

from hourwheel.errors import FailedPrecondition
from hourwheel.workers.results import ResultKind

REQUEST_TIMEOUT_S: Final = 10.0


class HandlerHealth(NamedTuple):
    """How one handler is doing."""

    name: str
    topic: str
    group: str
    is_receiving: bool
    running_count: int
    counts: dict[ResultKind, int]


class WorkerHealth(NamedTuple):
    """How a worker is doing."""

    handlers: Sequence[HandlerHealth]
    live_processes: int
    restart_count: int

    @property
    def is_healthy(self) -> bool:
        """Whether all handlers receive."""
        return all(one.is_receiving for one in self.handlers) and self.live_processes > 0


class HealthServer:
    """Answers until it is closed."""

    def __init__(self, host: str, port: int, look: Callable[[], WorkerHealth]) -> None:
        """`port`: 0 for one that is free; `look`: called in other threads.

        Raises:
            FailedPrecondition: what metrics need is not installed, or the port is taken.
        """
        try:
            client = import_module("prometheus_client")
            core = import_module("prometheus_client.core")
        except ImportError:
            raise FailedPrecondition(
                "metrics need prometheus-client: pip install 'hourwheel[workers]'"
            ) from None
        registry = client.CollectorRegistry()
        registry.register(_Collector(look, core))

        class Answers(_Answers):
            def health(self) -> WorkerHealth:
                return look()

            def metrics(self) -> bytes:
                return bytes(client.generate_latest(registry))

        try:
            self._server = ThreadingHTTPServer((host, port), Answers)
        except OSError as error:
            raise FailedPrecondition(f"cannot listen on {host}:{port}: {error}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answers(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = REQUEST_TIMEOUT_S

    def health(self) -> WorkerHealth:
        raise NotImplementedError

    def metrics(self) -> bytes:
        raise NotImplementedError

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
        elif self.path == "/healthz":
            health = self.health()
            names = {one.name: one.is_receiving for one in health.handlers}
            found = {"processes": health.live_processes, "receiving": names}
            code = 200 if health.is_healthy else 503
            self._answer(code, "application/json", json.dumps(found).encode())
        else:
            self._answer(404, "text/plain", b"there are /healthz and /metrics\n")

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: probes come every few seconds."""


class _Collector:
    """Metrics, made when somebody asks."""

    def __init__(self, look: Callable[[], WorkerHealth], core: Any) -> None:
        self._look, self._core = look, core

    def collect(self) -> Iterator[Any]:
        health = self._look()
        labels = ["handler", "topic", "group"]
        messages = self._core.CounterMetricFamily(
            "hourwheel_worker_messages",
            "Messages that a handler is done with.",
            labels=[*labels, "result"],
        )
        running = self._core.GaugeMetricFamily(
            "hourwheel_worker_running_messages", "Messages in work.", labels=labels
        )
        receiving = self._core.GaugeMetricFamily(
            "hourwheel_worker_receiving", "Whether the last poll was answered.", labels=labels
        )
        for one in health.handlers:
            values = [one.name, one.topic, one.group]
            running.add_metric(values, one.running_count)
            receiving.add_metric(values, float(one.is_receiving))
            for kind in ResultKind:
                messages.add_metric([*values, kind.name.lower()], one.counts.get(kind, 0))
        yield from (messages, running, receiving)
        yield self._core.GaugeMetricFamily(
            "hourwheel_worker_processes", "Children that take messages.", health.live_processes
        )
        yield self._core.CounterMetricFamily(
            "hourwheel_worker_process_restarts",
            "Children that were replaced.",
            health.restart_count,
        )
