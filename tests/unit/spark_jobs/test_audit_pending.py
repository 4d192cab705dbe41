"""What is pending by the log, by the wheel and by the checkpoint is the same."""

from spark_jobs.audit_join import Joining
from spark_jobs.audit_pending import check_checkpoints, compare_wheels, pending_hours
from spark_jobs.findings import Made as MadeCheck
from tests.support.audit_states import errors_in, state_of
from tests.support.log_maker import Made


def test_wheel_and_checkpoint_of_a_right_log_agree(made: Made) -> None:
    state = state_of(made.directory)
    joining = Joining(state)
    joining.run()
    units = compare_wheels(state, joining.retries)
    check_checkpoints(state, joining)
    assert errors_in(state) == []
    manifest = state.copies[0][1].manifest
    assert manifest is not None
    assert units == {"node-1": manifest.pending_count}
    hours, counts = pending_hours(state, joining.retries)
    assert int(counts.sum()) == manifest.pending_count
    assert (hours % 3_600_000 == 0).all()
    assert [one.made for one in state.checks if one.area == "wheel"] == [MadeCheck.FULL]
