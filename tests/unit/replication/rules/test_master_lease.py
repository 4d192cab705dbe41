"""The lease and the grant that it rests on."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from replication.rules.master_lease import LeaseConfig, LeaseGrant, MastershipLease

CONFIG = LeaseConfig(lease_ms=600.0, margin_ratio=0.05)
_rates = st.floats(0.975, 1.025)
"""Clocks differ in speed by 5 % at most: what the margin is for."""
_delays = st.floats(0, 5_000)
_beats = st.lists(st.tuples(st.floats(0, 5_000), _delays, _delays), min_size=1, max_size=8)


@given(_beats, _rates, _rates, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_I4_lease_ends_before_the_grant_when_messages_are_late_and_clocks_differ(  # noqa: N802
    beats: list[tuple[float, float, float]], fast: float, slow: float, zero: float, other: float
) -> None:
    """Beats are (sent, way there, way back) in true time; each side has a clock of its own."""
    lease, grant = MastershipLease(CONFIG, ["a", "b", "c"], "a"), LeaseGrant(0, 0)
    heard = sorted((sent + there, sent, back) for sent, there, back in beats)
    echoes = []
    free_at = -inf
    for heard_at, sent, back in heard:
        own_ms = other + heard_at * slow
        grant.renew(1, "a", "a1", own_ms + CONFIG.lease_ms)
        left_ms = grant.left_ms(2, "c", own_ms)
        free_at = max(free_at, heard_at + left_ms / slow)
        echoes.append((heard_at + back, sent))
    for _, sent in sorted(echoes):
        lease.on_echo("b", zero + sent * fast)
        ends_at = (lease.until_ms() - zero) / fast
        assert ends_at <= free_at + 1e-6


@given(st.dictionaries(st.sampled_from("bcde"), st.floats(0, 1e4)), st.sampled_from([1, 2, 3, 5]))
def test_lease_lasts_as_long_as_a_majority_has_granted(
    echoes: dict[str, float], count: int
) -> None:
    members = "abcde"[:count]
    lease = MastershipLease(CONFIG, members, "a")
    for node, sent_ms in echoes.items():
        lease.on_echo(node, sent_ms)
    until_ms = lease.until_ms()
    if count == 1:
        assert until_ms == inf
        return
    if until_ms == -inf:
        assert sum(node in echoes for node in members) + 1 <= count / 2
        return
    granted_ms = until_ms - CONFIG.lease_ms * (1 - CONFIG.margin_ratio)
    granted = sum(echoes[node] >= granted_ms - 1e-6 for node in echoes if node in members)
    assert granted + 1 > count / 2


def test_lease_is_not_renewed_when_an_old_echo_comes_late() -> None:
    lease = MastershipLease(CONFIG, ["a", "b", "c"], "a")
    lease.on_echo("b", 1_000)
    lease.on_echo("b", 400)
    assert lease.until_ms() == 1_000 + 570
    assert lease.is_valid(1_569.9)
    assert not lease.is_valid(1_570)


def test_lease_is_not_renewed_when_a_stranger_or_the_master_itself_echoes() -> None:
    lease = MastershipLease(CONFIG, ["a", "b", "c"], "a")
    lease.on_echo("a", 1_000)
    lease.on_echo("z", 1_000)
    assert lease.until_ms() == -inf


def test_lease_is_over_for_good_when_it_was_released() -> None:
    lease = MastershipLease(CONFIG, ["a", "b", "c"], "a")
    lease.on_echo("b", 1_000)
    lease.release()
    lease.on_echo("c", 2_000)
    assert not lease.is_valid(0)


def test_grant_keeps_from_everybody_when_the_node_has_just_started() -> None:
    grant = LeaseGrant(100, 600)
    assert grant.left_ms(7, "a", 100) == 600
    assert grant.left_ms(7, "a", 699) == 1
    assert grant.left_ms(7, "a", 700) == 0


def test_grant_keeps_from_others_only() -> None:
    grant = LeaseGrant(0, 0)
    grant.renew(3, "a", "a1", 1_000)
    grant.renew(3, "a", "a1", 900)  # an earlier heartbeat, heard later
    assert grant.left_ms(3, "a", 500) == 0
    assert grant.left_ms(4, "b", 500) == 500
    assert grant.left_ms(4, "a", 500) == 500
    assert grant.left_ms(4, "b", 1_000) == 0


def test_grant_ends_when_its_master_says_so_and_no_other() -> None:
    grant = LeaseGrant(0, 0)
    grant.renew(3, "a", "a1", 1_000)
    grant.release(2)
    assert grant.left_ms(4, "b", 500) == 500
    grant.release(3)
    assert grant.left_ms(4, "b", 500) == 0


def test_grant_ends_when_the_process_that_has_it_has_ended() -> None:
    grant = LeaseGrant(0, 0)
    grant.renew(3, "a", "a1", 1_000)
    grant.ended_boot_ids = frozenset({"a0", "b1"})
    assert grant.left_ms(4, "b", 500) == 500, "others have ended"
    grant.ended_boot_ids = frozenset({"a0", "a1"})
    assert grant.left_ms(4, "b", 500) == 0
    grant.renew(4, "a", "a2", 2_000)
    assert grant.left_ms(5, "b", 1_500) == 500, "it has started anew, and leads again"


def test_grant_of_a_node_that_has_just_started_is_waited_for_whoever_has_ended() -> None:
    grant = LeaseGrant(100, 600)
    grant.ended_boot_ids = frozenset({"", "a1"})
    assert grant.left_ms(7, "b", 100) == 600


def test_grant_of_two_incarnations_is_waited_for_when_one_of_them_has_ended() -> None:
    grant = LeaseGrant(0, 0)
    grant.renew(3, "a", "a1", 1_000)
    grant.renew(3, "a", "a2", 1_000)
    grant.ended_boot_ids = frozenset({"a1", "a2"})
    assert grant.left_ms(4, "b", 500) == 500
