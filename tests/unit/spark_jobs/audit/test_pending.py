"""What is pending by the log, by the wheel and by the checkpoint is the same."""

from typing import Any

import numpy as np
import pytest

from spark_jobs.audit.checks import wheel
from spark_jobs.audit.checks.wheel import plan_wheel, read_wheel
from spark_jobs.audit.facts.findings import Made as MadeCheck
from spark_jobs.audit.join import Joining
from spark_jobs.audit.pending import check_checkpoints, compare_wheels, pending_hours
from spark_jobs.runtime.instants import exact_instant_text
from tests.support.audit_runs import errors_of, run_audit
from tests.support.audit_states import errors_in, state_of
from tests.support.audited import only_copy
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


def test_unit_whose_other_fields_differ_is_named_by_its_message(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, copy = only_copy(made.directory)
    manifest = copy.manifest
    assert manifest is not None
    units = np.concatenate(
        [unit for one in plan_wheel(replica, copy, manifest) for unit in read_wheel(one)]
    )
    victim = units[units["crc"] == units["crc"].max()]
    real = wheel.hash_units

    def other(gene: Any, crc: Any, body_len: Any, meta_len: Any) -> Any:
        """As if one unit had another CRC."""
        return real(gene, crc, body_len, meta_len) ^ (crc == victim["crc"][0]).astype(np.uint32)

    monkeypatch.setattr(wheel, "hash_units", other)
    found = [one for one in errors_of(run_audit(made.directory)) if one.check == "wheel-extra"]
    assert sorted(one.sequence for one in found) == sorted(victim["sequence"].tolist())
    due = exact_instant_text(int(victim["due_ms"][0]))
    assert f"due {due}: its CRC, lengths, store_ms or tag gene" in found[0].detail
