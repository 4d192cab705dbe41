"""What a node knows now of who may do what, and the calls that wait meanwhile.

The policy is replaced as a whole when the control state changes; each call, and each frame of a
stream, is checked against the one of that moment. `CALLER` is who makes the call that is being
worked on. Polls that wait are known here, because a new policy may end them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeAlias

from hourwheel import errors
from node.access.permissions import Rule
from node.contracts.access import (
    ANONYMOUS,
    CLUSTER,
    OPEN,
    AccessPolicy,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)

CALLER: Final[ContextVar[Principal]] = ContextVar("CALLER", default=ANONYMOUS)
"""Who makes the call that runs in this context."""

LOGIN_ENDS_MS: Final[ContextVar[int | None]] = ContextVar("LOGIN_ENDS_MS", default=None)
"""Until when that is known, by the wall clock: a stream lasts no longer. None: as it lasts."""

LOGIN_HOLDS: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("LOGIN_HOLDS", default=None)
"""Whether what the caller has shown still counts, asked at each call of a stream; None: it does.

A user's secret counts until the user is deleted or has another one, in the control state or in the
users' file; a token until the key that has signed it is taken out of the keys' file."""

Identify: TypeAlias = Callable[[Any], Awaitable[Principal]]
"""From gRPC's context of a call to who makes it. Raises HourwheelError: it cannot be let in."""


class _Waiting(NamedTuple):
    task: "asyncio.Task[Any]"
    principal: Principal
    rule: Rule
    resources: tuple[Resource, ...]
    login_holds: Callable[[], bool] | None
    on_revoked: Callable[[], None] | None


class AccessControl:
    """See the top of this file. Belongs to one event loop.

    Invariant: no call in `_waiting` waits for what `policy` does not allow.
    """

    def __init__(self, policy: AccessPolicy = OPEN) -> None:
        """By default access control is off."""
        self.policy = policy
        self._waiting: set[_Waiting] = set()

    def replace(self, policy: AccessPolicy) -> None:
        """Decide by `policy` from now on; polls that it does not allow end."""
        self.policy = policy
        self.look_again()

    def look_again(self) -> None:
        """End what waits and is not allowed any more: logins may have ended, too.

        To be called whenever what a login rests on has changed: users, or keys of tokens.
        """
        policy = self.policy
        revoked = [
            one
            for one in self._waiting
            if _find_missing(policy, one.principal, one.rule, one.resources) is not None
            or (policy.is_on and not _holds(one.login_holds))
        ]
        for one in revoked:
            self._waiting.discard(one)
            if one.on_revoked is not None:
                one.on_revoked()
            one.task.cancel()

    def check(self, rule: Rule, request: Any) -> None:
        """Refuse what the caller may not do.

        Raises:
            PermissionDenied: it names the permission that is missing.
            Unauthenticated: the user is gone who has opened the stream, or has another secret, or
                the key that has signed its token is.
            Unavailable: this node does not know yet who may do what.
        """
        if self.policy.is_on:
            refusal = self.find_refusal(rule, rule.resources(request))
            if refusal is not None:
                raise refusal

    def find_refusal(
        self, rule: Rule, resources: tuple[Resource, ...]
    ) -> errors.HourwheelError | None:
        """Why the caller may not do by `rule` what it asks on these, as `check`; or None."""
        policy = self.policy
        if not policy.is_on:
            return None
        if not login_holds():
            return errors.Unauthenticated()
        missing = _find_missing(policy, CALLER.get(), rule, resources)
        if missing is None:
            return None
        return _denied(rule, missing) if policy.is_complete else _undecided()

    def allows(self, rule: Rule, resources: tuple[Resource, ...]) -> bool:
        """Whether the caller may do by `rule` what it asks on these, as far as is known."""
        return _find_missing(self.policy, CALLER.get(), rule, resources) is None

    def allows_some(self, rule: Rule, kind: ResourceKind) -> bool:
        """Whether the caller may do by `rule` what it asks on anything of a kind."""
        operation = rule.operation
        return operation is None or self.policy.allows_some(CALLER.get(), operation, kind)

    def may_look(self, resource: Resource) -> bool:
        """Whether a list for the caller has it.

        Raises:
            Unavailable: this node does not know yet who may do what.
        """
        policy = self.policy
        may = policy.allows(CALLER.get(), Operation.LOOK, resource)
        if not may and not policy.is_complete:
            raise _undecided()
        return may

    @contextmanager
    def until_revoked(
        self, rule: Rule, request: Any, on_revoked: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """What is awaited inside is given up when a new policy does not allow it any more.

        `on_revoked` is called first, in the turn that brings the policy.

        Raises:
            PermissionDenied: it was, or is not allowed now.
            Unauthenticated: see `check`.
        """
        self.check(rule, request)
        task = errors.required(asyncio.current_task(), "a call that waits runs in a task")
        resources = rule.resources(request)
        one = _Waiting(task, CALLER.get(), rule, resources, LOGIN_HOLDS.get(), on_revoked)
        self._waiting.add(one)
        try:
            yield
        except asyncio.CancelledError:
            if one in self._waiting:  # not by `look_again`: the client went away, or the node stops
                raise
            task.uncancel()
            self.check(rule, request)  # says what is missing, unless it is granted again by now
            raise _denied(rule, resources[0]) from None
        finally:
            self._waiting.discard(one)

    def until_revoked_elsewhere(self, rule: Rule, request: Any) -> AbstractContextManager[None]:
        """`until_revoked`, for a call that another node decides on: it may know more than this one.

        Raises:
            PermissionDenied: what this node allowed at first, it does not allow now.
            Unauthenticated: see `check`; the other node knows nothing of the login.
        """
        try:
            self.check(rule, request)
        except (errors.PermissionDenied, errors.Unavailable):
            return nullcontext()
        return self.until_revoked(rule, request)


def login_holds() -> bool:
    """Whether what the caller of this call has shown still counts."""
    return _holds(LOGIN_HOLDS.get())


def _holds(ask: Callable[[], bool] | None) -> bool:
    try:
        return ask is None or ask()
    except errors.Unavailable:  # unknown: then it is as it was
        return True


def _find_missing(
    policy: AccessPolicy, principal: Principal, rule: Rule, resources: tuple[Resource, ...]
) -> Resource | None:
    """The first resource on which `principal` may not do it; the cluster for an anonymous one."""
    if not policy.is_on:
        return None
    if rule.operation is None:
        return CLUSTER if principal == ANONYMOUS else None
    for resource in resources:
        if not policy.allows(principal, rule.operation, resource):
            return resource
    return None


def _undecided() -> errors.Unavailable:
    return errors.Unavailable("this node does not know yet who may do what; try again")


def _denied(rule: Rule, missing: Resource) -> errors.PermissionDenied:
    if rule.operation is None:
        return errors.PermissionDenied("the caller is not known, and access control is on")
    where = f"{missing.kind.value} {missing.name}".rstrip()
    return errors.PermissionDenied(
        f"the permission to {rule.operation.value} is missing, on {where}",
        operation=rule.operation.value,
        resource_kind=missing.kind.value,
        resource=missing.name,
    )
