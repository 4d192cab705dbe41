"""Access to /metrics and /stalls: for callers that may look at the cluster.

They show who they are by `Authorization`, as in calls of the API: a token, or name and secret. What
is refused is counted and audited as calls of the API are: guesses leave the same traces here.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

from hourwheel import errors
from hourwheel.transport.access import AUTHORIZATION
from node.access.audit import AuditLog
from node.access.authentication import Authenticator, claimed_name
from node.access.control import CALLER, AccessControl
from node.access.permissions import Rule
from node.contracts.access import ANONYMOUS, CLUSTER, Operation, Principal
from node.telemetry.stats import ApiStats

Admit: TypeAlias = Callable[[str, str, str], Awaitable[HTTPStatus]]
"""From the header `Authorization` (empty: there is none), the peer's host, and the path, to OK, or
to what is answered instead."""

_LOOK: Final = Rule(Operation.LOOK, lambda _: (CLUSTER,))


class PortGate:
    """See the top of this file. Belongs to one event loop."""

    def __init__(
        self,
        authenticator: Authenticator,
        access: AccessControl,
        audit: AuditLog,
        stats: ApiStats,
    ) -> None:
        """A gate.

        Args:
            authenticator: tells who asks.
            access: says whether they may.
            audit: gets those who may not.
            stats: counts what is refused.
        """
        self._authenticator, self._access = authenticator, access
        self._audit, self._stats = audit, stats

    async def admit(self, authorization: str, host: str, path: str) -> HTTPStatus:
        """OK; else UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE: it is unknown now."""
        if not self._access.policy.is_on:
            return HTTPStatus.OK
        given = [(AUTHORIZATION, authorization)] if authorization else []
        principal = ANONYMOUS
        try:
            login = await self._authenticator.authenticate(given, None, f"{host}:")
            principal = login.principal
            self._check(principal)
        except errors.HourwheelError as error:
            self._stats.reject(error.reason)
            what = f"GET {path}"
            claimed = partial(claimed_name, given) if principal == ANONYMOUS else str
            self._audit.note_denied(principal, what, error, host, claimed)
            return _status_of(error, principal)
        return HTTPStatus.OK

    def _check(self, principal: Principal) -> None:
        token = CALLER.set(principal)
        try:
            self._access.check(_LOOK, None)
        finally:
            CALLER.reset(token)


def _status_of(error: errors.HourwheelError, principal: Principal) -> HTTPStatus:
    match error:
        case errors.Unauthenticated():
            return HTTPStatus.UNAUTHORIZED
        case errors.PermissionDenied():  # who shows nothing is asked to
            return HTTPStatus.UNAUTHORIZED if principal == ANONYMOUS else HTTPStatus.FORBIDDEN
        case errors.Overloaded() | errors.Unavailable():
            return HTTPStatus.SERVICE_UNAVAILABLE
    raise error
