"""Findings: what an audit has to tell, each with a stable name, a severity and a place.

The names in `CHECKS` and in `spark_jobs.logs.replica.PROBLEMS` are an interface: scripts filter by
them. A finding is `ERROR` where something was promised and is not kept, `WARNING` where something
is odd and proves no loss, `INFO` where something is to be expected now and then (a follower that is
behind, a torn tail above what was committed). Errors make the verdict of an audit `FAULTY`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from spark_jobs.logs.replica import ERROR, INFO, PROBLEMS, WARNING, Problem

NONE: Final = -1
"""In `offset`, `sequence`, `position` and `due_ms`: none is meant."""

_INT64_MAX: Final = (1 << 63) - 1
FINDINGS_KEPT: Final = 10_000
"""Findings of one check and shard that are kept; all are counted."""


class Finding(NamedTuple):
    """One thing that is wrong, or worth to be known. A row of the findings' Parquet file."""

    severity: str
    """`error`, `warning` or `info`."""
    check: str
    """Stable kebab-case name: see `CHECKS` and `replica.PROBLEMS`."""
    shard: int
    """-1: of no shard."""
    node: str
    """Whose files; empty: it is about what the replicas have in common, the log."""
    file: str = ""
    """Path in the node's directory; empty: none is meant."""
    offset: int = NONE
    """Offset of the log."""
    sequence: int = NONE
    """Of the message it is about."""
    position: int = NONE
    """In the consume queue that `detail` names; -1 where no entry is meant."""
    topic: str = ""
    """Name of the topic; `#7` for a number without a name."""
    due_ms: int = NONE
    detail: str = ""
    """For people: a plain sentence without an end."""
    cause: str = ""
    """The finding that this one follows from, by its check and place; empty: from none that is
    known. See `audit.causes`."""


FINDING_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("severity", "string"),
    ("check", "string"),
    ("shard", "int32"),
    ("node", "string"),
    ("file", "string"),
    ("offset", "int64"),
    ("sequence", "int64"),
    ("position", "int64"),
    ("topic", "string"),
    ("due_ms", "int64"),
    ("detail", "string"),
    ("cause", "string"),
)
"""(name, Arrow type) of the Parquet file's columns, in the order of `Finding`."""

CHECKS: Final[dict[str, str]] = {
    # the log's structure
    "log-corrupt": "bytes of a log below its durable end are no valid record batch",
    "log-torn-tail": "bytes behind the last whole batch, above the known durable end",
    "log-missing": "bytes of a log are in no file of a node",
    "log-hole": "no replica has this part of the log: what follows on it is not audited",
    "log-begins-late": "a log begins behind offset 0 and nothing says that its beginning may go",
    "sequence-gap": "sequences are not dense: a batch begins at another one than expected",
    "epoch-back": "an epoch is lower than the one of the batch before it",
    "epoch-history": "a node's epochs file and its log do not say the same",
    "epoch-start": "an epoch does not begin with an EPOCH_START record, or begins twice",
    "store-back": "store_ms goes back inside an epoch, behind its first record",
    "message-corrupt": "a message's meta and body fail its own CRC32C: it cannot be delivered",
    "flushed-ahead": "a batch says that the log was durable behind the batch itself",
    "kind-unknown": "a record of a kind that this version does not know",
    "format-unknown": "the log asks for a feature level that this version does not know",
    # replicas
    "replica-diverges": "two replicas have different bytes below the high watermark",
    "replica-short": "a replica's log ends below the high watermark of another",
    "replica-uncommitted": "a log goes on above what is known to be committed",
    # records that all replicas contradict
    "message-changed": "all replicas have a message with another due time than the log",
    "cancel-changed": "a CANCEL names another message than all replicas have cancelled",
    # what was promised about each message
    "dispatch-chain": "a DISPATCH does not follow on the one before it",
    "dispatch-early": "a DISPATCH reaches further ahead of its store_ms than any lead allows",
    "dispatch-check": "what the log releases is not what a DISPATCH says was released",
    "dispatch-late": "a gap without any dispatch, in which messages fell due",
    "dispatch-overdue": "messages were due long before the log ends, and no DISPATCH came",
    "message-late": "a message was released long after its due time",
    "priority-misplaced": "a message is in the log for another queue than that of its priority",
    "queue-absent": "a message is in the log for a queue or a topic that there is not",
    "occurrence-repeated": "a recurrence has two messages for an instant, or goes back",
    "queue-missing": "a released message has no entry in its queue: a dropped dispatch",
    "queue-doubled": "a message has more entries in a queue than releases: a doubled dispatch",
    "queue-early": "an entry of a message that was not released yet",
    "queue-cancelled": "an entry of a message that was cancelled: resurrected",
    "queue-void": "an entry of a message that was never accepted, or of a deleted topic",
    "queue-unknown": "an entry of a sequence that was never given",
    "queue-misplaced": "an entry in another queue than its message was released to",
    "queue-fields": "an entry's fields are not those of its message",
    "queue-order": "entries are not in the order of their release",
    "queue-damaged": "a chunk of a queue is missing or fails its checks",
    "queue-end": "a queue ends at another position than the log gives it",
    "queue-trimmed": "entries were trimmed that no TRIM record allows to go",
    "body-lost": "a message's body is gone: of the log, or in a delay log that is missing or short",
    "body-wrong": "the bytes that an entry points to are not its message's: it is not delivered",
    # groups
    "ack-undelivered": "a RESOLVE of positions that were never released",
    "ack-early": "a RESOLVE of an entry before its release time",
    "order-overtaken": "an ordered group was through with a message, or gave it back, while an"
    " earlier one of its key was not resolved",
    "resolve-unknown": "a RESOLVE of a group that never was, or with an unknown outcome",
    "record-impossible": "a record that no master writes: it lets go of what is still to come",
    "filter-missed": "a message was passed over that the group's filter takes, or there is none",
    "filter-unreadable": "a filter in the log that cannot be understood",
    "expired-early": "a message was resolved as expired that had not expired by then, or never",
    "expired-delivered": "a message was acknowledged that was released after it had expired",
    "gene-wrong": "a message's gene denies what its metadata says: filters pass over it unread",
    "dead-letter": "a message that used up its attempts, or was given up",
    # the wheel and what a checkpoint says
    "wheel-missing": "a pending message is not in the delay index",
    "wheel-extra": "the delay index holds a message that is not pending",
    "wheel-damaged": "a run of the delay index is missing or fails its checks",
    "checkpoint": "a checkpoint's counts or cursor are not those of the log",
    "wheel-directory": "a slot directory of a run does not lead to the units that it has",
    "tombstone-wrong": "who is marked as cancelled is not who the log has cancelled",
    "sequence-wrong": "the sequence index says of a message what the log does not",
    "sequence-damaged": "the sequence index is missing or fails its checks",
    "clock-skew": "a node's clock was far from the others': store_ms goes back with a new master",
}
"""Every check of the audit, and what a finding of it says. Those of `PROBLEMS` come to them."""

SUM_CHECKS: Final = frozenset({"dispatch-check", "checkpoint", "queue-end"})
"""What only says that something is wrong, and not what: reported last."""
ALL_CHECKS: Final = {**PROBLEMS, **CHECKS}
_RANKS: Final = {name: rank for rank, name in enumerate(CHECKS)}


def rank_of(check: str) -> int:
    """Causes first: files, the log's records, messages, and sums last."""
    return len(CHECKS) if check in SUM_CHECKS else _RANKS.get(check, -1)


SEVERITIES: Final = (ERROR, WARNING, INFO)
assert not PROBLEMS.keys() & CHECKS.keys()


LATE_CHECKS: Final = frozenset({"dispatch-late", "dispatch-overdue", "message-late"})
"""What says that something was not on time; with it no audit is clean."""


class Made(Enum):
    """Whether a check could be made."""

    FULL = "full"
    """Over everything that there is."""
    BOUNDED = "bounded"
    """Over everything that can be known from what was given: what is claimed ends there. The
    verdict says so, and may be clean."""
    LIMITED = "limited"
    """Over a part: something was left out."""
    NOT_MADE = "not-made"
    """Not, or only over a part, because something that should be there is damaged or missing."""

    @property
    def leaves_out(self) -> bool:
        """Something was not checked, and so the verdict cannot be clean."""
        return self in {Made.LIMITED, Made.NOT_MADE}


class Limit(NamedTuple):
    """A reason for which a check is not made in full."""

    made: Made
    says: str


LIMITS: Final[dict[str, Limit]] = {
    "replica-single": Limit(
        Made.BOUNDED, "one replica was given, and nothing says that others agree with it"
    ),
    "replica-absent": Limit(
        Made.BOUNDED,
        "a node that was master is not among those given: nothing is said of its files",
    ),
    "checkpoint-behind": Limit(
        Made.BOUNDED,
        "what the log has behind a node's last checkpoint is not in its durable views yet: a start"
        " makes it again from the log",
    ),
    "checkpoint-far-behind": Limit(
        Made.LIMITED, "the same, and the checkpoint is further behind than nodes let it fall"
    ),
    "checkpoint-missing": Limit(
        Made.NOT_MADE,
        "no checkpoint says what a node's delay index, sequence index and cancelled set must hold,"
        " and its queues beyond what their chunks vouch for themselves",
    ),
    "checkpoint-ahead": Limit(
        Made.LIMITED, "the audited log ends below a checkpoint: views are compared up to there"
    ),
    "replica-empty": Limit(Made.LIMITED, "a node was given that has nothing of the shard's log"),
    "replica-unread": Limit(
        Made.LIMITED, "logs differ in more places than are looked at batch by batch"
    ),
    "log-trimmed": Limit(
        Made.LIMITED,
        "retention has removed the beginning of the log: queues are compared by sums, and groups,"
        " retries and the sums of DISPATCH records and checkpoints are not",
    ),
    "log-unfinished": Limit(Made.LIMITED, "more is committed than any log has that was given"),
    "log-broken": Limit(Made.NOT_MADE, "no replica has a part of the log"),
    "log-absent": Limit(Made.NOT_MADE, "no replica has a segment of the shard's log"),
    "log-removed": Limit(
        Made.NOT_MADE, "retention removed files of the log while they were read: audit again"
    ),
    "record-unknown": Limit(
        Made.NOT_MADE, "a record of a later version: nothing behind it is judged"
    ),
    "request-order": Limit(
        Made.NOT_MADE, "it is unknown which requests of some producers were refused"
    ),
    "filter-unread": Limit(
        Made.NOT_MADE, "filters cannot be read here: what that needs is not installed"
    ),
    "file-unread": Limit(Made.NOT_MADE, "files cannot be read that a check needs"),
    "file-replaced": Limit(
        Made.LIMITED, "a running node replaced files while they were read: audit again, or a copy"
    ),
}
"""Stable name -> what it means. Where one that leaves something out stands, the verdict is not
clean; `--accept NAME` says that it may be."""


class CheckOutcome(NamedTuple):
    """How far a group of checks could be made for a shard, or for one replica of it."""

    area: str
    """`structure`, `replicas`, `ledger`, `queues`, `groups`, `wheel` or `sequences`."""
    shard: int
    node: str
    """Empty: of the log that the replicas have in common."""
    limit: str = ""
    """Of `LIMITS`: why not in full; empty: in full."""
    reason: str = ""
    """The same in a plain sentence, with its numbers."""

    @property
    def made(self) -> Made:
        """How far."""
        return LIMITS[self.limit].made if self.limit else Made.FULL

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "made": self.made.value}


def of_problem(problem: Problem) -> Finding:
    """The finding that a problem of a directory is."""
    return Finding(
        problem.severity,
        problem.check,
        problem.shard,
        problem.node,
        file=problem.file,
        offset=problem.offset,
        detail=problem.detail,
    )


@dataclass
class FindingSet:
    """Collects findings: the first `FINDINGS_KEPT` of each check and shard, the counts of all."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """(severity, check, shard) -> how many were found, kept or not."""

    def add(self, found: Iterable[Finding]) -> None:
        """Take findings in, in their order."""
        for one in found:
            key = (one.severity, one.check, one.shard)
            self.counts[key] += 1
            if self.counts[key] <= FINDINGS_KEPT:
                self.kept.append(one)

    def merge(self, other: "FindingSet") -> None:
        """Take in what another one has collected."""
        for one in other.kept:
            key = (one.severity, one.check, one.shard)
            if self.counts[key] < FINDINGS_KEPT:
                self.kept.append(one)
            self.counts[key] += 1
        for key, count in other.counts.items():
            self.counts[key] += count - sum(
                1 for one in other.kept if (one.severity, one.check, one.shard) == key
            )

    def count_more(self, severity: str, check: str, shard: int, count: int) -> None:
        """Count findings that are not kept."""
        if count > 0:
            self.counts[severity, check, shard] += count

    def remove(self, found: Iterable[Finding]) -> None:
        """Take back some of those that are kept."""
        gone = Counter(found)
        left = []
        for one in self.kept:
            if gone[one]:
                gone[one] -= 1
                self.counts[one.severity, one.check, one.shard] -= 1
            else:
                left.append(one)
        self.kept, self.counts = left, +self.counts

    def drop(self, severity: str, *, but: Collection[str]) -> int:
        """Leave out all of one severity but those of some checks; how many those were."""
        gone = {
            key: count
            for key, count in self.counts.items()
            if key[0] == severity and key[1] not in but
        }
        self.kept = [one for one in self.kept if (one.severity, one.check, one.shard) not in gone]
        for key in gone:
            del self.counts[key]
        return sum(gone.values())

    def count(self, severity: str) -> int:
        """How many of one severity were found."""
        return sum(count for (level, _, _), count in self.counts.items() if level == severity)

    def sorted(self) -> list[Finding]:
        """Those kept: errors first, causes before what follows from them, sums last."""
        order = {name: rank for rank, name in enumerate(SEVERITIES)}
        return sorted(
            self.kept,
            key=lambda one: (
                order[one.severity],
                bool(one.cause),
                one.shard,
                rank_of(one.check),
                one.check,
                one.offset,
            ),
        )


def columns_of(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """The findings as columns by name, for Arrow.

    What a damaged record says may be more than int64 holds; then it is the most that it does.
    """
    return {
        name: [min(getattr(one, name), _INT64_MAX) for one in findings]
        if kind == "int64"
        else [getattr(one, name) for one in findings]
        for name, kind in FINDING_COLUMNS
    }
