"""The one tree of errors. Each class names its gRPC code, typed reason and whether to try again.

    HourwheelError
    +-- InvalidArgument            the request can never succeed as it is
    |   +-- InvalidDueTime, BeyondHorizon, InvalidTopic, InvalidGroup
    |   +-- MessageTooLarge, BatchTooLarge, TooManyItems
    |   +-- InvalidBatch           (corrupt, truncated or forged record batch)
    |   |   +-- UnsupportedVersion
    |   +-- InvalidFilter          (names the position in the expression)
    |   +-- InvalidMessageId
    |   +-- InvalidReceipt         (garbage, or of another group, topic or cluster)
    |   +-- Unprotected            (in the client) a secret would go out in the clear
    |   +-- InvalidRecurrence      (a cron expression, zone, interval or date that is none)
    +-- NotFound: UnknownTopic, UnknownGroup, UnknownRecurrence
    |   +-- UnknownTransaction     there is none, or it was decided too long ago to be known
    +-- AlreadyExists: AlreadyPending   (a pending message has the dedup key)
    +-- FailedPrecondition
    |   +-- OutOfOrderSequence, UnknownProducer   (idempotence: the answer would be a guess)
    |   +-- StaleReceipt           the lease is over
    |   |   +-- UndecidedReceipt   (in the client) perhaps by an earlier try of the same
    |   +-- SubscriptionMismatch, MemberReplaced   others of the group want, or are, something else
    |   +-- NotRetained            retention has let go of it: `earliest_ms` says of what not
    |   +-- FeatureLevelTooLow     not before all nodes know it
    |   +-- LimitReached           as many topics, groups or subscriptions as are allowed
    |   +-- RecurrenceChanged      it has not the version that the caller expected
    |   +-- TopicPaused            nothing may be published to it, until an operator resumes it
    |   +-- TransactionDecided     it has another outcome already: `state` says which
    |   +-- Forked                 (in the client) it belongs to the process that forked
    +-- ResourceExhausted
    |   +-- Overloaded             too much in flight: try again later
    |   +-- TooManyMoved, TooManyDedupKeys, TooManyRecurrences, TooManyTransactions
    |   +-- DiskFull               no room to accept; what is durable is still delivered
    |   +-- QuotaExceeded, QuotaReached   the caller's share is used: for now, or for good
    +-- Unavailable                not now, or not here: try again
    |   +-- NotMaster, ShuttingDown, ClockUnsure
    |   +-- LoginEnded             a stream outlived the token that opened it: open another
    |   +-- TlsFailed              (in the client) certificates that do not go together, or no TLS
    |   +-- NotFollowed            (between nodes) a node does not follow that master, or not so
    +-- Timeout                    no answer in time: the outcome is unknown
    +-- Cancelled                  the caller gave up
    +-- DataLoss
    |   +-- CorruptLog, CorruptFile   name file and offset
    +-- PermissionDenied           access control is on, and the caller may not do this
    +-- Unauthenticated            who calls is not known; no word about what was wrong
    +-- PeerRefused                (between nodes) the other side is not who it should be
    +-- Internal
        +-- InvariantViolated      a bug of ours: the process stops
        |   +-- ReleaseMismatch    a dispatch in the log says that something else was released
        +-- DiskFailed, FsyncFailed   not for want of room, and not retried: the process stops
    StartupError (never on the wire)
    +-- DirectoryLocked, IncompatibleFormat, ForeignDirectory, ConfigError
    +-- AuditError: NoLogs, MixedClusters, NoJava   (an audit of logs cannot begin)

`retriable` says that sending the same request again is safe *and* may help. A request without
idempotence (no producer id) is never retried after `Timeout`, whatever the class says of itself.
`params` are the machine-readable facts: limits, sizes, file and offset. All values are strings.
"""

from typing import ClassVar, Final, NoReturn, TypeVar

_T = TypeVar("_T")
_EPOCH_DIGITS: Final = 10
"""An epoch has 32 bits."""
_MS_DIGITS: Final = 13
"""Three hundred years."""


class HourwheelError(Exception):
    """Root of everything that this project raises on purpose."""

    code: ClassVar[str] = "UNKNOWN"
    """Name of the gRPC status code."""
    reason: ClassVar[str] = "UNKNOWN"
    """Typed reason, unique per class; travels as google.rpc.ErrorInfo.reason."""
    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "", **params: object) -> None:
        """`message` is for people; `params` are facts for programs and become strings."""
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])
        self.params: dict[str, str] = {name: str(value) for name, value in params.items()}

    @property
    def message(self) -> str:
        """The text for people."""
        return str(self.args[0])


class InvalidArgument(HourwheelError):
    """The request can never succeed as it is."""

    code = "INVALID_ARGUMENT"
    reason = "INVALID_ARGUMENT"


class InvalidDueTime(InvalidArgument):
    """The due time is negative, overflows or is given twice."""

    reason = "INVALID_DUE_TIME"


class BeyondHorizon(InvalidArgument):
    """The due time lies beyond the horizon of the wheel."""

    reason = "BEYOND_HORIZON"


class InvalidTopic(InvalidArgument):
    """The topic name is empty or has an illegal character."""

    reason = "INVALID_TOPIC"


class InvalidGroup(InvalidArgument):
    """The group name is empty or has an illegal character."""

    reason = "INVALID_GROUP"


class MessageTooLarge(InvalidArgument):
    """A message's body, tags, keys or properties exceed a limit."""

    reason = "MESSAGE_TOO_LARGE"


class BatchTooLarge(InvalidArgument):
    """A batch exceeds its limit in bytes or messages."""

    reason = "BATCH_TOO_LARGE"


class TooManyItems(InvalidArgument):
    """A request lists more items than one call may."""

    reason = "TOO_MANY_ITEMS"


class InvalidFilter(InvalidArgument):
    """The filter expression cannot be understood; `position` is the first character at fault."""

    reason = "INVALID_FILTER"


class InvalidBatch(InvalidArgument):
    """The record batch is corrupt, truncated or forged."""

    reason = "INVALID_BATCH"


class UnsupportedVersion(InvalidBatch):
    """The record batch has a version that this node does not know."""

    reason = "UNSUPPORTED_VERSION"


class InvalidMessageId(InvalidArgument):
    """The text is not a message id of this cluster."""

    reason = "INVALID_MESSAGE_ID"


class InvalidReceipt(InvalidArgument):
    """The receipt handle is garbage or belongs to another group, topic or cluster."""

    reason = "INVALID_RECEIPT"


class Unprotected(InvalidArgument):
    """A token or secret is not sent in the clear to another machine: give `tls`."""

    reason = "UNPROTECTED"


class InvalidRecurrence(InvalidArgument):
    """The times of a recurrence are none, never come, or come too often."""

    reason = "INVALID_RECURRENCE"


class NotFound(HourwheelError):
    """What the request names does not exist."""

    code = "NOT_FOUND"
    reason = "NOT_FOUND"


class UnknownTopic(NotFound):
    """There is no such topic, and this call does not make it."""

    reason = "UNKNOWN_TOPIC"


class UnknownTransaction(NotFound):
    """No such transaction is open, and of none that was decided this is known."""

    reason = "UNKNOWN_TRANSACTION"


class UnknownGroup(NotFound):
    """There is no such consumer group, and this call does not make it."""

    reason = "UNKNOWN_GROUP"


class UnknownRecurrence(NotFound):
    """The topic has no recurrence of this name."""

    reason = "UNKNOWN_RECURRENCE"


class AlreadyExists(HourwheelError):
    """What the request would create exists with other settings."""

    code = "ALREADY_EXISTS"
    reason = "ALREADY_EXISTS"


class AlreadyPending(AlreadyExists):
    """A pending message has the dedup key: this one was not stored."""

    reason = "ALREADY_PENDING"


class FailedPrecondition(HourwheelError):
    """The state does not allow this now, and trying again will not help."""

    code = "FAILED_PRECONDITION"
    reason = "FAILED_PRECONDITION"


class FeatureLevelTooLow(FailedPrecondition):
    """Not before all nodes of the cluster know it: one is of an earlier version, or was lately."""

    reason = "FEATURE_LEVEL_TOO_LOW"


class OutOfOrderSequence(FailedPrecondition):
    """The producer's sequence does not follow its last one, or stood for other messages."""

    reason = "OUT_OF_ORDER_SEQUENCE"


class UnknownProducer(FailedPrecondition):
    """The producer is not known (or was forgotten) and does not start at sequence 0."""

    reason = "UNKNOWN_PRODUCER"


class StaleReceipt(FailedPrecondition):
    """The lease of this receipt is over; the message may be delivered again."""

    reason = "STALE_RECEIPT"


class UndecidedReceipt(StaleReceipt):
    """The lease is over, and an earlier try may have ended it: whether it did is not known."""

    reason = "UNDECIDED_RECEIPT"


class SubscriptionMismatch(FailedPrecondition):
    """Consumers of one group want different messages of a topic."""

    reason = "SUBSCRIPTION_MISMATCH"


class MemberReplaced(FailedPrecondition):
    """Another process has joined the broadcast by this member's name, and receives in its place."""

    reason = "MEMBER_REPLACED"


class NotRetained(FailedPrecondition):
    """Some of these messages are no longer there; `earliest_ms` is when the first was released."""

    reason = "NOT_RETAINED"


class LimitReached(FailedPrecondition):
    """There are as many topics, groups or subscriptions as are allowed; delete some first."""

    reason = "LIMIT_REACHED"


class TransactionDecided(FailedPrecondition):
    """The transaction has another outcome already, and keeps it."""

    reason = "TRANSACTION_DECIDED"


class RecurrenceChanged(FailedPrecondition):
    """The recurrence has another version than was expected; nothing was changed."""

    reason = "RECURRENCE_CHANGED"


class TopicPaused(FailedPrecondition):
    """The topic is paused: nothing may be published to it until an operator resumes it."""

    reason = "TOPIC_PAUSED"


class Forked(FailedPrecondition):
    """The client, or gRPC, was in use when the process forked, and is of no use in the child."""

    reason = "FORKED"


class ResourceExhausted(HourwheelError):
    """A limit of the node is reached."""

    code = "RESOURCE_EXHAUSTED"
    reason = "RESOURCE_EXHAUSTED"
    retriable = True


class TooManyMoved(ResourceExhausted):
    """As many pending messages were moved to another due time as a shard keeps in memory."""

    reason = "TOO_MANY_MOVED"
    retriable = False


class TooManyTransactions(ResourceExhausted):
    """As many transactions are open, or as many bytes in them, as a shard takes."""

    reason = "TOO_MANY_TRANSACTIONS"
    retriable = False


class TooManyRecurrences(ResourceExhausted):
    """There are as many recurrences, or bytes of them, as a shard keeps in memory."""

    reason = "TOO_MANY_RECURRENCES"
    retriable = False


class TooManyDedupKeys(ResourceExhausted):
    """As many pending messages have a dedup key as a shard keeps in memory."""

    reason = "TOO_MANY_DEDUP_KEYS"


class Overloaded(ResourceExhausted):
    """Too much is in flight; try again later."""

    reason = "OVERLOADED"


class DiskFull(ResourceExhausted):
    """The disk has no room for new messages; durable ones are still delivered."""

    reason = "DISK_FULL"


class QuotaExceeded(ResourceExhausted):
    """The caller's quota is used up for now; nothing was done: come back when `params` say."""

    reason = "QUOTA_EXCEEDED"

    @property
    def retry_after_ms(self) -> int:
        """Param, a decimal number: to come back earlier is of no use; 0: none, or no number."""
        text = self.params.get("retry_after_ms", "")
        is_number = text.isascii() and text.isdecimal() and len(text) <= _MS_DIGITS
        return int(text) if is_number else 0


class QuotaReached(ResourceExhausted):
    """The caller's quota does not allow this, however long one waits."""

    reason = "QUOTA_REACHED"
    retriable = False


class Unavailable(HourwheelError):
    """The node cannot serve this now; try again."""

    code = "UNAVAILABLE"
    reason = "UNAVAILABLE"
    retriable = True


class NotMaster(Unavailable):
    """This node is not the master of the shard; its `params` may name who is, and since when."""

    reason = "NOT_MASTER"

    @property
    def master_address(self) -> str:
        """Param: host:port at which clients reach the master; empty: the node does not know."""
        return self.params.get("master_address", "")

    @property
    def epoch(self) -> int:
        """Param, a decimal number: the epoch of that master; 0: unknown, or no number.

        A client follows at once, but not to an epoch below the highest one that it knows.
        """
        text = self.params.get("epoch", "")
        return (
            int(text) if text.isascii() and text.isdecimal() and len(text) <= _EPOCH_DIGITS else 0
        )


class ShuttingDown(Unavailable):
    """The node is shutting down."""

    reason = "SHUTTING_DOWN"


class ClockUnsure(Unavailable):
    """The cluster clock has no fresh quorum."""

    reason = "CLOCK_UNSURE"


class LoginEnded(Unavailable):
    """The token or certificate that opened this stream has ended; open another with a new one."""

    reason = "LOGIN_ENDED"


class TlsFailed(Unavailable):
    """No connection: client and node do not accept each other's certificates, or one has no TLS."""

    reason = "TLS_FAILED"
    retriable = False


class NotFollowed(Unavailable):
    """This node does not follow that master, or not in this way."""

    reason = "NOT_FOLLOWED"


class Timeout(HourwheelError):
    """No answer in time; the outcome is unknown."""

    code = "DEADLINE_EXCEEDED"
    reason = "TIMEOUT"
    retriable = True


class Cancelled(HourwheelError):
    """The caller gave up."""

    code = "CANCELLED"
    reason = "CANCELLED"


class DataLoss(HourwheelError):
    """Stored bytes fail their checksum; they are not served."""

    code = "DATA_LOSS"
    reason = "DATA_LOSS"


class CorruptLog(DataLoss):
    """The commit log fails its checksum below its durable end."""

    reason = "CORRUPT_LOG"


class CorruptFile(DataLoss):
    """A view's file fails its checksum."""

    reason = "CORRUPT_FILE"


class Internal(HourwheelError):
    """A fault of the node itself."""

    code = "INTERNAL"
    reason = "INTERNAL"


class InvariantViolated(Internal):
    """A bug of ours: going on would be worse than stopping."""

    reason = "INVARIANT_VIOLATED"


class ReleaseMismatch(InvariantViolated):
    """A dispatch in the log says that its master had released something else than this node."""

    reason = "RELEASE_MISMATCH"


class DiskFailed(Internal):
    """The disk failed to read or write, and not for want of room: the process stops."""

    reason = "DISK_FAILED"


class FsyncFailed(Internal):
    """The disk failed to make data durable: what it holds now is unknown, so the process stops."""

    reason = "FSYNC_FAILED"


class PermissionDenied(HourwheelError):
    """The caller may not do this; `params` name the permission, not whether the thing exists."""

    code = "PERMISSION_DENIED"
    reason = "PERMISSION_DENIED"


class Unauthenticated(HourwheelError):
    """The certificate, token or secret does not show who calls."""

    code = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"


class PeerRefused(HourwheelError):
    """Another node is not who it says, or breaks the protocol between nodes."""

    code = "UNAUTHENTICATED"
    reason = "PEER_REFUSED"


class StartupError(HourwheelError):
    """The node cannot start; never seen on the wire."""

    reason = "STARTUP"


class DirectoryLocked(StartupError):
    """Another process holds this data directory."""

    reason = "DIRECTORY_LOCKED"


class IncompatibleFormat(StartupError):
    """The data directory was written by an incompatible version."""

    reason = "INCOMPATIBLE_FORMAT"


class ForeignDirectory(StartupError):
    """The data directory belongs to another cluster, node or shard."""

    reason = "FOREIGN_DIRECTORY"


class ConfigError(StartupError):
    """The configuration has an unknown key, a wrong type or values that do not fit together."""

    reason = "CONFIG"


class AuditError(StartupError):
    """The audit of a cluster's logs cannot begin."""

    reason = "AUDIT"


class NoLogs(AuditError):
    """There is no log in any of the places that were given."""

    reason = "NO_LOGS"


class MixedClusters(AuditError):
    """The places that were given hold logs of several clusters."""

    reason = "MIXED_CLUSTERS"


class NoJava(AuditError):
    """Spark needs a Java of version 17 or later, and none was found."""

    reason = "NO_JAVA"


def violated(message: str, **facts: object) -> NoReturn:
    """Report a broken invariant. `python -O` does not strip this, as it does `assert`."""
    raise InvariantViolated(f"{message} {facts}" if facts else message, **facts)


def invariant(condition: bool, message: str, **facts: object) -> None:  # noqa: FBT001
    """Stop at once when `condition`, an invariant of ours, does not hold."""
    if not condition:
        violated(message, **facts)


def required(value: _T | None, message: str, **facts: object) -> _T:
    """`value`, which an invariant says is there, as `message` names it; else InvariantViolated."""
    if value is None:
        violated(message, **facts)
    return value


def _tree(root: type[HourwheelError]) -> dict[str, type[HourwheelError]]:
    below = (_tree(child) for child in root.__subclasses__())
    return {root.reason: root} | {reason: one for each in below for reason, one in each.items()}


BY_REASON: dict[str, type[HourwheelError]] = _tree(HourwheelError)
"""Typed reason -> class, for turning an answer on the wire back into the exception."""
