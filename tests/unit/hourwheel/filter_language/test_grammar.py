import pytest

from hourwheel import errors, limits
from hourwheel.filter_language import sql, tags

DEEP = limits.FILTER_DEPTH_MAX


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEEP + "a" + ")" * DEEP,
        "!" * DEEP + "a",
        "!(" * (DEEP // 2) + "a" + ")" * (DEEP // 2),
        "||".join(["(" * DEEP + "a" + ")" * DEEP] * 20),
        "||".join(["!" * (DEEP - 1) + "(a)"] * 14),
    ],
)
def test_run_when_just_not_too_deep(text: str) -> None:
    tags.parse(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(" * (DEEP + 1), DEEP),
        ("!" * (DEEP + 1), DEEP),
        ("!(" * DEEP, DEEP),
        ("a||" + "(" * (DEEP - 1) + "!!a", 3 + DEEP),
    ],
)
def test_run_when_too_deep(text: str, position: int) -> None:
    with pytest.raises(errors.InvalidFilter, match="nested too deeply") as caught:
        tags.parse(text)
    assert caught.value.params["position"] == str(position)


def test_run_when_there_are_as_many_terms_as_may_be() -> None:
    terms = ["a"] * limits.FILTER_TERM_COUNT_MAX
    tags.parse("||".join(terms))
    with pytest.raises(errors.InvalidFilter, match="too many terms") as caught:
        tags.parse("||".join([*terms, "b"]))
    assert caught.value.params["position"] == str(3 * len(terms))


def test_run_when_a_list_is_as_long_as_it_may_be() -> None:
    values = ["1"] * limits.FILTER_LIST_COUNT_MAX
    sql.parse(f"a IN ({','.join(values)}) OR a IN ({','.join(values)})")
    with pytest.raises(errors.InvalidFilter, match="too many values"):
        sql.parse(f"a IN ({','.join([*values, '1'])})")


def test_run_when_a_token_is_long_the_error_is_short() -> None:
    with pytest.raises(errors.InvalidFilter) as caught:
        sql.parse(f"a = 5 {'x' * 4_000}")
    assert len(caught.value.message) < 100
