"""The engine's counters: plain numbers that it writes and node/metrics/table.py reads.

Pure: nothing here knows Prometheus, so the core counts without a library and tests read ints.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from node.telemetry.histogram import DURATION_BOUNDS, LATENESS_BOUNDS, SIZE_BOUNDS, Histogram
from node.telemetry.spans import Spans

QUOTAS: Final = (
    *("messages_per_s", "bytes_per_s", "pending_messages"),
    *("topics", "groups", "connections", "calls_in_flight"),
)
"""The limits that a quota may have."""


def _durations() -> Histogram:
    return Histogram(DURATION_BOUNDS)


@dataclass(slots=True)
class EngineStats:
    """Counters since the process started, and distributions in seconds. One thread writes."""

    lateness: Histogram = field(default_factory=lambda: Histogram(LATENESS_BOUNDS))
    """Of each released message: when it became visible minus when it was due, in seconds; fed with
    `observe_many(lateness_ms, 0.001)`."""
    early_deliveries: int = 0
    """Messages visible before they were due. Must be 0."""

    append: Histogram = field(default_factory=_durations)
    """From when a group commit begins until it is written and, with sync, durable, in seconds."""
    fsync: Histogram = field(default_factory=_durations)
    """Of each fdatasync of the commit log, in seconds."""
    commit_bytes: int = 0
    """Bytes written to the commit log."""
    commit_batches: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS))
    """Record batches of each group commit."""

    published: int = 0
    """Messages accepted."""
    duplicates: int = 0
    """Messages that were not accepted again because they had been before."""
    delivered: int = 0
    """Messages handed to consumers, repeated deliveries included."""
    acknowledged: int = 0
    redelivered: int = 0
    """Messages scheduled again for a group: given back, or their lease ran out."""
    dead_lettered: int = 0
    cancelled: int = 0
    rescheduled: int = 0
    """Messages moved to another due time by this master."""
    transactions_open: int = 0
    """As of now, on the master."""
    transactions_oldest_ms: int = 0
    """When the oldest of them was prepared; 0 without any."""
    transactions_prepared: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transactions_expired: int = 0
    """Rolled back since their outcome was not reported in time."""
    transaction_checks: int = 0
    """Check-backs that were handed out."""
    occurrences: int = 0
    """Messages published by recurrences."""
    occurrences_skipped: int = 0
    """How often occurrences were left out, one or several together: an outage had delayed them."""
    dedup_rejected: int = 0
    """Messages refused because a pending one had their dedup key."""
    dedup_kept: int = 0
    """Messages that were not stored because the pending one stands for them."""
    dedup_replaced: int = 0
    """Pending messages that a later one with their dedup key has replaced."""
    groups_expired: int = 0
    members_expired: int = 0
    """Unused groups that were deleted."""
    topics_expired: int = 0
    """The same of topics."""
    expired: int = 0
    """Messages that expired before a group got them, once for each group."""
    limited_polls: int = 0
    """Times that polls had to wait, or got nothing, for their group's limits."""
    lease_expirations: int = 0
    """Leases that ran out."""
    filter_masked: int = 0
    """Queue entries that filters skipped by their genes, unread."""
    filter_read: int = 0
    """Messages that were read to be checked by a filter."""
    filter_refused: int = 0
    """Those of them that did not match."""
    crc_errors: int = 0
    """Stored bytes that failed their checksum."""
    damaged_messages: int = 0
    """Messages that groups wait for and that cannot be read here, as of now."""
    damaged_fetched: int = 0
    """Damaged messages whose bytes were found elsewhere: in another replica, or in the log."""
    repaired_files: int = 0
    """Damaged files that were rewritten with good bytes."""

    scrub_bytes: int = 0
    """Bytes that were read only to be verified, and found well."""
    scrub_passes: int = 0
    """How often all of log, views and delay logs was looked at."""
    scrub_pass_ms: int = 0
    """Cluster clock when the last of these passes ended; 0 before the first."""
    scrub_damaged_views: int = 0
    """Files of the views in which the last look found damage."""
    scrub_damaged_messages: int = 0
    """Messages in delay logs that are damaged, that no group needs yet, and whose right bytes
    were not found so far."""
    scrub_damaged_segments: int = 0
    """Segments in which damage was found, as long as they are there."""

    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    """How long the last checkpoint took."""
    checkpoint_ms: int = 0
    """Cluster clock when the last checkpoint became durable; 0 for none since the start."""
    recovery_seconds: float = 0.0
    """How long opening took, replay included."""
    flushes: int = 0
    """Memtables written to runs."""
    merges: int = 0
    """Merges of runs."""
    cascades: int = 0
    """Days cascaded into hours."""

    spans: Spans = field(default_factory=Spans)
    """What the node works on, by name."""


class MethodStats:
    """Calls of one method of the API."""

    __slots__ = ("handled", "name", "seconds")

    def __init__(self, name: str) -> None:
        """`name` as in the proto files: "Publish"."""
        self.name = name
        self.handled: dict[str, int] = {"OK": 0}
        """Name of a gRPC status code -> calls that ended with it."""
        self.seconds = Histogram(DURATION_BOUNDS)
        """From the request's arrival to its answer, waiting for messages included."""

    def count(self, code: str, seconds: float) -> None:
        """A call has ended."""
        self.handled[code] = self.handled.get(code, 0) + 1
        self.seconds.observe(seconds)


@dataclass(slots=True)
class ApiStats:
    """Calls of the API since the process started."""

    methods: dict[str, MethodStats] = field(default_factory=dict)
    """By name."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Typed reason -> calls and batches refused with it."""
    rejected_by_quota: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUOTAS, 0))
    """Name of a limit of a quota -> calls and batches refused because of it; each from the start,
    so that the first refusal is a growth that queries see."""
    requests_in_flight: int = 0
    bytes_in_flight: int = 0
    bytes_taken: int = 0
    """Of all requests, refused ones too."""
    long_polls: int = 0
    streams: int = 0
    sessions: int = 0
    session_frames: int = 0
    """Read and written."""
    tls_files_refused: bool = False
    """Files of certificates have changed and cannot be used: the former ones are."""
    login_files_refused: dict[str, bool] = field(default_factory=dict)
    """Kind of each file that logins rest on -> whether it has changed and cannot be used."""
    audit_file_failing: bool = False
    """It cannot be written; what it should have is in the log."""
    anyone_may_call: bool = False
    """Other machines reach the API, and the node does not ask callers who they are."""
    forwarded: int = 0
    """Calls and streams passed on to the master."""
    forwarded_in_flight: int = 0
    spans: Spans = field(default_factory=Spans)
    """The engine's, where there is one: steps of calls are noted there, by method."""

    def note_tls_files(self, is_refused: bool) -> None:  # noqa: FBT001 - a callback's only fact
        """Files of certificates have changed."""
        self.tls_files_refused = is_refused

    def login_file(self, kind: str) -> Callable[[bool], None]:
        """What notes whether a file was refused that logins rest on; it may do so in any thread."""
        self.login_files_refused[kind] = False

        def note(is_refused: bool) -> None:  # noqa: FBT001 - likewise
            self.login_files_refused[kind] = is_refused

        return note

    def note_audit_file(self, is_failing: bool) -> None:  # noqa: FBT001 - likewise
        """It fails, or does no more. May be called in another thread."""
        self.audit_file_failing = is_failing

    def method(self, name: str) -> MethodStats:
        """The counters of a method, made when first asked for."""
        return self.methods.setdefault(name, MethodStats(name))

    def reject(self, reason: str) -> None:
        """A call or batch was refused."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def reject_by_quota(self, quota: str) -> None:
        """A call or batch was refused because a principal's quota is used up."""
        self.rejected_by_quota[quota] += 1
