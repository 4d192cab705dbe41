"""A voter without a past takes part when none can be hidden from it."""

from itertools import combinations

import pytest

from replication.raft.admission import Admission, words_needed


@pytest.mark.parametrize("voter_count", range(2, 8))
def test_who_has_noted_a_former_life_is_among_those_who_are_asked(voter_count: int) -> None:
    sets = list(combinations(range(voter_count - 1), words_needed(voter_count)))
    assert all(set(former) & set(asked) for former in sets for asked in sets)


def test_voter_is_admitted_when_all_of_two_others_do_not_know_it() -> None:
    admission = Admission(3, is_blank=True)
    assert not admission.is_given
    assert not admission.on_unknown("n2")
    assert not admission.on_unknown("n2")
    assert admission.on_unknown("n3")
    assert admission.is_given
    assert not admission.on_unknown("n2"), "it has begun already"


def test_voter_with_a_past_or_without_others_asks_nobody() -> None:
    assert Admission(3, is_blank=False).is_given
    assert Admission(1, is_blank=True).is_given
