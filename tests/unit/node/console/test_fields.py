"""Fields of what a browser sends."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.errors import InvalidArgument
from hourwheel.filter_language.text import FilterKind
from node.console import fields


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *((fields.text, value) for value in (None, 5, True, [], {}, "x" * 300_001)),
        *((fields.number, value) for value in (None, -1, 1.5, True, "", "-1", "1.5", "\u0665")),
        *((fields.number, value) for value in ("9" * 17, 1 << 53, math.inf, [], "0x10")),
        *((fields.texts, value) for value in (None, "a", [5], ["a"] * 257, {"a": "b"})),
        *((fields.pairs, value) for value in (None, [], {"a": 5}, {"a": None})),
    ],
)
def test_field_is_refused_by_its_name_when_it_is_not_what_is_meant(
    read: Callable[[dict[str, Any], str], object], value: object
) -> None:
    with pytest.raises(InvalidArgument, match="what is not"):
        read({"what": value}, "what")


def test_field_is_refused_when_it_is_missing_and_has_no_default() -> None:
    with pytest.raises(InvalidArgument):
        fields.text({}, "what")
    with pytest.raises(InvalidArgument):
        fields.number({}, "what")


def test_fields_are_read() -> None:
    given = {"t": "\u2603 <b>", "n": 5, "m": "007", "l": ["a", ""], "p": {"a": "b"}}
    assert fields.text(given, "t") == "\u2603 <b>"
    assert (fields.number(given, "n"), fields.number(given, "m")) == (5, 7)
    assert (fields.texts(given, "l"), fields.texts(given, "x")) == (["a", ""], [])
    assert (fields.pairs(given, "p"), fields.pairs(given, "x")) == ({"a": "b"}, {})


def test_filter_is_everything_when_there_is_none() -> None:
    assert fields.wanted({}).text == "*"
    assert fields.wanted({"filter": "  "}).text == "*"
    sql = fields.wanted({"filter": "a = 1", "filter_kind": "sql"})
    assert (sql.kind, sql.text) == (FilterKind.SQL, "a = 1")
    with pytest.raises(InvalidArgument):
        fields.wanted({"filter_kind": "regex"})
