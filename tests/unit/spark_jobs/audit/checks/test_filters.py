"""Which filters may have passed over a message, and what a gene must not deny."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import EVERYTHING
from hourwheel.formats.meta import NO_META, MessageMeta, encode
from hourwheel.formats.tag_gene import GENE_UNKNOWN, GeneKind, GeneSpec, gene_of
from hourwheel.types import GroupId, TopicId
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.filters import (
    FilterQuestions,
    _denies,
    _leading_tags,
    needles_of,
    plan_filters,
    read_meta,
)
from spark_jobs.audit.checks.releases import PASSED
from spark_jobs.audit.facts.records import RESOLVE
from storage.views.catalog_items import Subscription
from tests.support.filter_cases import SqlCase, metas, sql_cases

OLD, NEW = FilterExpression.tags("old"), FilterExpression.tags("new")


def subscription(wanted: FilterExpression | None) -> Subscription:
    return Subscription(GroupId(1), TopicId(1), TopicId(2), wanted)


def line_of(*changes: tuple[int, FilterExpression | None]) -> Timeline:
    """What group 1 wants of topic 1: (offset of the change, the filter from then on)."""
    line = Timeline(names={1: "orders"}, group_names={1: "billing"}, gene_specs={1: GeneSpec()})
    line.subscriptions[1, 1] = [(offset, subscription(wanted)) for offset, wanted in changes]
    return line


def asked_of(line: Timeline, *, released: int, resolved: int) -> FilterQuestions:
    """One entry, released by the record at one offset and passed over by that at another."""
    resolves, passed = np.zeros(1, RESOLVE), np.zeros(1, PASSED)
    resolves["group_id"], resolves["topic_queue"], resolves["offset"] = 1, 256, resolved
    passed["offset"], passed["sequence"] = released, 7
    return plan_filters(passed, resolves, line, 0)


@pytest.mark.parametrize(
    ("released", "resolved", "held"),
    [
        (150, 190, [OLD]),
        (150, 200, [OLD]),
        (150, 201, [OLD, NEW]),
        (200, 300, [OLD, NEW]),
        (201, 300, [NEW]),
        (50, 150, [OLD]),
        (50, 300, [OLD, NEW]),
    ],
)
def test_filters_between_release_and_row_are_asked(
    released: int, resolved: int, held: list[FilterExpression]
) -> None:
    asked = asked_of(line_of((100, OLD), (200, NEW)), released=released, resolved=resolved)
    assert asked.findings == []
    (choice,) = asked.plan.choices
    assert list(choice) == [parse(one) for one in held]
    assert asked.plan.asks.tolist() == [(7, 0, 0)]
    assert asked.plan.specs == {1: GeneSpec()}


@pytest.mark.parametrize("wanted", [None, FilterExpression.everything()])
def test_group_without_a_filter_passes_over_nothing(wanted: FilterExpression | None) -> None:
    asked = asked_of(line_of((100, wanted)), released=150, resolved=300)
    assert [(one.check, one.offset, one.sequence) for one in asked.findings] == [
        ("filter-missed", 300, 7)
    ]
    assert not len(asked.plan.asks)
    assert EVERYTHING not in asked.plan.choices


def test_filter_that_was_there_for_a_while_may_have_passed_over() -> None:
    asked = asked_of(line_of((100, None), (200, OLD), (250, None)), released=150, resolved=300)
    assert asked.findings == []
    assert asked.plan.choices == ((parse(OLD),),)


def test_filter_that_cannot_be_read_is_told_once() -> None:
    line = line_of((100, FilterExpression.sql("a = = 1")))
    asked = asked_of(line, released=150, resolved=300)
    assert [one.check for one in asked.findings] == ["filter-unreadable"]
    assert not len(asked.plan.asks)


SPECS: list[Any] = [GeneSpec(kind) for kind in GeneKind]


@pytest.mark.parametrize("spec", SPECS)
def test_gene_denies_what_it_lacks_a_bit_of(spec: GeneSpec) -> None:
    gene = gene_of(spec, ["paid"])
    assert not _denies(spec, gene, gene)
    assert not _denies(spec, GENE_UNKNOWN, 0)
    assert not _denies(spec, gene, 0)
    assert _denies(spec, gene & (gene - 1), gene)
    assert _denies(spec, 0, gene)


@given(case=sql_cases, block=st.lists(metas, min_size=1, max_size=20))
def test_metadata_of_what_matches_has_one_of_the_needles(
    case: SqlCase, block: list[MessageMeta]
) -> None:
    tree = parse(FilterExpression.sql(case.text))
    needles = needles_of(tree)
    for meta in block:
        if matches(tree, meta.tags, meta.properties):
            assert not needles or any(one in encode(meta).raw for one in needles)


@given(meta=metas)
def test_gene_is_made_of_the_tags_that_metadata_begins_with(meta: MessageMeta) -> None:
    raw = encode(meta).raw
    assert read_meta(_leading_tags(raw)).tags == meta.tags


def test_metadata_that_nobody_can_read_says_nothing() -> None:
    assert read_meta(b"\xff\xff") == NO_META
    assert read_meta(b"\x0a") == NO_META
    assert _leading_tags(b"\x0a") == b""
    assert _leading_tags(b"\x0a\x05ab") == b"\x0a\x05ab"
