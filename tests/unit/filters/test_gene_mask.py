import numpy as np
import pytest

from filters import gene_mask
from filters.gene_mask import GeneMask, count_tests
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.tag_gene import (
    GENE_UNKNOWN,
    GeneKind,
    GeneSpec,
    gene_of,
    item_bits,
    property_bits,
)

SPARSE = GeneSpec(GeneKind.SPARSE, 3, ("region",))
HASH = GeneSpec(GeneKind.HASH_SET)
A, B, C = (item_bits(SPARSE, tag) for tag in "abc")
EU, US = (property_bits(SPARSE, "region", value) for value in ("eu", "us"))


def mask(text: str, spec: GeneSpec, kind: str = "tags") -> GeneMask:
    expression = FilterExpression(kind, text)  # type: ignore[arg-type]
    return GeneMask(gene_mask.test_of(parse(expression), spec))


@pytest.mark.parametrize(
    ("text", "passing", "failing"),
    [
        ("a", [A, A | B, GENE_UNKNOWN], [0, B, C]),
        ("a || b", [A, B, A | C], [0, C]),
        ("a && b", [A | B, A | B | C], [0, A, B]),
        ("a && (b || c)", [A | B, A | C], [A, B | C]),
        ("a && b || c", [A | B, C], [A, B, 0]),
        ("a && !b", [A, A | B], [B, 0]),
        ("!(a || b)", [0, A, B], []),
        ("!a || b", [0, A], []),
        ("!*", [], [0, A, GENE_UNKNOWN]),
        ("*", [0, A], []),
    ],
)
def test_maybe_when_tags(text: str, passing: list[int], failing: list[int]) -> None:
    genes = np.array(passing + failing, np.uint64)
    expected = [True] * len(passing) + [False] * len(failing)
    assert mask(text, SPARSE).maybe(genes).tolist() == expected
    assert mask(text, SPARSE).narrows == bool(failing)


@pytest.mark.parametrize(
    ("text", "passing", "failing"),
    [
        ("region = 'eu'", [EU, EU | A], [US, A, 0]),
        ("region IN ('eu', 'us')", [EU, US], [A, 0]),
        ("region = 'eu' AND amount > 5", [EU], [US, 0]),
        ("region = 'eu' OR amount > 5", [EU, US, 0], []),
        ("region <> 'eu'", [EU, US, 0], []),
        ("NOT (region <> 'eu' OR amount = 5)", [EU], [US, 0]),
        ("TAGS = 'a'", [A, A | B], [0, B, EU]),
        ("TAGS IS NOT NULL AND TAGS IN ('a', 'b')", [A, B, A | C], [C, 0]),
        ("TAGS = 'a' AND TAGS = 'b'", [A | B], [A, B, 0]),
        ("TAGS <> 'a'", [0, A, B], []),
        ("TAGS IS NULL", [0, A], []),
        ("amount = 'eu'", [0], []),
        ("region = 5", [0], []),
    ],
)
def test_maybe_when_sql(text: str, passing: list[int], failing: list[int]) -> None:
    genes = np.array(passing + failing, np.uint64)
    expected = [True] * len(passing) + [False] * len(failing)
    assert mask(text, SPARSE, "sql").maybe(genes).tolist() == expected


@pytest.mark.parametrize("count", [1, 3, 20])
def test_maybe_when_hashes(count: int) -> None:
    tags = [f"t{number}" for number in range(count)]
    genes = [gene_of(HASH, tag_list) for tag_list in (("t0",), ("other",), (), ("t0", "other"))]
    found = mask(" || ".join(tags), HASH).maybe(np.array(genes, np.uint64)).tolist()
    assert found == [True, False, False, True]


def test_maybe_when_one_hash_cannot_be_two() -> None:
    genes = np.array([gene_of(HASH, ("a",)), GENE_UNKNOWN], np.uint64)
    assert mask("a && b", HASH).maybe(genes).tolist() == [False, True]
    assert mask("a && (a || b)", HASH).maybe(genes).tolist() == [True, True]


def test_maybe_when_genes_lie_apart_or_in_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gene_mask, "PIECE", 5)
    units = np.zeros((33, 8), np.uint64)
    units[::3, 3] = A
    expected = [row % 3 == 0 for row in range(33)]
    for genes in (units[:, 3], np.ascontiguousarray(units[:, 3])):
        assert mask("a || b && c", SPARSE).maybe(genes).tolist() == expected
    assert mask("a", SPARSE).maybe(units[:0, 3]).tolist() == []


def test_tests_when_some_say_nothing_new() -> None:
    def count(text: str) -> int:
        return count_tests(gene_mask.test_of(parse(FilterExpression.tags(text)), SPARSE))

    assert count("a && b && c") == 1
    assert count("a && (a || b)") == 1
    assert count("a || a && b") == 1
    assert count("a || b || !c") == 0


def test_tests_when_there_are_too_many_some_are_left_out() -> None:
    def tests(text: str) -> object:
        return gene_mask.test_of(parse(FilterExpression.tags(text)), SPARSE)

    many = "||".join(f"t{number}" for number in range(257))
    assert tests(many) == gene_mask.Maybe(value=True)
    found = mask(f"a && ({many})", SPARSE)
    assert found.test_count == 1
    assert found.maybe(np.array([A, 0], np.uint64)).tolist() == [True, False]
    few = "||".join(f"t{number}" for number in range(40))
    other = "||".join(f"u{number}" for number in range(40))
    assert (
        1
        <= count_tests(
            gene_mask.test_of(parse(FilterExpression.tags(f"({few})&&({other})")), SPARSE)
        )
        <= 64
    )


@pytest.mark.parametrize("count", [23, 24, 64, 65, 256])
def test_mask_of_many_tags_passes_who_has_one_and_few_others(count: int) -> None:
    """A tag alone has five bits: that another has them all is rare, however many those."""
    tags = [f"t{number}" for number in range(count)]
    wanted = mask(" || ".join(tags), SPARSE)
    assert wanted.narrows
    assert wanted.test_count <= 64
    passing = [gene_of(SPARSE, (tag,)) for tag in tags] + [gene_of(SPARSE, ("x", tags[-1]))]
    failing = [gene_of(SPARSE, (f"u{number}",)) for number in range(1_000)]
    genes = np.array([*passing, GENE_UNKNOWN, *failing], np.uint64)
    found = wanted.maybe(genes)
    assert found[: len(passing) + 1].all()
    assert found[len(passing) + 1 :].mean() < 0.03


def test_mask_of_many_tags_goes_with_other_conditions() -> None:
    many = "||".join(f"t{number}" for number in range(100))
    found = mask(f"a && ({many}) || b", SPARSE)
    texts = (("a",), ("t7",), ("a", "t7"), ("b",), ("c",), ("t99", "x"))
    genes = np.array([gene_of(SPARSE, tags) for tags in texts] * 9_000, np.uint64)
    assert found.maybe(genes).tolist() == [False, False, True, True, False, False] * 9_000


@pytest.mark.parametrize("count", [7, 8, 300])
def test_mask_of_many_hashes_passes_who_has_one_and_who_is_unknown(count: int) -> None:
    tags = [f"t{number}" for number in range(count)]
    hashes = [gene_of(HASH, (tag,)) for tag in tags]
    alike = [each ^ 1 << 40 for each in hashes]
    genes = np.array([*hashes, GENE_UNKNOWN, 0, *alike] * 50, np.uint64)
    found = mask(" || ".join(tags), HASH).maybe(genes).tolist()
    assert found == ([True] * (count + 1) + [False] * (count + 1)) * 50
