"""Members change while nodes crash, and nothing is lost, done twice or done by two masters."""

import os

import pytest

from tests.sim.cluster_faults import live
from tests.sim.cluster_members import ChangingCluster
from tests.support.small_sizes import small_sizes

LIFE_MS = 4_000.0


def chosen_seeds() -> range:
    """Few for each change, many for a soak."""
    return range(1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 6)


@pytest.mark.parametrize("seed", chosen_seeds())
def test_I1_to_I8_hold_while_members_change(seed: int) -> None:  # noqa: N802
    with small_sizes(16):
        cluster = ChangingCluster(seed)
        cluster.events.is_tracing = True
        try:
            live(cluster, LIFE_MS)
        except BaseException as error:
            error.add_note("\n".join([*cluster.events.trace[-100:], cluster.describe()]))
            raise
    assert {one.name for one in cluster.members} == set(cluster.control.replicas)
