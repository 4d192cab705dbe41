"""The audit says what a second, naive audit says, whatever was done to small logs."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.audit.facts.result import AuditResult
from spark_jobs.audit.shard import AuditOptions
from tests.support.audit_faults import copies, named
from tests.support.audit_runs import run_audit
from tests.support.log_copies import Cluster, Expected
from tests.support.log_maker import make_log, replicate
from tests.support.naive_audit import LATE_MS, naive_audit
from tests.support.tampering import FAULTS
from tests.support.wild_tampering import WILD

Fault = Callable[[Cluster, random.Random], object]
ALL: dict[str, Fault] = {**FAULTS, **WILD}
OPTIONS = AuditOptions(partition_bytes=1 << 13, bucket_messages=24, late_ms_max=LATE_MS)
LOGS = 6


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[Path]]:
    """Number -> three replicas of a small log."""
    folder = tmp_path_factory.mktemp("logs")

    @cache
    def made(number: int) -> list[Path]:
        place = folder / f"log-{number}"
        place.mkdir()
        life = make_log(
            place / "node-1",
            seed=number,
            rounds=1 + number % 3,
            batch_messages=8,
            segment_bytes=4_096 if number % 2 else 16_384,
            moves=number % 4 > 0,
            deals=number % 3 > 0,
            recurs=number % 2 > 0,
            dedup=number % 2 == 0,
            ordered=number % 3 != 1,
        )
        return replicate(asyncio.run(life).directory)

    return made


ANYONES = {"sequence-gap", "epoch-back", "store-back", "flushed-ahead", "message-corrupt"}
"""Faults of the log that replicas have in common: it is told of any of them."""


def comparable(found: list[Expected]) -> list[Expected]:
    """Without what two audits may choose."""
    # Which of two copies is the one too much; with it, whether the other is in order, and true.
    doubled = {one.node for one in found if one.check == "queue-doubled"}
    twice = {(one.node, one.sequence) for one in found if one.check == "queue-doubled"}
    kept = [
        one
        for one in found
        if not one.check.endswith("-changed")  # what is wrong is told without it
        and (one.check != "queue-order" or one.node not in doubled)
        and (one.check != "queue-fields" or (one.node, one.sequence) not in twice)
    ]
    return sorted({_comparable(one) for one in kept})


def _comparable(one: Expected) -> Expected:
    if one.check == "queue-order":  # which of several strays is told
        return Expected(one.check, one.node)
    if one.check == "format-unknown":  # a damaged version number is one of the future
        return one._replace(check="log-corrupt")
    if one.check == "queue-doubled":
        return one._replace(position=-1)
    if one.check == "queue-missing":  # a queue that is not there has no chunk
        return one._replace(file="")
    if one.check.startswith("ack-"):  # neighbouring positions are told together
        return one._replace(position=-1)
    return one._replace(node="", file="") if one.check in ANYONES else one


def late_ones(result: AuditResult) -> Counter[int]:
    """Sequences that were late, as often as they were."""
    named = [one.sequence for one in result.findings if one.check == "message-late"]
    assert result.finding_counts.get(("warning", "message-late", 0), 0) == len(named)
    return Counter(named)


@given(
    number=st.integers(0, LOGS - 1),
    count=st.integers(1, 3),
    faults=st.lists(st.tuples(st.sampled_from(sorted(ALL)), st.integers(0, 9_999)), max_size=3),
    forgetful=st.sampled_from([0, 0, 0, 1, 2, 3]),
)
def test_audit_equals_the_naive_one(
    logs: Callable[[int], list[Path]],
    number: int,
    count: int,
    faults: list[tuple[str, int]],
    forgetful: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = copies(logs(number)[:count], Path(folder))
        cluster = Cluster(nodes)
        for name, seed in faults:
            # Some faults find nothing that they could change, or what is no longer there.
            with suppress(IndexError, ValueError, FileNotFoundError):
                ALL[name](cluster, random.Random(seed))
        for node in nodes[:forgetful]:
            (node / "shard-0" / "checkpoint").unlink(missing_ok=True)
        wanted, is_whole, late = naive_audit(nodes)
        result = run_audit(*nodes, options=OPTIONS)
        # The naive audit compares fewer fields of checkpoints: it knows some of their errors.
        found = comparable(named(result))
        more = [one for one in found if one.check == "checkpoint"]
        assert [one for one in found if one not in more] == [
            one for one in comparable(wanted) if one.check != "checkpoint"
        ]
        known = {(one.node, one.offset) for one in wanted if one.check == "checkpoint"}
        assert known <= {(one.node, one.offset) for one in more}
        wanted += more
        verdict = 1 if wanted else 2 if not is_whole else 3 if late else 0
        assert result.verdict.exit_code == verdict
        if not wanted:
            assert late_ones(result) == late
            (shard,) = result.shards
            assert shard.totals.released == len(cluster.model.released)
            assert shard.totals.pending == sum(1 for one in cluster.model.pending if one[2] == 1)
