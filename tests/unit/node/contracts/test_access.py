"""AccessPolicy: a decision agrees with a naive reading of the grants, asked once or again."""

import gc
import weakref
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.contracts.access import (
    ANONYMOUS,
    CLUSTER,
    OPEN,
    AccessPolicy,
    Grant,
    Method,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)

NAMES = st.sampled_from(["", "a", "ab", "abc", "b", "a-b"])
PATTERNS = st.one_of(NAMES, NAMES.map(lambda name: name + "*"))
GRANTS = st.builds(
    Grant,
    PATTERNS,
    st.frozensets(st.sampled_from(Operation)),
    st.sampled_from(ResourceKind),
    PATTERNS,
)
PRINCIPALS = st.builds(Principal, NAMES, st.sampled_from(Method))
RESOURCES = st.builds(Resource, st.sampled_from(ResourceKind), NAMES)
ASKED = st.tuples(PRINCIPALS, st.sampled_from(Operation), RESOURCES)
POLICIES = st.builds(
    AccessPolicy,
    is_on=st.booleans(),
    version=st.integers(0, 3),
    grants=st.lists(GRANTS, max_size=6).map(tuple),
    administrators=st.frozensets(NAMES, max_size=2),
)


def naive(policy: AccessPolicy, asked: tuple[Principal, Operation, Resource]) -> bool:
    principal, operation, resource = asked
    if not policy.is_on:
        return True
    if principal.method == "anonymous" or principal.name == "":
        return False
    if principal.name in policy.administrators:
        return True
    for grant in policy.grants:
        if (
            fnmatchcase(principal.name, grant.principal)
            and operation in grant.operations
            and resource.kind == grant.kind
            and fnmatchcase(resource.name, grant.name)
        ):
            return True
    return False


@given(POLICIES, st.lists(ASKED, min_size=1, max_size=12))
def test_policy_decides_like_a_naive_one(
    policy: AccessPolicy, asked: list[tuple[Principal, Operation, Resource]]
) -> None:
    for one in [*asked, *asked]:  # the second time from memory
        assert policy.allows(*one) is naive(policy, one)


@given(POLICIES, PRINCIPALS, st.sampled_from(Operation), st.sampled_from(ResourceKind))
def test_policy_knows_whether_anything_is_allowed_like_a_naive_one(
    policy: AccessPolicy, who: Principal, operation: Operation, kind: ResourceKind
) -> None:
    """Each grant allows something: what its own pattern is for."""
    names = ["", *(one.name.removesuffix("*") for one in policy.grants)]
    asked = [(who, operation, Resource(kind, name)) for name in names]
    for _ in range(2):
        found = policy.allows_some(who, operation, kind)
        assert found is any(naive(policy, one) for one in asked)


@pytest.mark.parametrize(
    ("pattern", "name", "is_for"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders-*", "orders-eu", True),
        ("orders-*", "orders", False),
        ("*", "", True),
        ("or*ers", "orders", False),
        ("", "", True),
    ],
)
def test_pattern_has_a_wildcard_only_at_its_end(pattern: str, name: str, is_for: bool) -> None:
    of_topic = Grant("alice", frozenset({Operation.LOOK}), ResourceKind.TOPIC, pattern)
    policy = AccessPolicy(is_on=True, grants=(of_topic,))
    alice, topic = Principal("alice", Method.USER), Resource(ResourceKind.TOPIC, name)
    assert policy.allows(alice, Operation.LOOK, topic) is is_for


def test_policy_when_on_and_empty_denies() -> None:
    principal = Principal("alice", Method.USER)
    for operation in Operation:
        assert OPEN.allows(ANONYMOUS, operation, CLUSTER)
        assert not AccessPolicy(is_on=True).allows(principal, operation, CLUSTER)


def test_name_alone_decides_however_its_owner_proved_it() -> None:
    grant = Grant("alice", frozenset({Operation.ADMINISTER}), ResourceKind.CLUSTER, "")
    policy = AccessPolicy(is_on=True, grants=(grant,))
    for method in (Method.TOKEN, Method.USER, Method.CERTIFICATE):
        assert policy.allows(Principal("alice", method), Operation.ADMINISTER, CLUSTER)
        assert not policy.allows(Principal("bob", method), Operation.ADMINISTER, CLUSTER)
    assert not policy.allows(Principal("alice", Method.ANONYMOUS), Operation.ADMINISTER, CLUSTER)


def test_policy_when_very_many_are_asked_remembers_a_bounded_number() -> None:
    grant = Grant("alice", frozenset({Operation.LOOK}), ResourceKind.TOPIC, "t1*")
    policy = AccessPolicy(is_on=True, grants=(grant,))
    alice = Principal("alice", Method.CERTIFICATE)
    for number in range(40_000):
        name = f"t{number}"
        found = policy.allows(alice, Operation.LOOK, Resource(ResourceKind.TOPIC, name))
        assert found is name.startswith("t1")


class Name(str):  # noqa: SLOT000 - it is to be watched
    """One that can be watched, and that counts how often it is looked into."""

    looks = 0

    def startswith(self, *args: object) -> bool:
        self.looks += 1
        return super().startswith(*args)  # type: ignore[arg-type]

    def __getitem__(self, key: object) -> str:
        self.looks += 1
        return super().__getitem__(key)  # type: ignore[index]


def test_name_that_is_longer_than_any_is_decided_on_and_not_remembered() -> None:
    """Else whoever may send requests could fill the node's memory with names."""
    policy = AccessPolicy(is_on=True, administrators=frozenset({"root"}))
    for principal in (Principal("root", Method.USER), ANONYMOUS):
        name = Name("t" * 100_000)
        remembered = weakref.ref(name)
        is_allowed = policy.allows(principal, Operation.LOOK, Resource(ResourceKind.TOPIC, name))
        assert is_allowed is (principal.name == "root")
        del name
        gc.collect()
        assert remembered() is None


def test_decision_does_not_look_at_all_grants() -> None:
    """A batch may have a thousand topics, and the node has other things to do meanwhile."""
    grants = tuple(
        Grant(who, frozenset({Operation.PUBLISH}), ResourceKind.TOPIC, f"t{number}-*")
        for number in range(1_000)
        for who in ("alice", "al*")
    )
    policy = AccessPolicy(is_on=True, grants=grants)
    name, who = Name("t999-x"), Name("alice")
    topic = Resource(ResourceKind.TOPIC, name)
    assert policy.allows(Principal(who, Method.USER), Operation.PUBLISH, topic)
    assert not policy.allows(Principal(who, Method.USER), Operation.RECEIVE, topic)
    assert name.looks + who.looks < 50
