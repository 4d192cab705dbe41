"""What `hourwheel http` tells Prometheus and probes: one table, and counts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hourwheel import errors
from hourwheel.workers.metrics import Durations, Family, Sample, Samples

OTHER: Final = "other"
"""Route of what is none."""
GONE: Final = "gone"
"""Status where the caller hung up before there was one."""
LIMITS: Final = (
    *("connections", "gave_way", "handshake", "accept"),
    *("bodies_bytes", "checks", "callers"),
)
"""What the gateway refuses or ends for a bound of its own."""

FAMILIES: Final = (
    Family(
        "hourwheel_http_requests_total",
        "counter",
        ("route", "status"),
        "Requests by the operation's name in the OpenAPI document (other: none of them) and status"
        " (gone: the caller hung up first).",
    ),
    Family(
        "hourwheel_http_request_duration_seconds",
        "histogram",
        ("route",),
        "From the head of a request to its answer; the waiting of long polls is in it.",
    ),
    Family("hourwheel_http_inflight_requests", "gauge", (), "Requests being answered."),
    Family("hourwheel_http_long_polls", "gauge", (), "Receive calls being answered."),
    Family(
        "hourwheel_http_refused_total",
        "counter",
        ("reason",),
        "Requests that were refused, by typed reason (docs/ERRORS.md).",
    ),
    Family(
        "hourwheel_http_limited_total",
        "counter",
        ("limit",),
        "What was refused or ended for a bound of the gateway: connections (all had a call under"
        " way), gave_way (one whose request had not come as a whole, for a new one), handshake (TLS"
        " failed, or took too long), accept (the system had no room), bodies_bytes, checks"
        " (credentials being looked at), callers.",
    ),
    Family("hourwheel_http_request_bytes_total", "counter", (), "Bodies of requests, read whole."),
    Family("hourwheel_http_response_bytes_total", "counter", (), "Bodies of answers."),
    Family("hourwheel_http_connections", "gauge", (), "Connections (key connections)."),
    Family(
        "hourwheel_http_body_bytes",
        "gauge",
        (),
        "Bodies that are being read or answered (key bodies_bytes).",
    ),
    Family("hourwheel_http_callers", "gauge", (), "Credentials that have a channel to the nodes."),
    Family(
        "hourwheel_http_files_refused",
        "gauge",
        (),
        "1 while the configuration, or a file that it names, cannot be used and the former stays.",
    ),
)


class HttpCounts:
    """Of one gateway. Belongs to its event loop; `samples` may be called in another thread."""

    def __init__(self) -> None:
        """None yet."""
        self.requests: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[str] = Counter()
        self.limited: Counter[str] = Counter(dict.fromkeys(LIMITS, 0))
        self.durations: dict[str, Durations] = {}
        self.inflight: Counter[str] = Counter()
        """By route."""
        self.request_bytes = self.response_bytes = 0

    def add(self, route: str, status: str, ms: float) -> None:
        """A request has been answered, or its caller has gone."""
        self.requests[route, status] += 1
        self.durations.setdefault(route, Durations()).add(ms)

    def add_refused(self, error: errors.HourwheelError) -> None:
        """A request is answered with an error."""
        self.refused[error.reason] += 1
        limit = error.params.get("limit", "")
        if isinstance(error, errors.Overloaded) and limit in self.limited:
            self.limited[limit] += 1

    def samples(self, waiting_route: str) -> Samples:
        """Of `FAMILIES`, but for what others know; `waiting_route`: of long polls."""
        inflight = dict(self.inflight)
        durations: list[Sample] = [((name,), one) for name, one in self.durations.copy().items()]
        return {
            "hourwheel_http_requests_total": list(self.requests.copy().items()),
            "hourwheel_http_request_duration_seconds": durations,
            "hourwheel_http_inflight_requests": [((), sum(inflight.values()))],
            "hourwheel_http_long_polls": [((), inflight.get(waiting_route, 0))],
            "hourwheel_http_refused_total": _named(self.refused),
            "hourwheel_http_limited_total": _named(self.limited),
            "hourwheel_http_request_bytes_total": [((), self.request_bytes)],
            "hourwheel_http_response_bytes_total": [((), self.response_bytes)],
        }


class HttpHealth(NamedTuple):
    """How a gateway is doing."""

    counted: Samples
    connection_count: int
    body_bytes: int
    caller_count: int
    is_refused: bool
    is_stopping: bool

    @property
    def is_healthy(self) -> bool:
        """Whether it takes calls."""
        return not self.is_stopping

    def shown(self) -> Mapping[str, Any]:
        """As `/healthz` of the gateway's own port."""
        return {"status": "stopping" if self.is_stopping else "ok"}

    def samples(self) -> Samples:
        """Of `FAMILIES`."""
        return {
            **self.counted,
            "hourwheel_http_connections": [((), self.connection_count)],
            "hourwheel_http_body_bytes": [((), self.body_bytes)],
            "hourwheel_http_callers": [((), self.caller_count)],
            "hourwheel_http_files_refused": [((), float(self.is_refused))],
        }


def _named(counts: Counter[str]) -> list[Sample]:
    return [((name,), count) for name, count in counts.copy().items()]
