"""What a node decides by, before and after it hears of the control state."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from hourwheel import errors
from node.access.control import CALLER
from node.access.permissions import RULES, topic_resource
from node.access.policy_feed import PolicyFeed, policy_of
from node.access.quotas import Limits
from node.config.access import AccessSection
from node.contracts.access import Grant, Method, Operation, Principal, ResourceKind
from replication.control_state.access import (
    AccessState,
    GrantKey,
    Quota,
    QuotaLimits,
    StoredGrant,
    User,
    stored_limit,
)

ON = AccessSection(is_on=True, administrators="root")
ALICE, ROOT = (Principal(name, Method.TOKEN) for name in ("alice", "root"))
ORDERS = topic_resource("orders")
RECEIVE = RULES["hourwheel.v1.ConsumerService.Ack"]


class Request:
    group = "billing"


@contextmanager
def calling(who: Principal) -> Iterator[None]:
    """As in a call of theirs."""
    token = CALLER.set(who)
    yield
    CALLER.reset(token)


def state(version: int, *grants: tuple[str, str, str, str], **users: str) -> AccessState:
    keys = [(GrantKey(*grant[:3]), frozenset(grant[3].split())) for grant in grants]
    return AccessState(
        version=version,
        users=MappingProxyType({name: User(name, has, version) for name, has in users.items()}),
        grants=MappingProxyType({key: StoredGrant(key, can, version) for key, can in keys}),
    )


def test_policy_has_what_configuration_and_state_say() -> None:
    policy = policy_of(ON, state(7, ("alice", "topic", "or*", "publish look")))
    operations = frozenset({Operation.PUBLISH, Operation.LOOK})
    assert policy.grants == (Grant("alice", operations, ResourceKind.TOPIC, "or*"),)
    assert (policy.is_on, policy.is_complete, policy.version) == (True, True, 7)
    assert policy.administrators == {"root"}


def test_only_administrators_may_before_the_state_is_known() -> None:
    feed = PolicyFeed(ON)
    asks: tuple[Callable[[], object], ...] = (
        lambda: feed.control.check(RECEIVE, Request),
        lambda: feed.control.may_look(ORDERS),
        lambda: feed.find_hash("alice"),
    )
    with calling(ROOT):
        feed.control.check(RECEIVE, Request)
        assert feed.control.may_look(ORDERS)
    with calling(ALICE):
        for ask in asks:
            with pytest.raises(errors.Unavailable):
                ask()
        feed.on_state(state(0))
        with pytest.raises(errors.PermissionDenied):
            feed.control.check(RECEIVE, Request)
        assert not feed.control.may_look(ORDERS)
    assert feed.find_hash("alice") is None


def test_everybody_may_where_access_control_is_off() -> None:
    feed = PolicyFeed(AccessSection())
    with calling(ALICE):
        feed.control.check(RECEIVE, Request)
        feed.on_state(state(3, ("bob", "group", "billing", "receive")))
        feed.control.check(RECEIVE, Request)


def test_hashes_are_those_of_the_last_state() -> None:
    feed = PolicyFeed(ON)
    feed.on_state(state(1, alice="$1"))
    assert feed.find_hash("alice") == "$1"
    feed.on_state(state(2, bob="$2"))
    assert [feed.find_hash(name) for name in ("alice", "bob")] == [None, "$2"]


async def test_poll_ends_when_a_state_without_its_grant_comes() -> None:
    feed = PolicyFeed(ON)
    feed.on_state(state(1, ("alice", "group", "billing", "receive")))
    policy = feed.control.policy
    feed.on_state(state(1, ("alice", "group", "billing", "receive")))
    assert feed.control.policy is policy  # nothing of it has changed

    async def poll() -> Any:
        with calling(ALICE), feed.control.until_revoked(RECEIVE, Request):
            await asyncio.get_running_loop().create_future()

    polling = asyncio.create_task(poll())
    await asyncio.sleep(0)
    feed.on_state(state(2))
    with pytest.raises(errors.PermissionDenied):
        await polling


def test_quotas_of_the_state_hold_where_access_control_is_on() -> None:
    limits = QuotaLimits(messages_per_s=stored_limit(0), topics=stored_limit(5))
    of_state = AccessState(version=1, quotas=MappingProxyType({"*": Quota("*", limits, 1)}))
    feed = PolicyFeed(ON)
    assert not feed.quotas.is_on
    feed.on_state(of_state)
    assert feed.quotas.limits_of("alice") == Limits(messages_per_s=0, topics=5)
    assert feed.quotas.limits_of("root") == Limits()
    off = PolicyFeed(AccessSection())
    off.on_state(of_state)
    assert not off.quotas.is_on
