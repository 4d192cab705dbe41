"""Who may read what a node tells over HTTP."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from hourwheel import errors
from node.access.authentication import Authenticator
from node.access.control import AccessControl
from node.access.port_gate import PortGate
from node.access.user_secrets import UserSecrets
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from tests.unit.node.access.test_authentication import basic

MAY_LOOK = Grant("mon", frozenset({Operation.LOOK}), ResourceKind.CLUSTER, "")


@pytest.fixture
def secrets() -> Iterator[UserSecrets]:
    made = UserSecrets(
        {"mon": "m", "eve": "e"}.get, lambda: 0.0, lambda hashed, secret: hashed == secret
    )
    yield made
    made.close()


async def test_who_may_look_at_the_cluster_is_let_in(secrets: UserSecrets) -> None:
    policy = AccessPolicy(is_on=True, grants=(MAY_LOOK,))
    gate = PortGate(Authenticator(now_ms=lambda: 0.0, secrets=secrets), AccessControl(policy))
    for header, status in {
        "": HTTPStatus.UNAUTHORIZED,
        "nonsense": HTTPStatus.UNAUTHORIZED,
        basic("mon:wrong"): HTTPStatus.UNAUTHORIZED,
        basic("eve:e"): HTTPStatus.FORBIDDEN,
        basic("mon:m"): HTTPStatus.OK,
    }.items():
        assert await gate.admit(header, "127.0.0.1") is status


async def test_everybody_is_let_in_where_access_control_is_off(secrets: UserSecrets) -> None:
    gate = PortGate(Authenticator(now_ms=lambda: 0.0, secrets=secrets), AccessControl())
    assert await gate.admit("nonsense", "127.0.0.1") is HTTPStatus.OK


async def test_nobody_can_say_before_the_grants_are_known(secrets: UserSecrets) -> None:
    policy = AccessPolicy(is_on=True, is_complete=False)
    gate = PortGate(Authenticator(now_ms=lambda: 0.0, secrets=secrets), AccessControl(policy))
    assert await gate.admit(basic("mon:m"), "h") is HTTPStatus.SERVICE_UNAVAILABLE

    def unknown(_name: str) -> str:
        raise errors.Unavailable

    later = UserSecrets(unknown, lambda: 0.0)
    gate = PortGate(Authenticator(now_ms=lambda: 0.0, secrets=later), AccessControl(policy))
    assert await gate.admit(basic("mon:m"), "h") is HTTPStatus.SERVICE_UNAVAILABLE
    later.close()
