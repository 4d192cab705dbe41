"""Who did what: one event for each administrative call, and for those who may not call.

Events have names and the settings that an administrator changes: no body, filter, token, secret or
receipt comes here (`node.access.changed_values`). A call that a node passes on is noted where it is
executed, with the caller that came with it.

A refused caller may call as often as it likes, so those events are limited: so many in a time
for each principal, and for all of them together. What is left out is counted.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.v1 import access_pb2 as wire
from node.access.changed_values import changed_values
from node.access.permissions import RULES
from node.contracts.access import Operation, Principal, Resource
from node.telemetry import logs

DENIED_WINDOW_MS: Final = 10_000
DENIED_PER_PRINCIPAL: Final = 10
"""Events of refused calls that one principal gets in that time; strangers are one together."""
DENIED_TOTAL: Final = 100
"""That all of them get together."""
NAME_CHARS_MAX: Final = 256
"""Of what a request names; it is not looked at when it is refused."""

_SHARED_STATE: Final = frozenset(
    {
        "hourwheel.v1.AdminService.CancelPending",  # by a filter, from any publisher
        "hourwheel.v1.AdminService.ReschedulePending",  # likewise
        "hourwheel.v1.AdminService.PutSubscription",  # what all of a group receive
    }
)
AUDITED: Final = _SHARED_STATE | {
    method for method, rule in RULES.items() if rule.operation is Operation.ADMINISTER
}
"""Full names of the methods of which each call is noted; of all others, those that are refused."""

_KINDS: Final = {
    value: name.removeprefix("ACCESS_RESOURCE_KIND_").lower()
    for name, value in wire.AccessResourceKind.items()
}
_REFUSED: Final = ("PERMISSION_DENIED", "UNAUTHENTICATED")
_log = logs.get(__name__)
# Also where `telemetry.log_level` leaves out what only informs.
logging.getLogger(__name__).setLevel(logging.INFO)


class AuditEvent(NamedTuple):
    """One call."""

    time_ms: int
    """When it ended, by the wall clock."""
    principal: str
    """Name of the caller; empty: anonymous."""
    principal_method: str
    """How the node knows: a `Method`."""
    method: str
    """Full name."""
    resources: list[dict[str, str]]
    """What it was about; of a call that a permission was missing for, where it is missing."""
    outcome: str
    """OK, or the typed reason of its error; CANCELLED: the caller left, the outcome is unknown."""
    peer: str
    """Address it came from: the client's, or of the node that passed it on."""
    unlogged: int
    """Refused calls before it that were left out."""
    claimed: str = ""
    """The name that credentials speak of which do not hold: any caller may claim any."""
    changed: dict[str, str] = {}  # noqa: RUF012 - never written to
    """Path of a field of the request -> its value; nothing of calls that were refused."""


def subject_of(request: Any) -> tuple[str, str] | None:
    """Kind and name of what a call changes of who may do what, and how much; None: nothing of it.

    A grant is named by its principal, kind and resource, with lines' ends between them.
    """
    match request:
        case wire.PutUserRequest() | wire.DeleteUserRequest():
            return "user", request.user
        case wire.PutGrantRequest() | wire.DeleteGrantRequest():
            grant = request.grant
            kind = _KINDS.get(grant.kind, str(grant.kind))
            return "grant", f"{grant.principal}\n{kind}\n{grant.resource}"
        case wire.PutQuotaRequest():
            return "quota", request.quota.principal
        case wire.DeleteQuotaRequest():
            return "quota", request.principal
    return None


Sink: TypeAlias = Callable[[AuditEvent], None]
"""Where events go. Neither waits nor raises."""


def log_event(event: AuditEvent) -> None:
    """Into the log."""
    _log.info("call_audited", **event._asdict())


class _DeniedLimit:
    """Which events of refused calls are written: at most `DENIED_TOTAL` names are remembered."""

    def __init__(self) -> None:
        self._window_ends_ms = float("-inf")
        self._written: dict[str, int] = {}
        self._total = 0

    def take(self, name: str, now_ms: float) -> bool:
        if now_ms >= self._window_ends_ms:
            self._window_ends_ms = now_ms + DENIED_WINDOW_MS
            self._written.clear()
            self._total = 0
        written = self._written.get(name, 0)
        if written >= DENIED_PER_PRINCIPAL or self._total >= DENIED_TOTAL:
            return False
        self._written[name] = written + 1
        self._total += 1
        return True


class AuditLog:
    """See the top of this file. Belongs to one event loop."""

    def __init__(self, clock: Clock, sink: Sink = log_event) -> None:
        """Events go to `sink`: by default the log."""
        self._clock, self._sink = clock, sink
        self._limit = _DeniedLimit()
        self._unlogged = 0

    def note(
        self,
        principal: Principal,
        method: str,
        resources: Iterable[Resource],
        outcome: str,
        peer: str,
        request: object = None,
    ) -> None:
        """A call of a method in `AUDITED` has ended.

        `outcome`, `peer`: see `AuditEvent`; `request`: what was asked, where that was understood.
        """
        named = [(one.kind.value, one.name) for one in resources]
        subject = subject_of(request)
        if subject is not None:
            named.append(subject)
        changed = changed_values(request) if isinstance(request, Message) else {}
        self._write(principal, method, named, outcome, peer, changed=changed)

    def note_denied(
        self,
        principal: Principal,
        method: str,
        error: errors.HourwheelError,
        peer: str,
        claimed: Callable[[], str] = lambda: "",
    ) -> None:
        """A call of any method ended with `error`: an event where it says that one may not call.

        `claimed`: gives the name that credentials speak of which do not hold; asked for an event.
        """
        if error.code not in _REFUSED:
            return
        if not self._limit.take(principal.name, self._clock.monotonic_ms()):
            self._unlogged += 1
            return
        kind, name = error.params.get("resource_kind"), error.params.get("resource")
        named = [] if kind is None else [(str(kind), str(name))]
        self._write(principal, method, named, error.reason, peer, claimed())

    def _write(
        self,
        principal: Principal,
        method: str,
        named: list[tuple[str, str]],
        outcome: str,
        peer: str,
        claimed: str = "",
        changed: dict[str, str] | None = None,
    ) -> None:
        unlogged, self._unlogged = self._unlogged, 0
        self._sink(
            AuditEvent(
                time_ms=int(self._clock.wall_ms()),
                principal=principal.name[:NAME_CHARS_MAX],
                principal_method=principal.method.value,
                method=method,
                resources=[{"kind": kind, "name": name[:NAME_CHARS_MAX]} for kind, name in named],
                outcome=outcome,
                peer=peer,
                unlogged=unlogged,
                claimed=claimed[:NAME_CHARS_MAX],
                changed=changed or {},
            )
        )
