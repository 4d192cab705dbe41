"""Filters from strangers: any text is read or refused with its position, and never costs much."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filters.compile import compile_filter
from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression, FilterKind, parse
from hourwheel.formats.tag_gene import GeneSpec
from tests.support.filter_cases import sql_cases, tag_texts

KINDS = st.sampled_from(FilterKind)
PIECES = st.sampled_from(
    (
        *("a", "'", '"', "''", "(", ")", "!", "*", "||", "&&", "|", "&", " ", "\n", "\0", "\ud800"),
        *("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TRUE", "CONTAINS", "=", "<>", "<="),
        *(",", ".", "-", "+", "5", "1e9", "1e999", "é", "\u2028", "f(", "--", "/*", ";", "%"),
    )
)
SOUP = st.lists(PIECES, max_size=30).map("".join) | st.lists(PIECES, max_size=30).map(" ".join)
ANY = st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))


def read(kind: FilterKind, text: str) -> None:
    """It is understood, canonical form and block filter included; or refused as promised."""
    expression = FilterExpression(kind, text)
    try:
        canonical = expression.canonical()
    except errors.InvalidFilter as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert 0 <= int(refused.params["position"]) <= len(text)
        assert refused.message
        return
    assert parse(canonical) == parse(expression)
    assert canonical.canonical() == canonical
    assert len(canonical.text.encode()) <= limits.FILTER_BYTES_MAX
    compiled = compile_filter(canonical, GeneSpec(properties=("a",)))
    none = np.zeros(1, np.int64)
    assert len(compiled.maybe(np.zeros(1, np.uint64))) == 1
    assert len(compiled.exact(b"", none, none)) == 1


@given(KINDS, ANY | SOUP)
@example(FilterKind.SQL, "a = \ud800")
@example(FilterKind.TAGS, "\0")
def test_any_text_is_read_or_refused_with_its_position(kind: FilterKind, text: str) -> None:
    read(kind, text)


@given(sql_cases.map(lambda case: case.text) | tag_texts, st.data())
def test_mutated_filters_are_read_or_refused(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(PIECES) + text[at + data.draw(st.integers(0, 3)) :]
    for kind in FilterKind:
        read(kind, text)


BOMBS = {
    "parentheses": "(" * 4_095,
    "balanced": "(" * 2_047 + "a" + ")" * 2_047,
    "negations": "!" * 4_095,
    "not": "NOT " * 1_000 + "a",
    "nested": "!(a&&" * 600,
    "many tags": "||".join(f"t{number}" for number in range(600)),
    "many small": "a||" * 1_300 + "a",
    "in": "a IN (" + ",".join(["1"] * 1_800) + ")",
    "and": " AND ".join(["a=1"] * 500),
    "between": " OR ".join(["a BETWEEN 1 AND 2"] * 180),
    "quotes": "'" * 4_095,
    "half quotes": "a = '" + "''" * 2_000,
    "digits": "a = " + "9" * 4_000,
    "number": "a = " + "1e" * 2_000,
    "name": "a" * 4_096,
    "keywords": "and" * 1_300,
    "blanks": " " * 4_096,
    "too long": "a" * 100_000,
    "wide": "€" * 1_366,
    "long names": " AND ".join(f"{'n' * 120}{number} IS NULL" for number in range(30)),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("kind", FilterKind)
def test_bombs_are_read_or_refused(kind: FilterKind, text: str) -> None:
    read(kind, text)


def test_the_largest_filters_are_bounded_in_what_they_ask_of_a_gene() -> None:
    tags = "||".join(f"t{number}" for number in range(limits.FILTER_TERM_COUNT_MAX))
    groups = "&&".join(f"(a{number}||b{number})" for number in range(200))
    for text in (tags, groups):
        compiled = compile_filter(FilterExpression.tags(text), GeneSpec())
        assert compiled.test_count <= 64
