"""Who calls, what they want, and whether they may: one pure function of an immutable policy.

    principal  who: a name, and how the node knows it
    operation  publish, receive, cancel, look, administer
    resource   on what: a topic, a group, or the cluster
    grant      principals may do operations on resources, by exact name or by prefix: `orders-*`

A policy that is on allows what a grant says, and nothing else. There is no grant that forbids. The
policy's administrators, named in the configuration, may do everything. An anonymous caller may do
nothing, whatever the grants say.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from hourwheel.limits import NAME_BYTES_MAX

T = TypeVar("T")

WILDCARD: Final = "*"
_DECISIONS_MAX: Final = 16_384
"""Decisions that a policy remembers, on names that there can be; beyond them it begins anew."""


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
"""The caller is anonymous."""


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
    """Its principal may do these operations on these resources."""

    principal: str
    """A name, or the beginning of names before a `*` at its end."""
    operations: frozenset[Operation]
    kind: ResourceKind
    name: str
    """Of the resource; a pattern like `principal`. Of the cluster: empty, or `*`."""


class _ByPattern(Generic[T]):
    """Values by pattern: those for a name are found by its beginnings, however many others are."""

    __slots__ = ("_beginnings", "_exact", "_lengths")

    def __init__(self) -> None:
        self._exact: dict[str, T] = {}
        self._beginnings: dict[str, T] = {}
        self._lengths: list[int] = []
        """Of the beginnings, ascending."""

    def take(self, pattern: str, make: Callable[[], T]) -> T:
        """The value of a pattern; made where there is none."""
        if not pattern.endswith(WILDCARD):
            return self._exact.setdefault(pattern, make())
        beginning = pattern[:-1]
        if len(beginning) not in self._lengths:
            insort(self._lengths, len(beginning))
        return self._beginnings.setdefault(beginning, make())

    def all(self) -> Iterator[T]:
        """The values of all patterns."""
        yield from self._exact.values()
        yield from self._beginnings.values()

    def matching(self, name: str) -> Iterator[T]:
        """The values of all patterns that are for `name`."""
        found = self._exact.get(name)
        if found is not None:
            yield found
        for length in self._lengths:
            if length > len(name):
                return
            found = self._beginnings.get(name[:length])
            if found is not None:
                yield found


_Grants: TypeAlias = dict[ResourceKind, _ByPattern[_ByPattern[set[Operation]]]]
"""Kind, pattern of the resource, pattern of the principal -> what may be done."""


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
    _granted: _Grants = field(init=False, repr=False, compare=False)
    _decisions: dict[tuple[Principal, Operation, Resource], bool] = field(
        init=False, repr=False, compare=False
    )
    _broad_decisions: dict[tuple[Principal, Operation, ResourceKind], bool] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Sort the grants, so that no decision looks at all of them."""
        granted: _Grants = {kind: _ByPattern() for kind in ResourceKind}
        for grant in self.grants:
            principals = granted[grant.kind].take(grant.name, _ByPattern)
            principals.take(grant.principal, set).update(grant.operations)
        object.__setattr__(self, "_granted", granted)
        object.__setattr__(self, "_decisions", {})
        object.__setattr__(self, "_broad_decisions", {})

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
            if len(resource.name) <= NAME_BYTES_MAX:  # else it is as large as its sender likes
                self._decisions[question] = found
        return found

    def allows_some(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        """Whether `principal` may do that on anything of a kind, be it there or not.

        Looks at all grants on that kind, and remembers.
        """
        if not self.is_on:
            return True
        question = (principal, operation, kind)
        found = self._broad_decisions.get(question)
        if found is None:
            found = self._decide_broadly(principal, operation, kind)
            if len(self._broad_decisions) >= _DECISIONS_MAX:
                self._broad_decisions.clear()
            self._broad_decisions[question] = found
        return found

    def _decide_broadly(
        self, principal: Principal, operation: Operation, kind: ResourceKind
    ) -> bool:
        if principal.method is Method.ANONYMOUS or not principal.name:
            return False
        if principal.name in self.administrators:
            return True
        return any(
            operation in operations
            for principals in self._granted[kind].all()
            for operations in principals.matching(principal.name)
        )

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if principal.method is Method.ANONYMOUS or not principal.name:
            return False
        if principal.name in self.administrators:
            return True
        return any(
            operation in operations
            for principals in self._granted[resource.kind].matching(resource.name)
            for operations in principals.matching(principal.name)
        )


OPEN: Final = AccessPolicy()
"""Access control is off."""
