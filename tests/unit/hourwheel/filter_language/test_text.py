import builtins
from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression, FilterKind, _cache, is_read, parse
from hourwheel.filter_language.tree import EVERYTHING, HasTag


def test_expression_when_kind_is_a_text() -> None:
    assert FilterExpression("sql", "a").kind is FilterKind.SQL  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        FilterExpression("xpath", "a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b||a", "a || b"),
        ("(a) || (b && c)", "a || b && c"),
        ("(b||c)&&a", "a && (b || c)"),
        ("! (a)", "!a"),
        ("!(b||a)", "!(a || b)"),
        ("'a'", "a"),
        ("'a b'||'c'", "'a b' || c"),
        ("!*", "!*"),
    ],
)
def test_canonical_when_tags(text: str, canonical: str) -> None:
    assert FilterExpression.tags(text).canonical() == FilterExpression.tags(canonical)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a=5 and b<>'x'", "a = 5 AND b <> 'x'"),
        ("b is null or (a)", "a = TRUE OR b IS NULL"),
        ("(b or c) and a", "a = TRUE AND (b = TRUE OR c = TRUE)"),
        ("a not in ('y','x')", "a NOT IN ('x', 'y')"),
        ("a between 1 and 2", "a <= 2 AND a >= 1"),
        ("not (a between 1 and 2)", "NOT (a <= 2 AND a >= 1)"),
        ("not a = false", "a <> FALSE"),
        ("a not endswith 'x'", "a NOT ENDSWITH 'x'"),
        ("not a is null", "a IS NOT NULL"),
        ('"not" = "a b"', '"a b" = "not"'),
        ("a = 1e2 or a = 1e30", "a = 100 OR a = 1e+30"),
        ("a > b", "b < a"),
        ("a and false", "FALSE"),
    ],
)
def test_canonical_when_sql(text: str, canonical: str) -> None:
    assert FilterExpression.sql(text).canonical() == FilterExpression.sql(canonical)


@pytest.mark.parametrize("text", ["", "*", "a || *"])
def test_canonical_when_everything(text: str) -> None:
    expression = FilterExpression.tags(text, check_at_client=True)
    assert expression.canonical() == FilterExpression.everything()
    assert expression.is_everything
    assert FilterExpression.sql("").canonical() == FilterExpression.everything()
    assert FilterExpression.sql("a IS NULL OR TRUE").is_everything
    assert not FilterExpression.tags("a").is_everything


def test_canonical_when_checked_at_the_client() -> None:
    assert FilterExpression.tags("(a)", check_at_client=True).canonical().check_at_client


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (" \n", 0),
        ("a" * (limits.FILTER_BYTES_MAX + 1), limits.FILTER_BYTES_MAX),
        ("é" * limits.FILTER_BYTES_MAX, limits.FILTER_BYTES_MAX // 2),
        ("a\ud800", 1),
    ],
)
def test_parse_when_the_text_is_none(text: str, position: int) -> None:
    for expression in (FilterExpression.tags(text), FilterExpression.sql(text)):
        with pytest.raises(errors.InvalidFilter) as caught:
            parse(expression)
        assert caught.value.params["position"] == str(position)


def test_parse_when_only_the_canonical_form_is_too_large() -> None:
    name = "n" * 120
    text = " AND ".join(f"{name}{number} BETWEEN {number} AND 99" for number in range(25))
    with pytest.raises(errors.InvalidFilter, match="written out"):
        parse(FilterExpression.sql(text))


def test_parse_when_lark_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_lark(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "hourwheel.filter_language" and "sql" in (
            arguments[2] if len(arguments) > 2 else ()
        ):
            raise ModuleNotFoundError("No module named 'lark'", name="lark")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_lark)
    _cache.clear()
    with pytest.raises(errors.FailedPrecondition, match=r"hourwheel\[filters\]"):
        parse(FilterExpression.tags("a"))
    assert parse(FilterExpression.everything()) == EVERYTHING
    monkeypatch.undo()
    assert parse(FilterExpression.tags("a")) == HasTag("a")


def test_trees_are_kept_by_what_they_weigh_however_many_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand of the largest filters would take 100 MB."""
    assert _cache.bytes_max == 8 << 20
    monkeypatch.setattr(_cache, "bytes_max", 1 << 20)
    _cache.clear()
    for ordinal in range(40):
        tags = "||".join(f"{ordinal}x{number}" for number in range(300))
        parse(FilterExpression.tags(tags))
        assert _cache.used_bytes <= 1 << 20
    assert 10 <= len(_cache) < 40, "it was full, and kept what there was room for"
    _cache.clear()


def test_is_read_when_the_text_or_its_canonical_form_was_read() -> None:
    _cache.clear()
    wanted = FilterExpression.tags("b||a")
    assert not is_read(wanted)
    assert parse(wanted) is parse(wanted.canonical()), "the canonical form is not read again"
    assert is_read(wanted)
    assert is_read(wanted.canonical())
    assert is_read(FilterExpression.everything())
    assert not is_read(FilterExpression.sql("b"))
