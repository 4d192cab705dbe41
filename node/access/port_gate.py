"""Who may read what a node tells over plain HTTP: those who may look at the cluster.

They show who they are by `Authorization`, as in calls of the API: a token, or name and secret.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeAlias

from hourwheel import errors
from hourwheel.transport.access import AUTHORIZATION
from node.access.authentication import Authenticator
from node.access.control import AccessControl
from node.contracts.access import ANONYMOUS, CLUSTER, Operation

Admit: TypeAlias = Callable[[str, str], Awaitable[HTTPStatus]]
"""From the header `Authorization` (empty: there is none) and the peer's host to OK, or to what is
answered instead."""


class PortGate:
    """See the top of this file. Belongs to one event loop."""

    def __init__(self, authenticator: Authenticator, access: AccessControl) -> None:
        """`authenticator`: tells who asks; `access`: whether they may."""
        self._authenticator, self._access = authenticator, access

    async def admit(self, authorization: str, host: str) -> HTTPStatus:
        """OK; else UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE: it is unknown now."""
        policy = self._access.policy
        if not policy.is_on:
            return HTTPStatus.OK
        given = [(AUTHORIZATION, authorization)] if authorization else []
        try:
            login = await self._authenticator.authenticate(given, None, f"{host}:")
        except errors.Unauthenticated:
            return HTTPStatus.UNAUTHORIZED
        except (errors.Overloaded, errors.Unavailable):
            return HTTPStatus.SERVICE_UNAVAILABLE
        if policy.allows(login.principal, Operation.LOOK, CLUSTER):
            return HTTPStatus.OK
        if login.principal == ANONYMOUS:
            return HTTPStatus.UNAUTHORIZED
        return HTTPStatus.FORBIDDEN if policy.is_complete else HTTPStatus.SERVICE_UNAVAILABLE
