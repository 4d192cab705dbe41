from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.filter_language.inputs import Sql, Tags, as_filter
from hourwheel.filter_language.text import FilterExpression, FilterKind


@pytest.mark.parametrize(
    ("given", "kind", "is_checked_here"),
    [
        ("a || b", FilterKind.TAGS, False),
        (Tags("a || b"), FilterKind.TAGS, False),
        (Sql("a || b", check_at_client=True), FilterKind.SQL, True),
        (FilterExpression(FilterKind.SQL, "a || b"), FilterKind.SQL, False),
    ],
)
def test_as_filter_when_given_in_any_way(given: Any, kind: str, *, is_checked_here: bool) -> None:
    assert as_filter(given) == FilterExpression(FilterKind(kind), "a || b", is_checked_here)


def test_as_filter_when_there_is_none() -> None:
    assert as_filter(None) is None
    assert as_filter("") == FilterExpression(FilterKind.TAGS, "")


@pytest.mark.parametrize("given", [5, b"a", ["a"], True])
def test_as_filter_when_it_is_no_text(given: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="text or a FilterExpression"):
        as_filter(given)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("  ", 0),
        ("ab\udc80", 2),
        ("x" * (limits.FILTER_BYTES_MAX + 1), limits.FILTER_BYTES_MAX),
    ],
)
def test_as_filter_when_it_cannot_be_sent(text: str, position: int) -> None:
    for given in (text, Sql(text)):
        with pytest.raises(errors.InvalidFilter) as refused:
            as_filter(given)
        assert refused.value.params["position"] == str(position)
