"""The checkers of the simulated cluster find what they are for: bugs are planted, and found."""

from collections.abc import Iterator

import pytest

from hourwheel import errors
from tests.sim.event_loop import end_abandoned
from tests.sim.seeded_bugs import BUGS, Bug, Life, planted
from tests.support.small_sizes import small_sizes

SEEDS_MAX = 10


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def find(bug: Bug, life: Life) -> str:
    """What was found wrong with a planted bug, or nothing."""
    with planted(bug):
        for seed in range(SEEDS_MAX):
            try:
                life(seed)
            except (AssertionError, errors.InvariantViolated) as error:
                end_abandoned()
                return f"seed {seed}: {error}"
    return ""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_bug_is_found_when_it_is_planted(bug: Bug) -> None:
    found = find(bug, BUGS[bug])
    assert found, f"{SEEDS_MAX} lives with a bug, and nothing was found"


@pytest.mark.parametrize("life", dict.fromkeys(BUGS.values()), ids=lambda life: life.__name__)
def test_nothing_is_found_when_no_bug_is_planted(life: Life) -> None:
    life(0)
    life(1)
