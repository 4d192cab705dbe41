import numpy as np
import pytest

from filters.compile import compile_filter
from hourwheel import errors
from hourwheel.filter_text import FilterExpression
from hourwheel.meta import MessageMeta, encode
from hourwheel.tag_gene import DEFAULT_SPEC, GeneSpec, gene_of

METAS = [MessageMeta(("a",)), MessageMeta(("b",)), MessageMeta(("a", "b"))]
GENES = np.array([gene_of(DEFAULT_SPEC, meta.tags) for meta in METAS], np.uint64)
RAWS = [encode(meta).raw for meta in METAS]
LENGTHS = np.array([len(raw) for raw in RAWS], np.int64)
STARTS = np.cumsum(LENGTHS) - LENGTHS


def test_compile_when_tags_are_wanted() -> None:
    compiled = compile_filter(FilterExpression.tags("a && !b"), DEFAULT_SPEC)
    assert not compiled.is_everything
    assert compiled.needs_metas
    assert compiled.narrows
    assert compiled.test_count == 1
    assert compiled.maybe(GENES).tolist() == [True, False, True]
    for metas in (b"".join(RAWS), bytearray(b"".join(RAWS)), memoryview(b"".join(RAWS))):
        assert compiled.exact(metas, STARTS, LENGTHS).tolist() == [True, False, False]


@pytest.mark.parametrize(("text", "passes"), [("*", True), ("!*", False)])
def test_compile_when_no_meta_is_needed(text: str, passes: bool) -> None:
    compiled = compile_filter(FilterExpression.tags(text), DEFAULT_SPEC)
    assert not compiled.needs_metas
    assert compiled.is_everything == passes
    assert compiled.maybe(GENES).tolist() == [passes] * 3
    assert compiled.exact(b"", STARTS, LENGTHS).tolist() == [passes] * 3


@pytest.mark.parametrize("count", [1, 24, 25, 100])
def test_exact_when_there_are_few_or_many(count: int) -> None:
    raws = [RAWS[number % 3] for number in range(count - 1)] + [b"\xff"]
    lengths = np.array([len(raw) for raw in raws], np.int64)
    compiled = compile_filter(FilterExpression.tags("a && !b"), DEFAULT_SPEC)
    found = compiled.exact(b"".join(raws), np.cumsum(lengths) - lengths, lengths)
    assert found.tolist() == [number % 3 == 0 for number in range(count - 1)] + [False]


def test_compile_when_asked_again() -> None:
    wanted = FilterExpression.tags("a")
    assert compile_filter(wanted, DEFAULT_SPEC) is compile_filter(wanted, GeneSpec())
    assert compile_filter(wanted, DEFAULT_SPEC) is not compile_filter(
        wanted, GeneSpec(properties=("x",))
    )


def test_compile_when_malformed() -> None:
    with pytest.raises(errors.InvalidFilter):
        compile_filter(FilterExpression.tags("a |"), DEFAULT_SPEC)


def test_check_work_grows_with_the_conditions_and_with_what_is_searched() -> None:
    sizes = np.array([0, 8_000], np.int64)

    def work(text: str) -> list[int]:
        compiled = compile_filter(FilterExpression.sql(text), DEFAULT_SPEC)
        return [int(each) for each in compiled.check_work(sizes)]

    assert work("a = 1") == [64, 64 + 2_000]
    assert work("a = 1 AND (b = 2 OR NOT c > 3) AND d IS NULL") == [128, 128 + 2_000]
    assert work("a CONTAINS 'x'") == [64, 64 + 3_000]
    assert work("a CONTAINS 'x' AND NOT b CONTAINS 'x' AND a STARTSWITH 'x'") == [96, 96 + 4_000]
