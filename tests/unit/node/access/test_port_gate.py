"""Who may read what a node tells over HTTP."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from hourwheel import errors
from node.access.audit import DENIED_PER_PRINCIPAL, DENIED_TOTAL, AuditEvent, AuditLog
from node.access.authentication import Authenticator
from node.access.control import AccessControl
from node.access.port_gate import PortGate
from node.access.user_secrets import UserSecrets
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from node.telemetry.stats import ApiStats
from tests.support.fake_clock import FakeClock
from tests.unit.node.access.test_authentication import basic

MAY_LOOK = Grant("mon", frozenset({Operation.LOOK}), ResourceKind.CLUSTER, "")


@pytest.fixture
def secrets() -> Iterator[UserSecrets]:
    made = UserSecrets(
        {"mon": "m", "eve": "e"}.get, lambda: 0.0, lambda hashed, secret: hashed == secret
    )
    yield made
    made.close()


class World:
    """A gate, what it counts, and the events that it writes."""

    def __init__(self, secrets: UserSecrets, policy: AccessPolicy | None = None) -> None:
        self.stats, self.events = ApiStats(), list[AuditEvent]()
        self._gate = PortGate(
            Authenticator(now_ms=lambda: 0.0, secrets=secrets),
            AccessControl() if policy is None else AccessControl(policy),
            AuditLog(FakeClock(), self.events.append),
            self.stats,
        )

    async def ask(self, authorization: str = "", path: str = "/metrics") -> HTTPStatus:
        return await self._gate.admit(authorization, "192.0.2.1", path)


async def test_who_may_look_at_the_cluster_is_let_in(secrets: UserSecrets) -> None:
    policy = AccessPolicy(is_on=True, grants=(MAY_LOOK,))
    world = World(secrets, policy)
    for header, status in {
        "": HTTPStatus.UNAUTHORIZED,
        "nonsense": HTTPStatus.UNAUTHORIZED,
        basic("mon:wrong"): HTTPStatus.UNAUTHORIZED,
        basic("eve:e"): HTTPStatus.FORBIDDEN,
        basic("mon:m"): HTTPStatus.OK,
    }.items():
        assert await world.ask(header) is status


async def test_everybody_is_let_in_where_access_control_is_off(secrets: UserSecrets) -> None:
    world = World(secrets)
    assert await world.ask("nonsense") is HTTPStatus.OK
    assert (world.stats.rejected, world.events) == ({}, [])


async def test_nobody_can_say_before_the_grants_are_known(secrets: UserSecrets) -> None:
    policy = AccessPolicy(is_on=True, is_complete=False)
    world = World(secrets, policy)
    assert await world.ask(basic("mon:m")) is HTTPStatus.SERVICE_UNAVAILABLE

    def unknown(_name: str) -> str:
        raise errors.Unavailable

    later = UserSecrets(unknown, lambda: 0.0)
    world = World(later, policy)
    assert await world.ask(basic("mon:m")) is HTTPStatus.SERVICE_UNAVAILABLE
    later.close()
    assert (world.stats.rejected, world.events) == ({"UNAVAILABLE": 1}, [])


async def test_what_is_refused_is_counted_and_audited_as_calls_are(secrets: UserSecrets) -> None:
    world = World(secrets, AccessPolicy(is_on=True, grants=(MAY_LOOK,)))
    await world.ask(basic("mon:wrong"))
    await world.ask(basic("eve:e"), "/stalls")
    await world.ask()
    await world.ask(basic("mon:m"))
    assert world.stats.rejected == {"UNAUTHENTICATED": 1, "PERMISSION_DENIED": 2}
    assert [
        (one.principal, one.method, one.outcome, one.peer, one.claimed) for one in world.events
    ] == [
        ("", "GET /metrics", "UNAUTHENTICATED", "192.0.2.1", "mon"),
        ("eve", "GET /stalls", "PERMISSION_DENIED", "192.0.2.1", ""),
        ("", "GET /metrics", "PERMISSION_DENIED", "192.0.2.1", ""),
    ]
    for _ in range(2 * DENIED_TOTAL):
        await world.ask("nonsense")
    assert len(world.events) <= 2 * DENIED_PER_PRINCIPAL
    assert world.stats.rejected["UNAUTHENTICATED"] == 1 + 2 * DENIED_TOTAL
