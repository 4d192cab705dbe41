import pytest

from hourwheel import errors
from hourwheel.filter_language.tags import parse
from hourwheel.filter_language.tree import EVERYTHING, NOTHING, And, HasTag, Not, Or

A, B, C = HasTag("a"), HasTag("b"), HasTag("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("a || b", Or((A, B))),
        ("b||a||b", Or((A, B))),
        ("a && b || c", Or((And((A, B)), C))),
        ("a && (b || c)", And((A, Or((B, C))))),
        ("!a && b", And((Not(A), B))),
        ("!!a", A),
        ("!(a || b)", Not(Or((A, B)))),
        ("((a))", A),
        ("*", EVERYTHING),
        ("!*", NOTHING),
        ("a || *", EVERYTHING),
        ("a && *", A),
        ("'a b'", HasTag("a b")),
        ("'it''s'", HasTag("it's")),
        ("'*'", HasTag("*")),
        ("order.paid/v2:x-é€", HasTag("order.paid/v2:x-é€")),
        ("a\t||\r\n b", Or((A, B))),
    ],
)
def test_parse_when_understood(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a | b", 2),
        ("a & b", 2),
        ("a b", 2),
        ("a ||", 4),
        ("|| a", 0),
        ("a || || b", 5),
        ("(a", 2),
        ("a)", 1),
        ("()", 1),
        ("a || 'b", 5),
        ("''", 0),
        ("a && 'b\x00'", 5),
        ('"a"', 0),
        ("a\x07", 1),
        ("a || " + "t" * 128, 5),
        ("a || " + "é" * 64, 5),
    ],
)
def test_parse_when_refused_it_says_where(text: str, position: int) -> None:
    with pytest.raises(errors.InvalidFilter) as caught:
        parse(text)
    assert caught.value.params["position"] == str(position)
