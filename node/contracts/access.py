"""Who calls, what they want, and whether they may: one pure function of an immutable policy.

    principal  who: a name, and how the node knows it
    operation  publish, receive, cancel, look, administer
    resource   on what: a topic, a group, or the cluster
    grant      principals may do operations on resources, by exact name or by prefix: `orders-*`

A policy that is on allows what a grant says, and nothing else. There is no grant that forbids. The
policy's administrators, whom the configuration names, may do everything. Nobody who is anonymous
may do anything, whatever the grants say.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

WILDCARD: Final = "*"
_DECISIONS_MAX: Final = 16_384
"""Decisions that a policy remembers; beyond them it begins anew."""


class Method(StrEnum):
    """How a node knows who calls."""

    ANONYMOUS = "anonymous"
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 - no password
    USER = "user"
    NODE = "node"
    """Another node, on its own behalf."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. The name alone decides: a certificate and a token of one name are the same one."""

    name: str
    method: Method


ANONYMOUS: Final = Principal("", Method.ANONYMOUS)
"""Nobody has proved anything."""


class Operation(StrEnum):
    """What a permission is for."""

    PUBLISH = "publish"
    RECEIVE = "receive"
    CANCEL = "cancel"
    LOOK = "look"
    ADMINISTER = "administer"


class ResourceKind(StrEnum):
    """On what."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    """Has one resource, whose name is empty: what belongs to no topic and no group."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that exists or not: a decision does not depend on that."""

    kind: ResourceKind
    name: str


CLUSTER: Final = Resource(ResourceKind.CLUSTER, "")


@dataclass(frozen=True, slots=True)
class Grant:
    """Whom it is for may do these operations on these resources."""

    principal: str
    """A name, or the beginning of names before a `*` at its end."""
    operations: frozenset[Operation]
    kind: ResourceKind
    name: str
    """Of the resource; a pattern like `principal`. Of the cluster: empty, or `*`."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Everything that decides. Never changes: a new one takes its place.

    Invariant: `allows` is a pure function of the fields; what it remembers is not visible.
    """

    is_on: bool = False
    """Access control. Off: everybody may do everything."""
    is_complete: bool = True
    """False: the grants are not known yet, so what is not allowed may be allowed soon."""
    version: int = 0
    """Grows with each change of the control state that made it."""
    grants: tuple[Grant, ...] = ()
    administrators: frozenset[str] = frozenset()
    """Names; no patterns."""
    _by_name: dict[str, list[Grant]] = field(init=False, repr=False, compare=False)
    """Grants for one name each."""
    _by_pattern: list[Grant] = field(init=False, repr=False, compare=False)
    _decisions: dict[tuple[Principal, Operation, Resource], bool] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Sort the grants by whom they are for."""
        by_name: dict[str, list[Grant]] = {}
        by_pattern: list[Grant] = []
        for grant in self.grants:
            if grant.principal.endswith(WILDCARD):
                by_pattern.append(grant)
            else:
                by_name.setdefault(grant.principal, []).append(grant)
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_by_pattern", by_pattern)
        object.__setattr__(self, "_decisions", {})

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether `principal` may do that; tens of nanoseconds where it was asked before."""
        if not self.is_on:
            return True
        question = (principal, operation, resource)
        found = self._decisions.get(question)
        if found is None:
            found = self._decide(principal, operation, resource)
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[question] = found
        return found

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if principal.method is Method.ANONYMOUS or not principal.name:
            return False
        if principal.name in self.administrators:
            return True
        own = self._by_name.get(principal.name, ())
        return _any_gives(own, operation, resource) or _any_gives(
            (grant for grant in self._by_pattern if matches(grant.principal, principal.name)),
            operation,
            resource,
        )


OPEN: Final = AccessPolicy()
"""Access control is off."""


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern`, exact or with a `*` at its end, is for `name`."""
    if pattern.endswith(WILDCARD):
        return name.startswith(pattern[:-1])
    return pattern == name


def _any_gives(grants: Iterable[Grant], operation: Operation, resource: Resource) -> bool:
    return any(
        operation in grant.operations
        and grant.kind is resource.kind
        and matches(grant.name, resource.name)
        for grant in grants
    )
