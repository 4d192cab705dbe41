"""Probes and metrics of a worker, a gateway or a pusher, by HTTP, in a thread of their own.

GET /healthz    200 while all is well (all handlers receive), else 503; as JSON, what is not
GET /metrics    for Prometheus
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from hourwheel.errors import FailedPrecondition
from hourwheel.workers.metrics import Collector, Durations, Family, Sample, Samples
from hourwheel.workers.results import ResultKind

REQUEST_TIMEOUT_S: Final = 10.0


class Health(Protocol):
    """How a program is doing."""

    @property
    def is_healthy(self) -> bool:
        """For probes."""
        ...

    def shown(self) -> Mapping[str, Any]:
        """What `/healthz` answers."""
        ...

    def samples(self) -> Samples:
        """What `/metrics` answers."""
        ...


class HandlerHealth(NamedTuple):
    """How one handler is doing."""

    name: str
    topic: str
    group: str
    is_receiving: bool
    running_count: int
    counts: dict[ResultKind, int]
    durations: Durations
    lost_count: int


class WorkerHealth(NamedTuple):
    """How a worker is doing."""

    handlers: Sequence[HandlerHealth]
    live_processes: int
    restart_count: int

    @property
    def is_healthy(self) -> bool:
        """Whether all handlers receive."""
        return all(one.is_receiving for one in self.handlers) and self.live_processes > 0

    def shown(self) -> Mapping[str, Any]:
        """How many children there are, and which handlers receive, by topic."""
        found: dict[str, dict[str, bool]] = {}
        for one in self.handlers:
            found.setdefault(one.name, {})[one.topic] = one.is_receiving
        return {"processes": self.live_processes, "receiving": found}

    def samples(self) -> Samples:
        """Of `metrics.FAMILIES`."""
        messages: list[Sample] = []
        running: list[Sample] = []
        receiving: list[Sample] = []
        durations: list[Sample] = []
        lost: list[Sample] = []
        for one in self.handlers:
            values = one.name, one.topic, one.group
            running.append((values, one.running_count))
            receiving.append((values, float(one.is_receiving)))
            durations.append((values, one.durations))
            lost.append((values, one.lost_count))
            messages += [
                ((*values, kind.name.lower()), one.counts.get(kind, 0)) for kind in ResultKind
            ]
        return {
            "hourwheel_worker_messages_total": messages,
            "hourwheel_worker_message_duration_seconds": durations,
            "hourwheel_worker_lost_leases_total": lost,
            "hourwheel_worker_running_messages": running,
            "hourwheel_worker_receiving": receiving,
            "hourwheel_worker_processes": [((), self.live_processes)],
            "hourwheel_worker_process_restarts_total": [((), self.restart_count)],
        }


class HealthServer:
    """Answers until it is closed."""

    def __init__(
        self, host: str, port: int, families: Sequence[Family], look: Callable[[], Health]
    ) -> None:
        """Listen.

        Args:
            host: address.
            port: 0 for one that is free.
            families: what there are samples of.
            look: called in other threads.

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
        registry.register(Collector(families, lambda: look().samples(), core))

        class Answers(_Answers):
            def health(self) -> Health:
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

    def health(self) -> Health:
        raise NotImplementedError

    def metrics(self) -> bytes:
        raise NotImplementedError

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
        elif self.path == "/healthz":
            health = self.health()
            code = 200 if health.is_healthy else 503
            self._answer(code, "application/json", json.dumps(health.shown()).encode())
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
