"""Whatever is changed in a node's files, with all checksums right: the audit finds and names it."""

import asyncio
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.audit.facts.result import Verdict
from tests.support.audit_runs import SMALL, errors_of, run_audit
from tests.support.clean_lives import live, write_image
from tests.support.log_edits import EDITS
from tests.support.log_maker import make_log
from tests.support.tampering import FAULTS

_AT_LEAST = 100
_IN_TIME = replace(SMALL, late_ms_max=1 << 60)
"""Clocks of these lives jump."""
_SEEDS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 5
_LIVES = [
    *(
        (kind, seed)
        for kind in ("plain", "filters", "small", "behind", "deleting", "retained")
        for seed in range(_SEEDS)
    ),
    *((kind, 0) for kind in ("trimmed", "snapshot")),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's directory that nobody may change."""
    place = tmp_path_factory.mktemp("made") / "node-1"
    asyncio.run(make_log(place, seed=1, rounds=4))
    return place


def test_kinds_are_many() -> None:
    """Those of this file, and those of `test_audit_faults`."""
    assert len(EDITS) + len(FAULTS) >= _AT_LEAST


@pytest.mark.parametrize("edit", EDITS)
def test_edit_is_found_and_named(node: Path, tmp_path: Path, edit: str) -> None:
    copy = Path(shutil.copytree(node, tmp_path / "node-1"))
    wanted = EDITS[edit](copy, random.Random(3))
    result = run_audit(copy)
    assert result.verdict is Verdict.FAULTY
    found = errors_of(result)
    assert any(
        one.check in wanted.checks
        and wanted.file in {"", one.file}
        and wanted.sequence in {-1, one.sequence}
        and wanted.offset in {-1, one.offset}
        and wanted.words in one.detail
        for one in found
    ), [(*one[1:9], one.detail) for one in found[:20]]


@pytest.mark.parametrize(("kind", "seed"), _LIVES)
def test_life_that_nothing_is_wrong_with_is_clean(tmp_path: Path, kind: str, seed: int) -> None:
    directory = write_image(live(seed, kind, steps=20), tmp_path / "node-1")
    result = run_audit(directory, options=_IN_TIME)
    assert errors_of(result) == []
    result = replace(result, accepted=("log-trimmed", "checkpoint-missing"))
    assert result.verdict is Verdict.CLEAN
