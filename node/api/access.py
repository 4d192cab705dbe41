"""AccessService: users, grants and quotas of the cluster."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hourwheel import errors
from hourwheel.v1 import access_pb2 as wire
from node.access.administration import Administration
from node.api.calls import Context
from node.api.listing import Page, by_name
from replication.control_state.access import (
    GrantKey,
    Quota,
    QuotaLimits,
    StoredGrant,
    User,
    limit_of,
    stored_limit,
)

_OPERATION: Final = "ACCESS_OPERATION_"
_KIND: Final = "ACCESS_RESOURCE_KIND_"
_BETWEEN: Final = "\n"
"""Between the parts of a grant's key: sorts before all that may stand in one."""
_LIMITS: Final = tuple(vars(QuotaLimits()))

EntryT = TypeVar("EntryT")


class Access:
    """Checks what comes in and hands it to the administration."""

    def __init__(self, administration: Administration) -> None:
        """Of the cluster's users, grants and quotas."""
        self._administration = administration

    async def put_user(
        self, request: wire.PutUserRequest, _context: Context
    ) -> wire.PutUserResponse:
        """Make a user, or change the secret."""
        version = await self._administration.put_user(
            request.user, request.secret, _expected(request)
        )
        return wire.PutUserResponse(version=version)

    async def delete_user(
        self, request: wire.DeleteUserRequest, _context: Context
    ) -> wire.DeleteUserResponse:
        """Forget a user's secret."""
        await self._administration.delete_user(request.user, _expected(request))
        return wire.DeleteUserResponse()

    async def list_users(
        self, request: wire.ListUsersRequest, _context: Context
    ) -> wire.ListUsersResponse:
        """Users, by name."""
        page = Page(request.page_size, request.page_token)
        users = self._administration.state().users
        shown = await by_name(page, _slices(users), lambda one: one.name, _user, lambda _: True)
        return wire.ListUsersResponse(users=shown, next_page_token=page.next_token)

    async def put_grant(
        self, request: wire.PutGrantRequest, _context: Context
    ) -> wire.PutGrantResponse:
        """Allow something."""
        version = await self._administration.put_grant(
            _key(request.grant),
            frozenset(
                _word(_OPERATION, wire.AccessOperation, one) for one in request.grant.operations
            ),
            _expected(request),
        )
        return wire.PutGrantResponse(version=version)

    async def delete_grant(
        self, request: wire.DeleteGrantRequest, _context: Context
    ) -> wire.DeleteGrantResponse:
        """Allow it no more."""
        await self._administration.delete_grant(_key(request.grant), _expected(request))
        return wire.DeleteGrantResponse()

    async def list_grants(
        self, request: wire.ListGrantsRequest, _context: Context
    ) -> wire.ListGrantsResponse:
        """Grants, by principal, kind and resource."""
        page = Page(request.page_size, request.page_token)
        grants = self._administration.state().grants
        named = {_BETWEEN.join(key): one for key, one in grants.items()}
        shown = await by_name(
            page, _slices(named), lambda one: _BETWEEN.join(one.key), _grant, lambda _: True
        )
        return wire.ListGrantsResponse(grants=shown, next_page_token=page.next_token)

    async def put_quota(
        self, request: wire.PutQuotaRequest, _context: Context
    ) -> wire.PutQuotaResponse:
        """Limit a principal."""
        version = await self._administration.put_quota(
            request.quota.principal, _stored(request.quota), _expected(request)
        )
        return wire.PutQuotaResponse(version=version)

    async def delete_quota(
        self, request: wire.DeleteQuotaRequest, _context: Context
    ) -> wire.DeleteQuotaResponse:
        """Limit it no more."""
        await self._administration.delete_quota(request.principal, _expected(request))
        return wire.DeleteQuotaResponse()

    async def list_quotas(
        self, request: wire.ListQuotasRequest, _context: Context
    ) -> wire.ListQuotasResponse:
        """Quotas, by principal."""
        page = Page(request.page_size, request.page_token)
        quotas = self._administration.state().quotas
        shown = await by_name(
            page, _slices(quotas), lambda one: one.principal, _quota, lambda _: True
        )
        return wire.ListQuotasResponse(quotas=shown, next_page_token=page.next_token)


def _expected(
    request: wire.PutUserRequest
    | wire.DeleteUserRequest
    | wire.PutGrantRequest
    | wire.DeleteGrantRequest
    | wire.PutQuotaRequest
    | wire.DeleteQuotaRequest,
) -> int | None:
    return request.expected_version if request.HasField("expected_version") else None


def _slices(entries: Mapping[str, EntryT]) -> Callable[[str, int], list[EntryT]]:
    """So many entries behind a name."""
    names = sorted(entries)

    def ask(after: str, count: int) -> list[EntryT]:
        at = bisect_right(names, after)
        return [entries[name] for name in names[at : at + count]]

    return ask


def _word(
    prefix: str, kind: "type[wire.AccessOperation | wire.AccessResourceKind]", value: int
) -> str:
    """The word of a value: PREFIX_TOPIC is `topic`."""
    if not value or value not in kind.values():
        raise errors.InvalidArgument(f"{value} is none of {kind.DESCRIPTOR.name}", value=value)
    return kind.Name(value).removeprefix(prefix).lower()


def _key(grant: wire.AccessGrant) -> GrantKey:
    return GrantKey(
        grant.principal, _word(_KIND, wire.AccessResourceKind, grant.kind), grant.resource
    )


def _user(user: User) -> wire.AccessUser:
    return wire.AccessUser(name=user.name, version=user.version)


def _grant(grant: StoredGrant) -> wire.AccessGrant:
    return wire.AccessGrant(
        principal=grant.key.principal,
        kind=_KIND + grant.key.kind.upper(),
        resource=grant.key.name,
        operations=[
            name
            for name in wire.AccessOperation.keys()  # noqa: SIM118 - no dict
            if name.removeprefix(_OPERATION).lower() in grant.operations
        ],
        version=grant.version,
    )


def _stored(quota: wire.AccessQuota) -> QuotaLimits:
    given = {name: getattr(quota, name) if quota.HasField(name) else None for name in _LIMITS}
    return QuotaLimits(**{name: stored_limit(limit) for name, limit in given.items()})


def _quota(quota: Quota) -> wire.AccessQuota:
    limits = {name: limit_of(stored) for name, stored in vars(quota.limits).items()}
    return wire.AccessQuota(principal=quota.principal, version=quota.version, **limits)
