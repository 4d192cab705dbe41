from typing import Any

import pytest

from hourwheel import errors
from hourwheel.transport.endpoints import (
    GONE_MS_MAX,
    GONE_MS_MIN,
    NAMED_GONE_MS,
    NOT_MASTER_MS,
    Endpoints,
    Move,
    Trouble,
    is_learnable,
    parse_servers,
    slow_ms,
)

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
NOW = 1_000.0
LOST = errors.Unavailable("cut")


def not_master(master: str = "", epoch: int | None = None) -> errors.NotMaster:
    params: dict[str, Any] = {} if epoch is None else {"epoch": epoch}
    return errors.NotMaster(**params, **({"master_address": master} if master else {}))


def three(current: str = A) -> Endpoints:
    """Endpoints A, B and C, of which `current` is the current one."""
    endpoints = Endpoints([A, B, C])
    assert endpoints.choose(NOW, [A, B, C].index(current) / 3) == current
    return endpoints


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", (A,)),
        ("a:1,b:1", (A, B)),
        (" a:1 , b:1,a:1", (A, B)),
        (["a:1", "b:1,c:1"], (A, B, C)),
        (("unix:/run/x.sock",), ("unix:/run/x.sock",)),
        ("[::1]:1,dns:///a:1", ("[::1]:1", "dns:///a:1")),
    ],
)
def test_parse_servers_when_good(servers: Any, addresses: tuple[str, ...]) -> None:
    assert parse_servers(servers) == addresses


@pytest.mark.parametrize(
    "servers",
    [
        *("", " ", ",", "a:1,", "a:1,,b:1", "a:1 b:1", [], ["a:1", ""]),
        *("a", ":1", "a:", "a:b", "a:0", "a:65536", "http://a:1", "::1", "::1:7400", "[::1]"),
        *(7400, None, [7400], b"a:1", ("a", 1)),
    ],
)
def test_parse_servers_when_bad(servers: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        parse_servers(servers)


@pytest.mark.parametrize(
    ("address", "can_be_used"),
    [
        ("n1.example.com:7400", True),
        ("127.0.0.1:7400", True),
        ("[::1]:7400", True),
        ("node_1:65535", True),
        ("", False),
        ("n1", False),
        ("n1:", False),
        ("n1:0", False),
        ("n1:65536", False),
        (":7400", False),
        ("0.0.0.0:7400", False),
        ("[::]:7400", False),
        ("n1:7400,n2:7400", False),
        ("n1:7400 ", False),
        ("unix:/run/x.sock", False),
    ],
)
def test_is_learnable_when_a_node_names_an_address(address: str, *, can_be_used: bool) -> None:
    assert is_learnable(address) == can_be_used


# --- choosing -------------------------------------------------------------------------------------


def test_choose_when_nothing_is_known() -> None:
    chosen = [Endpoints([A, B, C]).choose(NOW, fraction) for fraction in (0.0, 0.5, 0.999)]
    assert chosen == [A, B, C]
    with pytest.raises(errors.InvariantViolated):
        Endpoints([])


def test_choose_when_nothing_speaks_against_the_current_one() -> None:
    endpoints = three(B)
    assert {endpoints.choose(NOW + n, n / 10) for n in range(10)} == {B}
    assert endpoints.find_settled(NOW) == B


def test_find_settled_when_there_is_something_to_choose() -> None:
    endpoints = Endpoints([A, B, C])
    assert endpoints.find_settled(NOW) is None
    assert endpoints.choose(NOW, 0.5) == endpoints.find_settled(NOW) == B
    assert endpoints.on_failure(B, NOW, LOST) is not Move.STAY
    assert endpoints.find_settled(NOW) is None


def test_choose_when_there_is_only_one() -> None:
    endpoints = Endpoints([A])
    assert endpoints.is_alone
    assert endpoints.on_failure(A, NOW, LOST) is Move.STAY
    assert endpoints.choose(NOW, 0.0) == A
    assert endpoints.on_failure(A, NOW, not_master()) is Move.SEARCH
    assert endpoints.choose(NOW, 0.0) == A


def test_choose_when_all_are_avoided() -> None:
    endpoints = three()
    for wait_ms, address in enumerate((B, A, C)):
        endpoints.on_failure(address, NOW + wait_ms, LOST)
    order = []
    for wait_ms in range(10, 16):
        order.append(endpoints.choose(NOW + wait_ms, 0.9))
        assert endpoints.on_failure(order[-1], NOW + wait_ms, LOST) is Move.SEARCH
    assert order == [B, A, C, B, A, C]


def test_choose_when_all_are_avoided_and_one_is_only_slow() -> None:
    endpoints = three()
    endpoints.on_failure(B, NOW, LOST)
    endpoints.on_failure(C, NOW + 1, not_master())
    endpoints.on_answer(A, NOW + 50, 600.0)
    assert endpoints.choose(NOW + 50, 0.0) == A
    assert endpoints.trouble_at(A, NOW + 50) is Trouble.SLOW
    endpoints.on_failure(A, NOW + 50, LOST)
    assert endpoints.choose(NOW + 50, 0.0) == C  # B failed longer ago, but does not even answer


def test_slow_endpoint_when_no_other_can_name_a_master() -> None:
    endpoints = three()
    endpoints.on_answer(A, NOW, 20_000.0)
    assert endpoints.choose(NOW, 0.0) == B
    assert endpoints.on_failure(B, NOW, not_master()) is Move.AT_ONCE
    assert endpoints.trouble_at(A, NOW) is Trouble.NONE
    endpoints.on_answer(A, NOW + 29_999, 20_000.0)
    assert endpoints.trouble_at(A, NOW + 29_999) is Trouble.NONE


# --- latency --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [
        (0.0, 0.0),
        (549.9, 0.0),
        (550.0, 2_000.0),
        (999.9, 2_000.0),
        (1_000.0, 5_000.0),
        (3_000.0, 10_000.0),
        (9_999.0, 10_000.0),
        (10_000.0, 30_000.0),
        (1e9, 30_000.0),
    ],
)
def test_slow_ms_when_an_answer_took_so_long(latency_ms: float, avoided_ms: float) -> None:
    assert slow_ms(latency_ms) == avoided_ms
    endpoints = three()
    endpoints.on_answer(A, NOW, latency_ms)
    assert (endpoints.choose(NOW, 0.0) == A) == (avoided_ms == 0.0)
    assert endpoints.trouble_at(A, NOW + avoided_ms) is Trouble.NONE


def test_on_answer_when_a_slow_one_is_quick_again() -> None:
    endpoints = three()
    endpoints.on_answer(A, NOW, 600.0)
    assert endpoints.trouble_at(A, NOW) is Trouble.SLOW
    endpoints.on_answer(A, NOW + 1, 5.0)
    assert endpoints.trouble_at(A, NOW + 1) is Trouble.NONE


def test_on_answer_when_the_node_is_unknown() -> None:
    endpoints = three()
    endpoints.on_answer(D, NOW, 600.0)
    assert endpoints.on_failure(D, NOW, LOST) is Move.AT_ONCE
    assert endpoints.addresses == (A, B, C)


def test_slow_master_when_another_node_names_it_all_the_same() -> None:
    endpoints = three()
    endpoints.on_failure(C, NOW, not_master(A, 7))
    endpoints.on_answer(A, NOW, 600.0)
    other = endpoints.choose(NOW, 0.0)
    assert other == B
    assert endpoints.on_failure(other, NOW, not_master(A, 7)) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == A
    endpoints.on_answer(A, NOW + 1_999, 900.0)  # no news
    assert endpoints.choose(NOW + 1_999, 0.0) == A
    endpoints.on_answer(A, NOW + 2_000, 900.0)
    assert endpoints.trouble_at(A, NOW + 2_000) is Trouble.SLOW


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "waited_ms", "move", "trouble"),
    [
        (errors.Unavailable(), 0.0, Move.AT_ONCE, Trouble.GONE),
        (errors.ShuttingDown(), 0.0, Move.AT_ONCE, Trouble.GONE),
        (errors.NotMaster(), 0.0, Move.AT_ONCE, Trouble.NOT_MASTER),
        (errors.Timeout(), 2_000.0, Move.AT_ONCE, Trouble.GONE),
        (errors.Timeout(), 20.0, Move.STAY, Trouble.NONE),
        (errors.ClockUnsure(), 0.0, Move.STAY, Trouble.NONE),
        (errors.Overloaded(), 0.0, Move.STAY, Trouble.NONE),
        (errors.DiskFull(), 0.0, Move.STAY, Trouble.NONE),
        (errors.InvalidTopic(), 0.0, Move.STAY, Trouble.NONE),
        (errors.Internal(), 0.0, Move.STAY, Trouble.NONE),
        (errors.Cancelled(), 0.0, Move.STAY, Trouble.NONE),
    ],
)
def test_on_failure_when_of_each_kind(
    error: errors.HourwheelError, waited_ms: float, move: Move, trouble: Trouble
) -> None:
    endpoints = three()
    assert endpoints.on_failure(A, NOW, error, waited_ms) is move
    assert endpoints.trouble_at(A, NOW) is trouble
    assert (endpoints.choose(NOW, 0.0) == A) == (move is Move.STAY)


def test_gone_when_it_goes_on() -> None:
    endpoints, now_ms, avoided = three(), NOW, []
    for _ in range(7):
        endpoints.on_failure(A, now_ms, LOST)
        endpoints.on_failure(A, now_ms + 1, LOST)  # many calls may fail with it
        start_ms = now_ms
        while endpoints.trouble_at(A, now_ms) is Trouble.GONE:
            now_ms += 1.0
        avoided.append(now_ms - start_ms)
    assert avoided == [500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]
    assert endpoints.is_doubtful(A)
    endpoints.on_answer(A, now_ms, 1.0)
    assert not endpoints.is_doubtful(A)
    endpoints.on_failure(A, now_ms, LOST)
    assert endpoints.trouble_at(A, now_ms + GONE_MS_MIN) is Trouble.NONE


def test_gone_when_the_next_one_fails_too() -> None:
    endpoints = three()
    assert endpoints.on_failure(A, NOW, LOST) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == B
    assert endpoints.on_failure(B, NOW, LOST) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == C
    assert endpoints.on_failure(C, NOW, LOST) is Move.SEARCH


# --- redirects ------------------------------------------------------------------------------------


def test_redirect_when_the_master_is_named() -> None:
    endpoints = three()
    assert endpoints.on_failure(A, NOW, not_master(C, 7)) is Move.AT_ONCE
    assert (endpoints.choose(NOW, 0.0), endpoints.epoch) == (C, 7)
    assert endpoints.choose(NOW + NOT_MASTER_MS, 0.0) == C


def test_redirect_when_the_master_is_new_to_the_client() -> None:
    endpoints = Endpoints([A])
    assert endpoints.on_failure(A, NOW, not_master(D, 7)) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == D
    assert endpoints.addresses == (A, D)


@pytest.mark.parametrize("named", ["", "nonsense", "0.0.0.0:7400", A])
def test_redirect_when_the_name_cannot_be_used(named: str) -> None:
    endpoints = three()
    assert endpoints.on_failure(A, NOW, not_master(named, 7)) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == B
    assert (endpoints.addresses, endpoints.epoch) == ((A, B, C), 7)


def test_redirect_when_the_epoch_is_long_gone() -> None:
    endpoints = three()
    endpoints.on_failure(A, NOW, not_master(B, 7))
    endpoints.on_failure(B, NOW, LOST)
    assert endpoints.choose(NOW, 0.0) == C
    assert endpoints.on_failure(C, NOW, not_master(A, 6)) is Move.SEARCH
    assert endpoints.epoch == 7
    assert endpoints.on_failure(A, NOW + 1, not_master(B, 6)) is Move.SEARCH
    assert endpoints.trouble_at(B, NOW + 1) is Trouble.GONE


def test_redirect_when_the_master_of_a_known_epoch_is_gone() -> None:
    endpoints = three()
    endpoints.on_failure(A, NOW, not_master(B, 7))
    now_ms = NOW
    for _ in range(8):
        now_ms += GONE_MS_MAX
        endpoints.on_failure(B, now_ms, LOST)
    assert endpoints.trouble_at(B, now_ms + GONE_MS_MAX - 1) is Trouble.GONE
    assert endpoints.on_failure(C, now_ms, not_master(B, 7)) is Move.AT_ONCE
    assert endpoints.choose(now_ms, 0.0) == A  # C is not asked again at once, and B is gone
    # But as B is still named, it is tried again before long.
    assert endpoints.trouble_at(B, now_ms + NAMED_GONE_MS - 1) is Trouble.GONE
    assert endpoints.trouble_at(B, now_ms + NAMED_GONE_MS) is Trouble.NONE


def test_redirect_when_a_new_epoch_makes_one_that_is_gone_the_master() -> None:
    endpoints = three()
    endpoints.on_failure(A, NOW, not_master(B, 7))
    endpoints.on_failure(B, NOW, LOST)
    assert endpoints.on_failure(C, NOW, not_master(B, 8)) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == B


def test_redirect_when_two_nodes_point_at_each_other() -> None:
    endpoints = Endpoints([A, B])
    endpoints.choose(NOW, 0.0)
    assert endpoints.on_failure(A, NOW, not_master(B, 7)) is Move.AT_ONCE
    assert endpoints.on_failure(B, NOW, not_master(A, 7)) is Move.SEARCH


def test_redirect_when_the_epoch_is_missing_or_no_number() -> None:
    endpoints = three()
    endpoints.on_failure(A, NOW, not_master(B, 7))
    assert endpoints.on_failure(B, NOW, not_master(C)) is Move.AT_ONCE
    assert (endpoints.choose(NOW, 0.0), endpoints.epoch) == (C, 7)
    bad = errors.NotMaster(master_address=A, epoch="seven")
    assert endpoints.on_failure(C, NOW + NOT_MASTER_MS, bad) is Move.AT_ONCE
    assert (endpoints.choose(NOW + NOT_MASTER_MS, 0.0), endpoints.epoch) == (A, 7)


def test_redirect_when_the_new_master_does_not_know_it_yet() -> None:
    endpoints = three()
    endpoints.on_failure(A, NOW, not_master(B, 7))
    assert endpoints.on_failure(B, NOW, not_master(B, 7)) is Move.AT_ONCE
    assert endpoints.choose(NOW, 0.0) == C
    assert endpoints.on_failure(C, NOW, not_master(B, 7)) is Move.SEARCH
    assert endpoints.choose(NOW + NOT_MASTER_MS, 0.0) == B
