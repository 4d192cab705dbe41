"""What `hourwheel push` tells Prometheus and probes: one table, and counts of a subscription."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourwheel.webhooks.results import PostResult
from hourwheel.workers.metrics import Durations, Family, Sample, Samples

_ONE: Final = ("subscription",)

FAMILIES: Final = (
    Family(
        "hourwheel_push_posts_total",
        "counter",
        ("subscription", "result"),
        "POSTs by what came of them: done (2xx), redirect, refused (4xx), failed (5xx and others),"
        " timeout, unresolved, address_refused, unreachable, tls, closed, not_http; damaged: the"
        " message could not be read.",
    ),
    Family(
        "hourwheel_push_post_duration_seconds",
        "histogram",
        _ONE,
        "From the beginning of a POST, connection included, to the head of the answer or failure.",
    ),
    Family("hourwheel_push_inflight_posts", "gauge", _ONE, "POSTs under way."),
    Family(
        "hourwheel_push_receiving",
        "gauge",
        _ONE,
        "1 if the last poll of each topic was answered; 0: receiving backs off, up to 30 s.",
    ),
    Family(
        "hourwheel_push_connections_total",
        "counter",
        _ONE,
        "Connections to the target that were made, or tried: far fewer than POSTs where they are"
        " kept.",
    ),
    Family("hourwheel_push_sent_bytes_total", "counter", _ONE, "Bodies of POSTs."),
    Family(
        "hourwheel_push_retry_after_total",
        "counter",
        _ONE,
        "Answers whose Retry-After said when the message comes again.",
    ),
    Family("hourwheel_push_subscriptions", "gauge", (), "Subscriptions that are served."),
    Family(
        "hourwheel_push_files_refused",
        "gauge",
        (),
        "1 while the configuration, or a file that it names, cannot be used and the former stays.",
    ),
)

_NAMES: Final = tuple(family.name for family in FAMILIES if family.labels == _ONE)


class PushCounts:
    """Of one subscription, since the program began, whatever it was changed to."""

    def __init__(self) -> None:
        """None yet."""
        self.posts: Counter[PostResult] = Counter()
        self.durations = Durations()
        self.sent_bytes = 0
        self.retry_after_count = 0
        self.dial_count = 0
        """Of posters that are gone."""

    def add(self, result: PostResult, ms: float, size: int) -> None:
        """A POST has ended."""
        self.posts[result] += 1
        self.durations.add(ms)
        self.sent_bytes += size


class SubscriptionHealth(NamedTuple):
    """How one subscription is doing."""

    name: str
    is_receiving: bool
    running_count: int
    dial_count: int
    """Of the poster that it has now."""
    counts: PushCounts


class PushHealth(NamedTuple):
    """How all of them are doing."""

    subscriptions: Sequence[SubscriptionHealth]
    is_refused: bool

    @property
    def is_healthy(self) -> bool:
        """Whether all receive."""
        return all(one.is_receiving for one in self.subscriptions)

    def shown(self) -> Mapping[str, Any]:
        """Which of them receive."""
        return {"receiving": {one.name: one.is_receiving for one in self.subscriptions}}

    def samples(self) -> Samples:
        """Of `FAMILIES`."""
        posts: list[Sample] = []
        found: dict[str, list[Sample]] = {name: [] for name in _NAMES}
        for one in self.subscriptions:
            posts += [((one.name, kind), one.counts.posts[kind]) for kind in PostResult]
            values: tuple[float | Durations, ...] = (
                one.counts.durations,
                one.running_count,
                float(one.is_receiving),
                one.counts.dial_count + one.dial_count,
                one.counts.sent_bytes,
                one.counts.retry_after_count,
            )
            for name, value in zip(_NAMES, values, strict=True):
                found[name].append(((one.name,), value))
        return {
            "hourwheel_push_posts_total": posts,
            **found,
            "hourwheel_push_subscriptions": [((), len(self.subscriptions))],
            "hourwheel_push_files_refused": [((), float(self.is_refused))],
        }
