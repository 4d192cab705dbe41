"""A voter without a past takes part when none can be hidden from it."""

from itertools import combinations

import pytest

from replication.raft.admission import Admission, words_needed


@pytest.mark.parametrize("voter_count", range(1, 8))
def test_those_who_were_asked_meet_each_majority_that_it_may_have_been_in(
    voter_count: int,
) -> None:
    others = range(voter_count - 1)
    asked = combinations(others, words_needed(voter_count))
    majorities = list(combinations(others, voter_count // 2))  # without itself
    for some in asked:
        assert voter_count == 1 or all(set(some) & set(one) for one in majorities)


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
