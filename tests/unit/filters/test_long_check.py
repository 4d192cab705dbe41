"""The check of one message in parts: the same answer as in one go, and a bounded part of it."""

from hypothesis import given
from hypothesis import strategies as st

from filters.compile import compile_filter
from filters.long_check import LongCheck
from filters.vector_program import is_match
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from tests.support.filter_cases import SqlCase, metas, sql_cases


def in_parts(check: LongCheck, work: int) -> tuple[bool, int]:
    """(answer, how many parts it took)."""
    for count in range(1, 10_000):
        answer = check.step(work)
        if answer is not None:
            return answer, count
    raise AssertionError("it does not get on")


@given(sql_cases, metas, st.integers(1, 20))
def test_answer_is_that_of_one_go(case: SqlCase, meta: MessageMeta, work: int) -> None:
    tree, raw = parse(FilterExpression.sql(case.text)), encode(meta).raw
    check = LongCheck(tree, raw)
    assert in_parts(check, work)[0] is is_match(tree, raw)
    assert check.step(work) is is_match(tree, raw), "and it can be asked again"


def test_each_part_searches_only_so_much() -> None:
    text = " OR ".join(f"p CONTAINS 'xy{number}'" for number in range(100))
    raw = encode(MessageMeta(properties=(("p", "x" * 8_000),))).raw
    compiled = compile_filter(FilterExpression.sql(text), DEFAULT_SPEC)
    assert in_parts(compiled.begin_check(raw), 10_000) == (False, 10)
    assert in_parts(compiled.begin_check(raw), 1) == (False, 100)
    assert in_parts(compiled.begin_check(raw), 1 << 30) == (False, 1)


def test_unknown_stays_unknown_where_the_property_is_missing() -> None:
    for text in ("p CONTAINS 'a'", "NOT p CONTAINS 'a'"):
        assert LongCheck(parse(FilterExpression.sql(text)), b"").step(1) is False


def test_bytes_that_are_no_meta_count_as_none() -> None:
    tree = parse(FilterExpression.sql("a IS NULL OR a CONTAINS 'x'"))
    assert LongCheck(tree, b"\xff\xff").step(1) is True
