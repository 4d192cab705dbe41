"""The steps as tasks: plain values in, plain values out, and nothing lost on the way."""

import pickle
from functools import partial

import numpy as np

from spark_jobs.audit.steps import ScanTask, join_releases, ledger_of, look_up, scan_range
from spark_jobs.runtime.runner import LocalRunner
from spark_jobs.runtime.shuffle import FACTS
from tests.support.audit_states import state_of
from tests.support.log_maker import Made


def test_tasks_and_results_can_be_sent_along(made: Made) -> None:
    state = state_of(made.directory)
    task = ScanTask(state.ranges[0], with_facts=True)
    part = pickle.loads(pickle.dumps(scan_range(pickle.loads(pickle.dumps(task)))))
    assert part.facts.batches == part.batches > 0
    plan = pickle.loads(pickle.dumps(state.plan))
    found = list(ledger_of(LocalRunner().share(plan), state.ranges[0]))
    assert [number for number, _ in found][-1] == FACTS
    assert all(isinstance(value, bytes) for number, value in found if number != FACTS)


def test_look_up_tells_what_the_log_says(made: Made) -> None:
    state = state_of(made.directory)
    wanted = [min(made.cancelled), min(made.released), 999_999]
    shared = state.runner.share(np.array(wanted, np.uint64))
    step = partial(look_up, state.shared_plan, shared)
    found = {one.sequence: one for part in state.runner.map(step, state.ranges) for one in part}
    assert found.keys() == {wanted[0], wanted[1]}
    assert found[wanted[0]].state == "cancelled"
    assert found[wanted[1]].state.startswith("released")
    assert found[wanted[1]].due_ms == made.accepted[wanted[1]][1]


def test_joiner_is_a_function_of_a_module() -> None:
    assert pickle.loads(pickle.dumps(join_releases)) is join_releases
