"""The audit log: what is written of those who may not call, and how much of it."""

from hourwheel import errors
from hourwheel.v1 import access_pb2 as wire
from node.access.audit import (
    AUDITED,
    DENIED_PER_PRINCIPAL,
    DENIED_TOTAL,
    DENIED_WINDOW_MS,
    NAME_CHARS_MAX,
    AuditEvent,
    AuditLog,
    subject_of,
)
from node.access.permissions import RULES
from node.contracts.access import (
    ANONYMOUS,
    CLUSTER,
    Method,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from tests.support.fake_clock import FakeClock

METHOD = "hourwheel.v1.AdminService.DeleteTopic"
PEER = "ipv4:10.0.0.1:999"
ROOT = Principal("root", Method.TOKEN)
DENIED = errors.PermissionDenied("no", resource_kind="topic", resource="orders")


class World:
    def __init__(self) -> None:
        self.clock, self.events = FakeClock(), list[AuditEvent]()
        self.log = AuditLog(self.clock, self.events.append)

    def deny(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.log.note_denied(Principal(name, Method.USER), METHOD, DENIED, PEER)


def test_event_says_who_did_what() -> None:
    world = World()
    world.log.note(ROOT, METHOD, [Resource(ResourceKind.TOPIC, "orders"), CLUSTER], "OK", PEER)
    (event,) = world.events
    named = [{"kind": "topic", "name": "orders"}, {"kind": "cluster", "name": ""}]
    time_ms = int(world.clock.wall)
    assert event == (time_ms, "root", "token", METHOD, named, "OK", PEER, 0, "", {})


def test_events_of_refused_calls_are_limited_for_each_principal() -> None:
    world = World()
    world.deny("eve", DENIED_PER_PRINCIPAL + 5)
    assert {event.principal_method for event in world.events} == {"user"}
    assert [event.unlogged for event in world.events] == [0] * DENIED_PER_PRINCIPAL
    world.deny("bob")
    assert (world.events[-1].principal, world.events[-1].unlogged) == ("bob", 5)
    world.deny("eve", 3)
    world.clock.pass_ms(DENIED_WINDOW_MS)
    world.deny("eve")
    assert (world.events[-1].principal, world.events[-1].unlogged) == ("eve", 3)


def test_events_of_refused_calls_are_limited_together_and_others_are_not() -> None:
    world = World()
    for number in range(DENIED_TOTAL + 50):
        world.deny(f"eve-{number}")
    assert len(world.events) == DENIED_TOTAL
    for _ in range(DENIED_TOTAL):
        world.log.note(ROOT, METHOD, [CLUSTER], "OK", PEER)
    assert len(world.events) == 2 * DENIED_TOTAL
    assert [event.unlogged for event in world.events[DENIED_TOTAL:]] == [50, *[0] * 99]


def test_only_errors_of_permission_are_refusals() -> None:
    world = World()
    for error in (errors.Overloaded("x"), errors.UnknownTopic("x"), errors.Internal("x")):
        world.log.note_denied(ANONYMOUS, METHOD, error, PEER)
    assert world.events == []
    for error in (errors.Unauthenticated("x"), errors.PeerRefused("x"), DENIED):
        world.log.note_denied(ANONYMOUS, METHOD, error, PEER)
    assert [event.outcome for event in world.events] == [
        "UNAUTHENTICATED", "PEER_REFUSED", "PERMISSION_DENIED"
    ]  # fmt: skip
    assert [event.resources for event in world.events] == [
        [], [], [{"kind": "topic", "name": "orders"}]
    ]  # fmt: skip


def test_claimed_name_is_asked_for_events_only_and_cut() -> None:
    world, asked = World(), list[int]()

    def claimed() -> str:
        asked.append(1)
        return "z" * 1_000

    for _ in range(2 * DENIED_PER_PRINCIPAL):
        world.log.note_denied(ANONYMOUS, METHOD, errors.Unauthenticated("x"), PEER, claimed)
    assert len(asked) == len(world.events) == DENIED_PER_PRINCIPAL
    assert {event.claimed for event in world.events} == {"z" * NAME_CHARS_MAX}


def test_long_names_are_cut() -> None:
    world = World()
    long = errors.PermissionDenied("no", resource_kind="topic", resource="x" * 1_000_000)
    world.log.note_denied(Principal("y" * 1_000_000, Method.USER), METHOD, long, PEER)
    (event,) = world.events
    assert event.principal == "y" * NAME_CHARS_MAX
    assert event.resources[0]["name"] == "x" * NAME_CHARS_MAX


def test_methods_that_change_what_all_share_are_noted() -> None:
    admin = {"CreateTopic", "DeleteTopic", "PutGroup", "DeleteGroup", "TransferMaster"}
    admin |= {"DiscardDamaged", "CancelPending", "ReschedulePending", "PutSubscription"}
    assert {name.rpartition(".")[2] for name in AUDITED} >= admin
    for name, rule in RULES.items():
        assert (rule.operation is not Operation.ADMINISTER) or name in AUDITED
    assert set(RULES) >= AUDITED


def test_changes_of_who_may_do_what_are_named_in_full() -> None:
    grant = wire.AccessGrant(
        principal="alice", kind=wire.ACCESS_RESOURCE_KIND_TOPIC, resource="orders-*"
    )
    quota = wire.AccessQuota(principal="*")
    of_grant = ("grant", "alice\ntopic\norders-*")
    named = {
        ("user", "alice"): [
            wire.PutUserRequest(user="alice", secret="hush"),
            wire.DeleteUserRequest(user="alice"),
        ],
        of_grant: [wire.PutGrantRequest(grant=grant), wire.DeleteGrantRequest(grant=grant)],
        ("quota", "*"): [
            wire.PutQuotaRequest(quota=quota),
            wire.DeleteQuotaRequest(principal="*"),
        ],
    }
    for subject, requests in named.items():
        assert [subject_of(request) for request in requests] == [subject, subject]
    assert subject_of(wire.ListUsersRequest()) is None
    world = World()
    world.log.note(ROOT, METHOD, [CLUSTER], "OK", PEER, wire.PutGrantRequest(grant=grant))
    assert world.events[0].changed["grant.resource"] == "orders-*"
    assert world.events[0].resources[1] == {"kind": "grant", "name": of_grant[1]}
