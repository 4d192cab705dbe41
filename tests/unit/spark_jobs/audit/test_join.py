"""Queues and groups of a whole shard: counts that must hold together."""

from spark_jobs.audit.facts.findings import Made as MadeCheck
from spark_jobs.audit.join import Joining, count_below
from tests.support.audit_states import errors_in, state_of
from tests.support.broken_logs import read_queue
from tests.support.log_maker import Made


def test_join_of_a_right_log_finds_all_equal(made: Made) -> None:
    state = state_of(made.directory)
    joining = Joining(state)
    joining.run()
    assert errors_in(state) == []
    assert all(diff.is_equal for diff in joining.diffs.values())
    queues = {place.topic_queue: diff.compared for place, diff in joining.diffs.items()}
    assert queues[256] == len(read_queue(made.directory, 256))
    assert sum(queues.values()) == int(joining.part.sums["count"].sum())
    assert [one.made for one in state.checks if one.area == "queues"] == [MadeCheck.FULL]


def test_groups_of_a_right_log_add_up(made: Made) -> None:
    state = state_of(made.directory)
    joining = Joining(state)
    joining.run()
    by_name = {one.group: one for one in joining.groups}
    assert by_name.keys() == {"billing", "archive"}
    for one in joining.groups:
        # A message ends acknowledged or dead, or it is on its way: each once.
        assert one.acked + one.dead + one.outstanding + one.retry_pending == one.released
    assert sum(one.acked for one in joining.groups) == made.acknowledged
    assert sum(one.retries + one.dead for one in joining.groups) == made.given_back


def test_count_below_an_edge_is_exact(made: Made) -> None:
    state = state_of(made.directory)
    applied = state.copies[0][1].applied_offset
    assert count_below(state, 256, applied) == len(read_queue(made.directory, 256))
    assert count_below(state, 9 << 8, applied) == 0
