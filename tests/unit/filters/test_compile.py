import gc
import tracemalloc

import numpy as np
import pytest

from filters.compile import BlockFilter, _cache, compile_filter, is_compiled
from hourwheel import errors
from hourwheel.filter_language.size import tree_bytes
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec, gene_of

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


@pytest.mark.parametrize("count", [1, 96, 97])
def test_exact_when_many_conditions_compare_numbers(count: int) -> None:
    metas = [MessageMeta(properties=((f"p{number % 40}", "1e3"),)) for number in range(count)]
    raws = [encode(meta).raw for meta in metas]
    lengths = np.array([len(raw) for raw in raws], np.int64)
    text = " OR ".join(f"p{number} > 999" for number in range(0, 40, 2))
    compiled = compile_filter(FilterExpression.sql(text), DEFAULT_SPEC)
    found = compiled.exact(b"".join(raws), np.cumsum(lengths) - lengths, lengths)
    assert found.tolist() == [number % 2 == 0 for number in range(count)]


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
    assert work("a IN (1, 2, 3) AND b = 2 OR c IN ('x', 'y')") == [99, 99 + 2_000]
    assert work("a CONTAINS 'x'") == [64, 64 + 3_000]
    assert work("a CONTAINS 'x' AND NOT b CONTAINS 'x' AND a STARTSWITH 'x'") == [96, 96 + 4_000]


FILTERS = {
    "tags": "||".join(f"{number}" for number in range(500)),
    "texts": "SQL " + " or ".join(f"a{number} = 'x{number}'" for number in range(200)),
    "numbers": "SQL " + " or ".join(f"not(a{number} > 1)" for number in range(240)),
    "places": "SQL " + " or ".join(f"a contains 'x{number}'" for number in range(200)),
    "list": "SQL a in (" + ",".join(f"'{number}'" for number in range(256)) + ")",
    "properties": "SQL " + " or ".join(f"a{number} < b{number}" for number in range(250)),
    "groups": "&&".join(f"(a{number}||b{number})" for number in range(200)),
    "small": "paid && !test",
}


@pytest.mark.parametrize("text", FILTERS.values(), ids=FILTERS)
def test_size_bytes_is_what_a_compiled_filter_takes(text: str) -> None:
    kind = FilterExpression.sql if text.startswith("SQL ") else FilterExpression.tags
    tree = parse(kind(text.removeprefix("SQL ")))
    spec = GeneSpec(properties=("a",))
    BlockFilter(tree, spec)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        compiled = BlockFilter(tree, spec)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before + tree_bytes(tree)
    finally:
        tracemalloc.stop()
    assert 0.8 * taken <= compiled.size_bytes <= 2 * taken


def test_compiled_filters_are_kept_by_what_they_weigh_however_many_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _cache.bytes_max == 32 << 20
    monkeypatch.setattr(_cache, "bytes_max", 2 << 20)
    _cache.clear()
    for ordinal in range(40):
        text = "||".join(f"{ordinal}x{number}" for number in range(300))
        compile_filter(FilterExpression.tags(text), DEFAULT_SPEC)
        assert _cache.used_bytes <= 2 << 20
    assert 5 <= len(_cache) < 40, "it was full, and kept what there was room for"
    _cache.clear()


def test_is_compiled_when_asked_before_and_after() -> None:
    _cache.clear()
    wanted = FilterExpression.tags("a")
    assert not is_compiled(wanted, DEFAULT_SPEC)
    compile_filter(wanted, DEFAULT_SPEC)
    assert is_compiled(wanted, DEFAULT_SPEC)
    assert not is_compiled(wanted, GeneSpec(properties=("a",)))
