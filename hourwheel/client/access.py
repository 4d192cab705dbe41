"""Who may do what in a cluster, and how much: users, grants, quotas, for its administrators."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from hourwheel import errors
from hourwheel.limits import LIST_PAGE_SIZE_MAX
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import (
    DELETE_GRANT,
    DELETE_QUOTA,
    DELETE_USER,
    LIST_GRANTS,
    LIST_QUOTAS,
    LIST_USERS,
    PUT_GRANT,
    PUT_QUOTA,
    PUT_USER,
)
from hourwheel.transport.pages import pages_of
from hourwheel.v1 import access_pb2

Operation = Literal["publish", "receive", "cancel", "look", "administer"]
Kind = Literal["topic", "group", "cluster"]

_OPERATION: Final = "ACCESS_OPERATION_"
_KIND: Final = "ACCESS_RESOURCE_KIND_"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is known by a name and a secret."""

    name: str
    version: int
    """Grows with each change."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may do."""

    principal: str
    """A name, or the beginning of names before a `*` at its end."""
    kind: Kind
    resource: str
    """A name, or the beginning of names before a `*` at its end; empty for the cluster."""
    operations: frozenset[Operation]
    version: int
    """Grows with each change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a principal may use. None: as much as it likes; 0: nothing."""

    messages_per_s: int | None = None
    """Published."""
    bytes_per_s: int | None = None
    """Of what is published."""
    pending_messages: int | None = None
    """Accepted and not due yet."""
    topics: int | None = None
    """Of those that it may publish to or administer: with as many, it makes no more."""
    groups: int | None = None
    """Of those that it may receive for or administer: with as many, it makes no more."""
    connections: int | None = None
    """To one node, with calls under way."""
    calls_in_flight: int | None = None
    """Calls under way at one time on one node; of polls, streams and sessions as many each."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one principal may use."""

    principal: str
    """A name; `*`: each that has no quota of its own, each by itself."""
    limits: Limits
    version: int
    """Grows with each change."""


async def put_user(channel: Channel, name: str, secret: str, expected_version: int | None) -> int:
    """See `AsyncAdmin.put_user`."""
    request = access_pb2.PutUserRequest(user=name, secret=secret, expected_version=expected_version)
    return (await channel.call(PUT_USER, request)).version


async def delete_user(channel: Channel, name: str, expected_version: int | None) -> None:
    """See `AsyncAdmin.delete_user`."""
    request = access_pb2.DeleteUserRequest(user=name, expected_version=expected_version)
    await channel.call(DELETE_USER, request)


async def list_users(channel: Channel) -> list[User]:
    """See `AsyncAdmin.users`."""
    request = access_pb2.ListUsersRequest(page_size=LIST_PAGE_SIZE_MAX)
    found: list[User] = []
    async for answer in pages_of(channel, LIST_USERS, request):
        found += (User(one.name, one.version) for one in answer.users)
    return found


async def put_grant(
    channel: Channel,
    grant: access_pb2.AccessGrant,
    expected_version: int | None,
) -> int:
    """See `AsyncAdmin.grant`."""
    request = access_pb2.PutGrantRequest(grant=grant, expected_version=expected_version)
    return (await channel.call(PUT_GRANT, request)).version


async def delete_grant(
    channel: Channel, grant: access_pb2.AccessGrant, expected_version: int | None
) -> None:
    """See `AsyncAdmin.revoke`."""
    request = access_pb2.DeleteGrantRequest(grant=grant, expected_version=expected_version)
    await channel.call(DELETE_GRANT, request)


async def list_grants(channel: Channel) -> list[Grant]:
    """See `AsyncAdmin.grants`."""
    request = access_pb2.ListGrantsRequest(page_size=LIST_PAGE_SIZE_MAX)
    found: list[Grant] = []
    async for answer in pages_of(channel, LIST_GRANTS, request):
        found += map(_grant, answer.grants)
    return found


async def put_quota(
    channel: Channel, principal: str, limits: Limits, expected_version: int | None
) -> int:
    """See `AsyncAdmin.put_quota`."""
    given = access_pb2.AccessQuota(
        principal=principal, **{one.name: getattr(limits, one.name) for one in fields(Limits)}
    )
    request = access_pb2.PutQuotaRequest(quota=given, expected_version=expected_version)
    return (await channel.call(PUT_QUOTA, request)).version


async def delete_quota(channel: Channel, principal: str, expected_version: int | None) -> None:
    """See `AsyncAdmin.delete_quota`."""
    request = access_pb2.DeleteQuotaRequest(principal=principal, expected_version=expected_version)
    await channel.call(DELETE_QUOTA, request)


async def list_quotas(channel: Channel) -> list[Quota]:
    """See `AsyncAdmin.quotas`."""
    request = access_pb2.ListQuotasRequest(page_size=LIST_PAGE_SIZE_MAX)
    found: list[Quota] = []
    async for answer in pages_of(channel, LIST_QUOTAS, request):
        found += map(_quota, answer.quotas)
    return found


def grant_of(
    principal: str, kind: str, resource: str, operations: Iterable[str] = ()
) -> access_pb2.AccessGrant:
    """On the wire.

    Raises:
        InvalidArgument: there is no such kind or operation.
    """
    return access_pb2.AccessGrant(
        principal=principal,
        kind=_value("kind", _KIND, access_pb2.AccessResourceKind, kind, get_args(Kind)),
        resource=resource,
        operations=[
            _value("operations", _OPERATION, access_pb2.AccessOperation, one, get_args(Operation))
            for one in operations
        ],
    )


def _value(field: str, prefix: str, enum: Any, word: str, words: tuple[str, ...]) -> Any:
    if word not in words:
        known = ", ".join(words)
        raise errors.InvalidArgument(f"{word!r} is none of {known}", field=field, value=word)
    return enum.Value(prefix + word.upper())


def _grant(one: access_pb2.AccessGrant) -> Grant:
    kind: Any = access_pb2.AccessResourceKind.Name(one.kind).removeprefix(_KIND).lower()
    operations: Any = frozenset(
        access_pb2.AccessOperation.Name(each).removeprefix(_OPERATION).lower()
        for each in one.operations
    )
    return Grant(one.principal, kind, one.resource, operations, one.version)


def _quota(one: access_pb2.AccessQuota) -> Quota:
    limits = {
        each.name: getattr(one, each.name) if one.HasField(each.name) else None
        for each in fields(Limits)
    }
    return Quota(one.principal, Limits(**limits), one.version)
