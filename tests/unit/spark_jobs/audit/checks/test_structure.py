"""Seams between ranges, epochs, and records that nobody understands."""

from dataclasses import replace
from pathlib import Path

import pytest

from node.shard.views import FEATURE_LEVEL as LEVEL_OF_THE_NODE
from spark_jobs.audit.checks.structure import (
    FEATURE_LEVEL,
    cut_facts,
    damage_findings,
    epoch_findings,
    first_unknown,
    joined_facts,
    node_of,
    start_findings,
)
from spark_jobs.audit.facts.scan import Edge, LogFacts
from spark_jobs.logs.block_table import TORN_TAIL, UNKNOWN_KIND, Damage
from spark_jobs.logs.ranges import SegmentRange
from storage.log.epochs import EpochEntry
from tests.support.audit_states import state_of
from tests.support.log_maker import Made

WHERE = SegmentRange("/", "n", 0, "", "p", 0, 0, 0)


def test_audit_knows_what_the_node_knows() -> None:
    assert FEATURE_LEVEL == LEVEL_OF_THE_NODE


def test_damage_is_an_error_unless_it_is_a_torn_end() -> None:
    damages = [Damage("n", 0, "p", 8, 16, TORN_TAIL, "d"), Damage("n", 0, "p", 8, 16, "x", "d")]
    assert [(one.severity, one.check) for one in damage_findings(damages)] == [
        ("info", "log-torn-tail"),
        ("error", "log-corrupt"),
    ]


def test_seam_when_a_sequence_is_left_out_is_a_gap() -> None:
    first = LogFacts(first=Edge(0, 0, 1, 5), last=Edge(800, 7, 1, 9))
    right = LogFacts(first=Edge(800, 7, 1, 9), last=Edge(900, 8, 1, 9))
    wrong = LogFacts(first=Edge(800, 9, 1, 9), last=Edge(900, 9, 1, 9))
    assert joined_facts([(WHERE, first), (WHERE, LogFacts()), (WHERE, right)])[1] == []
    found = joined_facts([(WHERE, first), (WHERE, wrong)])[1]
    assert [(one.check, one.sequence, one.offset) for one in found] == [("sequence-gap", 7, 800)]
    late = LogFacts(first=Edge(0, 3, 1, 5), last=Edge(800, 7, 1, 9))
    assert [one.check for one in joined_facts([(WHERE, late)])[1]] == ["sequence-gap"]


def test_first_unknown_record_ends_what_can_be_judged() -> None:
    damages = [Damage("n", 0, "p", 500, 96, UNKNOWN_KIND, "kind 99")]
    facts = LogFacts(levels=[(0, FEATURE_LEVEL), (300, FEATURE_LEVEL + 1)])
    found = first_unknown(facts, damages, 1_000, 0)
    assert found is not None
    assert found.offset == 300
    assert [one.check for one in found.findings] == ["format-unknown"]
    assert first_unknown(LogFacts(), damages, 500, 0) is None
    assert cut_facts(facts, 300).levels == [(0, FEATURE_LEVEL)]


def test_epochs_of_a_real_log_fit(made: Made) -> None:
    state = state_of(made.directory, ledger=False)
    assert epoch_findings(state.facts, state.logs, 0, 0) == []
    assert {node_of(one) for one in state.facts.epoch_starts} == {"node-1"}
    assert start_findings(state.logs, 0) == []


@pytest.mark.parametrize(
    ("change", "offset"),
    [
        (lambda epochs: epochs[1:], None),
        (lambda epochs: [epochs[0]], 1),
        (lambda epochs: [EpochEntry(epochs[0].epoch, 8), *epochs[1:]], 0),
    ],
    ids=["shortened", "lost", "moved"],
)
def test_epochs_file_when_it_says_something_else_is_named(
    made: Made, change: object, offset: int | None
) -> None:
    state = state_of(made.directory, ledger=False)
    (log,) = state.logs
    epochs = log.copy.epochs
    log.copy = replace(log.copy, epochs=tuple(change(list(epochs))))  # type: ignore[operator]
    found = epoch_findings(state.facts, [log], 0, 0)
    if offset is None:
        assert found == []  # old epochs leave the file when their log is gone
    else:
        assert {one.check for one in found} == {"epoch-history"}
        assert found[0].file == "shard-0/epochs"


def test_log_when_it_begins_late_without_a_checkpoint_is_named(made: Made, tmp_path: Path) -> None:
    del tmp_path
    state = state_of(made.directory, ledger=False)
    (log,) = state.logs
    segments = tuple(replace_start(one) for one in log.copy.segments)
    log.copy = replace(log.copy, segments=segments, manifest_raw=b"")
    assert [one.check for one in start_findings([log], 0)] == ["log-begins-late"]


def replace_start(one: object) -> object:
    return one._replace(start_offset=one.start_offset + 8)  # type: ignore[attr-defined]
