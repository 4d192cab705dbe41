"""Three readers of one filter agree: message by message, in blocks, and SQLite; genes never lie."""

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from filters.compile import BlockFilter, compile_filter
from filters.vector_program import VectorProgram
from hourwheel import errors
from hourwheel.filter_language.evaluate import evaluate, matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import EVERYTHING, Not
from hourwheel.formats.meta import NO_META, MessageMeta, decode, encode
from hourwheel.formats.tag_gene import GENE_UNKNOWN, GeneKind, GeneSpec, gene_of
from tests.support import filter_cases
from tests.support.filter_cases import NAMES, SqlCase, metas, sql_cases, tag_texts

blocks = st.lists(metas, min_size=1, max_size=12)
specs = st.builds(
    GeneSpec,
    st.sampled_from((GeneKind.SPARSE, GeneKind.BLOOM)),
    st.integers(0, 8),
    st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple),
) | st.sampled_from((GeneSpec(GeneKind.HASH_SET), GeneSpec(GeneKind.OR_GENE)))
gaps = st.integers(0, 5)
filters = st.builds(FilterExpression.sql, sql_cases.map(lambda case: case.text)) | st.builds(
    FilterExpression.tags, tag_texts
)


def exact(
    compiled: BlockFilter, encoded: Sequence[bytes], gap: int = 0, *, is_reversed: bool = False
) -> list[bool]:
    """What the block filter says of metas that lie in one buffer, with something between them."""
    starts, buffer = [0] * len(encoded), b"\x0a" * gap
    order = range(len(encoded))
    for index in reversed(order) if is_reversed else order:
        starts[index] = len(buffer)
        buffer += encoded[index] + b"\x0a\x01t"[:gap]
    lengths = np.array([len(raw) for raw in encoded], np.int64)
    found: list[bool] = compiled.exact(buffer, np.array(starts, np.int64), lengths).tolist()
    # So few are checked one by one: the same as columns.
    program = VectorProgram(compiled._tree)
    assert program.run(buffer, np.array(starts, np.int64), lengths).tolist() == found
    return found


def is_meta(raw: bytes) -> bool:
    """Whether a client can decode it."""
    try:
        decode(raw)
    except errors.InvalidArgument:
        return False
    return True


@given(sql_cases, blocks)
@example(SqlCase("a = 5", "c0n = ?", (5,)), [MessageMeta(properties=(("a", "5.0"),))])
@example(
    SqlCase(
        "TAGS IS NOT NULL AND TAGS IN ('a', 'b')",
        "EXISTS (SELECT 1 FROM json_each(tags) WHERE value IN ('a', 'b'))",
    ),
    [MessageMeta(tags=("b", "c")), MessageMeta(tags=("c",)), MessageMeta(tags=("a",))],
)
def test_sql_agrees_with_sqlite(case: SqlCase, block: list[MessageMeta]) -> None:
    expected = filter_cases.model_answers(case, block)
    tree = parse(FilterExpression.sql(case.text))
    rows = [(meta.tags, dict(meta.properties)) for meta in block]
    assert [evaluate(tree, *row) for row in rows] == expected
    compiled = compile_filter(FilterExpression.sql(case.text), GeneSpec())
    encoded = [encode(meta).raw for meta in block]
    assert exact(compiled, encoded) == [each is True for each in expected]
    for outer, answer in ((Not(tree), False), (Not(Not(tree)), True)):
        found = exact(BlockFilter(outer, GeneSpec()), encoded)
        assert found == [each is answer for each in expected]


@given(filters, blocks, gaps, st.booleans())
def test_blocks_agree_with_single_messages(
    wanted: FilterExpression, block: list[MessageMeta], gap: int, is_reversed: bool
) -> None:
    tree = parse(wanted)
    expected = [matches(tree, meta.tags, meta.properties) for meta in block]
    compiled = compile_filter(wanted, GeneSpec())
    encoded = [encode(meta).raw for meta in block]
    assert exact(compiled, encoded, gap, is_reversed=is_reversed) == expected
    assert compiled.is_everything == (tree == EVERYTHING)


@given(filters, blocks, specs)
def test_genes_never_leave_out_a_message_that_matches(
    wanted: FilterExpression, block: list[MessageMeta], spec: GeneSpec
) -> None:
    compiled = compile_filter(wanted, spec)
    genes = [gene_of(spec, meta.tags, meta.properties) for meta in block]
    maybe = compiled.maybe(np.array(genes, np.uint64)).tolist()
    unknown = compiled.maybe(np.full(len(block), GENE_UNKNOWN, np.uint64)).tolist()
    found = exact(compiled, [encode(meta).raw for meta in block])
    for is_match, is_maybe, is_maybe_unknown in zip(found, maybe, unknown, strict=True):
        assert is_match <= is_maybe <= is_maybe_unknown


@given(filters)
def test_canonical_form_means_the_same_and_stays(wanted: FilterExpression) -> None:
    canonical = wanted.canonical()
    assert canonical.canonical() == canonical
    assert parse(canonical) == parse(wanted)


@given(filters, metas, st.data())
def test_any_bytes_as_metas_are_read_as_a_client_reads_them(
    wanted: FilterExpression, meta: MessageMeta, data: st.DataObject
) -> None:
    raw = bytearray(encode(meta).raw)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    is_readable = is_meta(bytes(raw))
    if not is_readable and not raw.isascii():  # as columns, text that is no UTF-8 is not noticed
        VectorProgram(parse(wanted)).run(raw, np.zeros(1, np.int64), np.full(1, len(raw)))
        return
    found = exact(compile_filter(wanted, GeneSpec()), [bytes(raw), b"", bytes(raw)])
    assert found[0] == found[2]
    read = decode(bytes(raw)) if is_readable else NO_META
    assert found[0] == matches(parse(wanted), read.tags, read.properties)
