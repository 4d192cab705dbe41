"""Random lives of a simulated cluster: any trouble at any time, then it heals and is checked.

Each seed is one life, the same each time. What a life may meet is in tests/sim/cluster_faults.py;
what must hold is in tests/sim/checkers.py. `make soak` takes many more seeds, and so does

    CLUSTER_SEEDS=1000:3000 python -m pytest -q tests/sim/test_cluster_random.py
"""

import os

import pytest

from tests.sim.cluster import Cluster, Lives
from tests.sim.cluster_faults import live
from tests.support.small_sizes import small_sizes

LIFE_MS = 6_000.0


def chosen_seeds() -> range:
    """Few for each change, many for a soak, or those that are asked for."""
    asked = os.environ.get("CLUSTER_SEEDS", "")
    if asked:
        first, _, end = asked.partition(":")
        return range(int(first), int(end or int(first) + 1))
    return range(3_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 14)


@pytest.mark.parametrize("seed", chosen_seeds())
def test_I1_to_I8_hold_when_anything_goes_wrong_at_any_time(seed: int) -> None:  # noqa: N802
    with small_sizes(16):
        # Topics and groups come and go by command, or by themselves, or neither.
        by_command, by_themselves = seed % 4 == 1, seed % 4 == 3
        cluster = Cluster(
            seed,
            producers=1 + seed // 4 % 4,
            is_changing=by_command,
            visitors=2 * by_themselves,
            is_controlled=by_themselves and seed // 4 % 2 == 1,
            lives=Lives(
                expires_after_ms=(0, 60, 600)[seed % 3],
                has_priorities=seed % 5 < 2,
                has_recurrences=seed % 5 == 1,
            ),
        )
        cluster.events.is_tracing = True
        try:
            live(cluster, LIFE_MS)
        except BaseException as error:
            error.add_note("\n".join([*cluster.events.trace[-100:], cluster.describe()]))
            error.add_note(
                f"again: CLUSTER_SEEDS={seed} python -m pytest tests/sim/test_cluster_random.py"
            )
            raise
