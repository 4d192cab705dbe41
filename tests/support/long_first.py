"""In which order workers run the tests: the long ones first, so that none is left for the end.

`pytest --dist worksteal` gives each worker one slice of all tests, as they were collected; whoever
is done takes the later half of another's rest. Those that `LONG` names are dealt to the beginnings
of the slices, each to whoever has least to do.
"""

from collections.abc import Sequence
from typing import Final

LONG: Final = {
    "tests/tidy": 30.0,  # a worker that has read all files once is quicker with the rest of these
    "tests/deploy/test_other_languages.py": 40.0,  # and minutes where the caches are empty
    "tests/api/test_large_catalog.py": 20.0,
    "tests/deploy/test_installed.py": 70.0,
    "tests/sim/test_cluster_damage.py": 36.0,
    "tests/cluster/test_hostile_streams.py": 45.0,
    "tests/cluster/test_damage_walk.py": 30.0,
    "tests/cluster/test_damaged_members.py": 20.0,
    "tests/cluster/test_chaos.py": 90.0,
    "tests/cluster/test_kill.py": 20.0,
    "tests/cluster/test_disk_faults.py": 110.0,
    "tests/cluster/test_damage.py": 20.0,
    "tests/deploy/test_packaging.py": 35.0,
    "tests/cluster/test_versions.py": 80.0,
    "tests/cluster/test_guide_commands.py": 20.0,
    "tests/cluster/test_full_disk_alone.py": 20.0,
    "tests/sim/test_cluster_checkers.py": 20.0,
    "tests/deploy/test_bench_smoke.py": 30.0,
    "tests/cluster/test_cluster.py": 25.0,
    "tests/cluster/test_rolling_restart.py": 25.0,
    "tests/cluster/test_frozen_broker.py": 25.0,
    "tests/cluster/test_stopped_master.py": 40.0,
    "tests/cluster/test_unused_names.py": 20.0,
    "tests/cluster/test_faults.py": 20.0,
    "tests/cluster/test_full_disks.py": 40.0,
    "tests/deploy/test_chart_running.py": 40.0,
    "tests/cluster/test_session_takeover.py": 35.0,
    "tests/property/test_audit_agreement.py": 29.0,
    "tests/cluster/test_promote.py": 20.0,
    "tests/unit/node/cluster/test_promotion.py": 35.0,
    "tests/clients/test_worker_processes.py": 35.0,
    "tests/cluster/test_backup.py": 30.0,
    "tests/cluster/test_pages_failover.py": 25.0,
    "tests/cluster/test_local_cluster.py": 20.0,
    "tests/sim/test_cluster.py": 80.0,
    "tests/clients/test_broker_away.py": 40.0,
    "tests/monitoring/test_alerts.py": 20.0,
    "tests/cluster/test_hostile_connections.py": 28.0,
    "tests/clients/test_workers.py": 50.0,
    "tests/clients/test_celery.py": 60.0,
    "tests/cluster/test_grow.py": 30.0,
    "tests/cluster/test_reset_failover.py": 60.0,
    "tests/sim/test_crash_points.py": 60.0,
    "tests/cluster/test_hostile_peers.py": 55.0,
    "tests/property/test_shard_machine.py": 40.0,
}
"""How long tests take, in seconds, in `make test` on two cores with nothing else to do, by the
beginnings of their ids: "folder", "folder/file.py", or "folder/file.py::test_name"."""


def long_first(ids: Sequence[str], known: dict[str, float], workers: int) -> list[int]:
    """An order for tests, as positions in `ids`: each once.

    Args:
        ids: of all tests. Those of one long name stay together: they may share a fixture.
        known: see `LONG`. What is not in it is short.
        workers: how many slices there will be, of equal counts.
    """
    long: dict[str, list[int]] = {name: [] for name in known}
    short: list[int] = []
    for at, one in enumerate(ids):
        name = one.partition("[")[0]
        file = one.partition("::")[0]
        names = (name, file, file.rpartition("/")[0])
        next((long[each] for each in names if each in long), short).append(at)
    hands: list[list[int]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for name in sorted(long, key=lambda name: -known[name]):
        least = loads.index(min(loads))
        hands[least] += long[name]
        loads[least] += known[name]
    order: list[int] = []
    rest = iter(short)
    for number, hand in enumerate(hands):
        left = len(ids) - len(order) - sum(map(len, hands[number:]))
        size = max(0, (len(ids) - len(order)) // (workers - number) - len(hand))
        order += hand
        order += [next(rest) for _ in range(min(size, left))]
    return order
