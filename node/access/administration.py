"""Users, grants and quotas, changed by an administrator of the cluster.

A change is a command of the control plane, a compare-and-set. Who names no version means whatever
there is: then it is tried again where somebody else was faster. A secret comes in here and goes
no further than its hash.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.access.policy_feed import PolicyFeed
from node.access.tokens import is_name
from node.access.user_secrets import SECRET_CHARS_MAX, hash_of
from replication.control_state.access import (
    PRINCIPAL_BYTES_MAX,
    AccessState,
    GrantKey,
    QuotaLimits,
    limits_data,
    why_not_grant,
    why_not_quota,
    why_not_user,
)
from replication.control_state.commands import make_command

_TRIES: Final = 8
_REQUEST_ID_BYTES: Final = 16
_HASH: Final = "-"
"""Stands for one where a name is checked before it is made."""

Propose = Callable[[wire.ControlCommand], Awaitable[wire.ControlResult]]


class Administration:
    """See the top of this file. Belongs to one event loop.

    All changes raise Unavailable (it was not made), Timeout (it is unknown), InvalidArgument,
    NotFound, and FailedPrecondition: there is another version, or the cluster cannot have it.
    """

    def __init__(
        self, policies: PolicyFeed, propose: Propose, hash_of: Callable[[str], str] = hash_of
    ) -> None:
        """An administration.

        Args:
            policies: knows the control state.
            propose: has a command applied by the control plane.
            hash_of: of a secret; slow, called in a thread.
        """
        self._policies, self._propose, self._hash_of = policies, propose, hash_of
        self._hashing = asyncio.Lock()
        """A hash takes 64 MB: one at a time."""

    def state(self) -> AccessState:
        """As this node knows it.

        Raises:
            Unavailable: it does not yet.
        """
        if self._policies.state is None:
            raise errors.Unavailable("this node does not know its cluster's grants yet; try again")
        return self._policies.state

    async def put_user(self, name: str, secret: str, expected_version: int | None) -> int:
        """Make a user, or change the secret; the user's version from then on."""
        if problem := why_not_user(name, _HASH):
            raise errors.InvalidArgument(problem, field="user")
        if not is_name(name) or ":" in name:
            raise errors.InvalidArgument("a user's name has no colon", field="user")
        if not 0 < len(secret) <= SECRET_CHARS_MAX:
            raise errors.InvalidArgument(
                f"a secret has 1 to {SECRET_CHARS_MAX} characters", field="secret"
            )
        known = self.state().users.get(name)
        async with self._hashing:
            hashed = await asyncio.to_thread(self._hash_of, secret)

        def command(version: int) -> wire.ControlCommand:
            put = wire.PutUserCommand(name=name, secret_hash=hashed, expected_version=version)
            return make_command(_request_id(), put_user=put)

        return await self._change(command, 0 if known is None else known.version, expected_version)

    async def delete_user(self, name: str, expected_version: int | None) -> None:
        """The name has no secret any more."""
        _check_length("user", name)
        known = self.state().users.get(name)

        def command(version: int) -> wire.ControlCommand:
            gone = wire.DeleteUserCommand(name=name, expected_version=version)
            return make_command(_request_id(), delete_user=gone)

        version = 0 if known is None else known.version
        await self._change(command, version, expected_version, is_there=True)

    async def put_grant(
        self, key: GrantKey, operations: frozenset[str], expected_version: int | None
    ) -> int:
        """Allow just these operations; the grant's version from then on."""
        if problem := why_not_grant(key, operations):
            raise errors.InvalidArgument(problem, field="grant")
        known = self.state().grants.get(key)

        def command(version: int) -> wire.ControlCommand:
            put = wire.PutGrantCommand(
                key=wire.GrantKey(principal=key.principal, kind=key.kind, name=key.name),
                operations=sorted(operations),
                expected_version=version,
            )
            return make_command(_request_id(), put_grant=put)

        return await self._change(command, 0 if known is None else known.version, expected_version)

    async def delete_grant(self, key: GrantKey, expected_version: int | None) -> None:
        """Allow nothing of that any more."""
        for field, text in (("principal", key.principal), ("resource", key.name)):
            _check_length(field, text)
        known = self.state().grants.get(key)

        def command(version: int) -> wire.ControlCommand:
            gone = wire.DeleteGrantCommand(
                key=wire.GrantKey(principal=key.principal, kind=key.kind, name=key.name),
                expected_version=version,
            )
            return make_command(_request_id(), delete_grant=gone)

        version = 0 if known is None else known.version
        await self._change(command, version, expected_version, is_there=True)

    async def put_quota(
        self, principal: str, limits: QuotaLimits, expected_version: int | None
    ) -> int:
        """Limit a principal; the quota's version from then on."""
        if problem := why_not_quota(principal, limits):
            raise errors.InvalidArgument(problem, field="quota")
        known = self.state().quotas.get(principal)

        def command(version: int) -> wire.ControlCommand:
            put = wire.PutQuotaCommand(
                principal=principal, limits=limits_data(limits), expected_version=version
            )
            return make_command(_request_id(), put_quota=put)

        return await self._change(command, 0 if known is None else known.version, expected_version)

    async def delete_quota(self, principal: str, expected_version: int | None) -> None:
        """Limit it no more."""
        _check_length("principal", principal)
        known = self.state().quotas.get(principal)

        def command(version: int) -> wire.ControlCommand:
            gone = wire.DeleteQuotaCommand(principal=principal, expected_version=version)
            return make_command(_request_id(), delete_quota=gone)

        version = 0 if known is None else known.version
        await self._change(command, version, expected_version, is_there=True)

    async def _change(
        self,
        command: Callable[[int], wire.ControlCommand],
        known_version: int,
        expected_version: int | None,
        *,
        is_there: bool = False,
    ) -> int:
        """Have it applied to the version that is expected; to any, where that is None.

        `is_there`: it makes nothing new.
        """
        version = known_version if expected_version is None else expected_version
        for _ in range(_TRIES):
            result = await self._propose(command(version))
            if result.outcome == wire.CONTROL_OUTCOME_OK:
                return result.version
            if result.outcome != wire.CONTROL_OUTCOME_CONFLICT:
                break
            if is_there and not result.version:
                raise errors.NotFound("there is none of that name")
            if expected_version is not None:
                raise errors.FailedPrecondition(
                    f"it has version {result.version}", version=result.version
                )
            version = result.version
        raise errors.FailedPrecondition(result.reason)


def _check_length(field: str, text: str) -> None:
    if len(text.encode()) > PRINCIPAL_BYTES_MAX:
        raise errors.InvalidArgument(f"more than {PRINCIPAL_BYTES_MAX} bytes", field=field)


def _request_id() -> bytes:
    return os.urandom(_REQUEST_ID_BYTES)
