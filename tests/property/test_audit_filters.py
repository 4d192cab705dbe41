"""A bug in filters that loses messages for a group is found by the audit; right filters are not."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaos.log_model import LogModel
from filters.gene_mask import GeneMask
from filters.vector_program import VectorProgram
from hourwheel.filter_language.lru_cache import LruCache
from hourwheel.formats.record_batch import Kind, Outcome
from spark_jobs.audit.facts.result import Verdict
from tests.support.audit_runs import checks_of, facts_of, run_audit
from tests.support.broken_logs import batches_of
from tests.support.filtered_life import make_filtered_log

Bug = Callable[[pytest.MonkeyPatch], None]


def passed_over(directory: Path) -> int:
    """How many positions RESOLVE rows call passed over."""
    return sum(
        count
        for batch in batches_of(directory)
        if batch.header.kind == Kind.RESOLVE
        for _, _, _, count, outcome, _ in batch.rows.tolist()
        if outcome == Outcome.FILTERED
    )


def lost_in(directory: Path) -> set[int]:
    """Sequences that were passed over and match all that the group had ever wanted by then.

    By the model of the log, which does not know which filter the master had when it looked.
    """
    lost: set[int] = set()

    class Model(LogModel):
        def _resolve_filtered(self, subscription: Any, queue: int, fresh: list[int]) -> None:
            for at in fresh:
                sequence = self.queues[queue][at].sequence
                if self.is_wanted(subscription.group_id, subscription.topic_id, sequence):
                    lost.add(sequence)

    model = Model()
    for batch in batches_of(directory):
        model.read(batch)
    return lost


@pytest.mark.parametrize("seed", range(4))
def test_log_of_right_filters_is_clean(tmp_path: Path, seed: int) -> None:
    directory = asyncio.run(make_filtered_log(tmp_path / "node-1", seed=seed))
    assert passed_over(directory) > 50
    result = run_audit(directory)
    assert checks_of(result) == set()
    assert result.verdict is Verdict.CLEAN


def mask_of_another_bit(patch: pytest.MonkeyPatch) -> None:
    """Genes are compared after they were shifted, as if bits were numbered from 1."""
    right = GeneMask.maybe
    patch.setattr(GeneMask, "maybe", lambda mask, genes: right(mask, np.array(genes) << 1))


def mask_that_drops_some(patch: pytest.MonkeyPatch) -> None:
    """The last of each block of eight is taken for one that cannot match."""
    right = GeneMask.maybe

    def wrong(mask: GeneMask, genes: Any) -> Any:
        found = right(mask, genes).copy()
        found[7::8] = False
        return found

    patch.setattr(GeneMask, "maybe", wrong)


def program_that_drops_some(patch: pytest.MonkeyPatch) -> None:
    """Of messages that are read as columns every third is taken for one that does not match."""
    right = VectorProgram.run

    def wrong(program: VectorProgram, *args: Any) -> Any:
        found = right(program, *args).copy()
        found[::3] = False
        return found

    patch.setattr(VectorProgram, "run", wrong)


@pytest.mark.parametrize(
    "bug", [mask_of_another_bit, mask_that_drops_some, program_that_drops_some]
)
def test_messages_that_a_bug_in_filters_loses_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug
) -> None:
    with monkeypatch.context() as patch:
        bug(patch)
        patch.setattr("filters.compile.FEW", 0)  # few messages are read as columns, too
        patch.setattr("filters.compile._cache", LruCache[Any, Any](1 << 20))
        directory = asyncio.run(make_filtered_log(tmp_path / "node-1"))
    lost = lost_in(directory)
    assert lost
    result = run_audit(directory)
    assert checks_of(result) == {"filter-missed"}
    assert facts_of(result, "filter-missed") >= lost
    assert result.verdict is Verdict.FAULTY
