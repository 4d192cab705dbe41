import pytest

from hourwheel import errors
from hourwheel.filter_language.sql import parse
from hourwheel.filter_language.tree import (
    EVERYTHING,
    NOTHING,
    And,
    BooleanIs,
    IsNull,
    Not,
    NoTags,
    NumberIn,
    NumberOrder,
    NumbersOrder,
    Or,
    Order,
    SameText,
    TagIn,
    TextIn,
    TextMatch,
    TextPlace,
)

FIVE = NumberIn("a", (5,))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 5", FIVE),
        ("a=5.0", FIVE),
        ("5 = a", FIVE),
        ("a <> 5", Not(FIVE)),
        ("a != 5", Not(FIVE)),
        ("a > 5", NumberOrder("a", Order.GREATER, 5)),
        ("5 < a", NumberOrder("a", Order.GREATER, 5)),
        ("5 >= a", NumberOrder("a", Order.LESS_OR_EQUAL, 5)),
        ("not a > 5", NumberOrder("a", Order.LESS_OR_EQUAL, 5)),
        ("a > -1.5E+3", NumberOrder("a", Order.GREATER, -1500)),
        ("a < .5", NumberOrder("a", Order.LESS, 0.5)),
        ("a = 9223372036854775807", NumberIn("a", (2**63 - 1,))),
        ("a = 9223372036854775808", NumberIn("a", (2.0**63,))),
        ("a = 'it''s'", TextIn("a", ("it's",))),
        ("a = ''", TextIn("a", ("",))),
        ("a = true", BooleanIs("a", value=True)),
        ("FALSE <> a", Not(BooleanIs("a", value=False))),
        ("a", BooleanIs("a", value=True)),
        ("a = b", SameText("a", "b")),
        ("b <> a", Not(SameText("a", "b"))),
        ("a > b", NumbersOrder("b", Order.LESS, "a")),
        ("NOT a <= b", NumbersOrder("b", Order.LESS, "a")),
        ("a BETWEEN 1 AND 2 AND b", parse("a >= 1 AND a <= 2 AND b = TRUE")),
        ("a NOT BETWEEN 1 AND 2", Not(parse("a <= 2 AND a >= 1"))),
        ("a in ('y', 'x', 'y')", TextIn("a", ("x", "y"))),
        ("a NOT IN (2, 1.0)", Not(NumberIn("a", (1, 2)))),
        ("a IS NULL", IsNull("a")),
        ("a is not null", Not(IsNull("a"))),
        ("a CONTAINS 'x'", TextMatch("a", TextPlace.CONTAINS, "x")),
        ("a NOT StartsWith 'x'", Not(TextMatch("a", TextPlace.STARTS, "x"))),
        ("a ENDSWITH ''", TextMatch("a", TextPlace.ENDS, "")),
        (
            "TAGS is not null AND TAGS in ('b', 'a', 'b')",
            And((TagIn(("a", "b")), Not(NoTags()))),
        ),
        ("TAGS = 'a'", TagIn(("a",))),
        ("'it''s' <> TAGS", Not(TagIn(("it's",)))),
        ("TAGS NOT IN ('a')", Not(TagIn(("a",)))),
        ("TAGS IS NULL", NoTags()),
        ("\"TAGS\" IN ('a')", TextIn("TAGS", ("a",))),
        ('"TAGS" IS NULL', IsNull("TAGS")),
        ("tags = 'a'", TextIn("tags", ("a",))),  # names are as they are written
        ("TRUE", EVERYTHING),
        ("a AND FALSE", NOTHING),
        ("NOT (a IS NULL OR b IS NULL)", Not(Or((IsNull("a"), IsNull("b"))))),
        ("a IS NULL OR b IS NULL AND c", parse("a IS NULL OR (b IS NULL AND c)")),
        ('"a b" = 5', NumberIn("a b", (5,))),
        ('"say ""x""" IS NULL', IsNull('say "x"')),
        ('"and" IS NULL', IsNull("and")),
        ("and-more.$x_1 IS NULL", IsNull("and-more.$x_1")),
        ("a IS NULL AND a IS NULL", IsNull("a")),
        ("NOT NOT a = 5", FIVE),
    ],
)
def test_parse_when_understood(text: str, tree: object) -> None:
    assert parse(text) == tree


def test_parse_when_flat() -> None:
    assert parse("a = 5 AND (b IS NULL AND c IS NULL)") == And((FIVE, IsNull("b"), IsNull("c")))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a =", 3),
        ("a = 5 AND", 9),
        ("= 5", 0),
        ("a == 5", 3),
        ("a < 'x'", 2),
        ("'x' >= a", 4),
        ("a < TRUE", 2),
        ("1 = 1", 0),
        ("a = NULL", 4),
        ("NULL = a", 0),
        ("upper(a) = 'X'", 5),
        ("a + 1 = 2", 2),
        ("a BETWEEN 'x' AND 5", 10),
        ("a BETWEEN 1 AND TRUE", 16),
        ("a BETWEEN 1", 11),
        ("a IN ()", 6),
        ("a IN (1, 'x')", 6),
        ("a IN ('x', 1)", 11),
        ("a IN (TRUE)", 6),
        ("a IN (1", 7),
        ("5 IN (5)", 2),
        ("a CONTAINS 5", 11),
        ("a LIKE 'x'", 2),
        ("a IS 5", 5),
        ("a = 1e999", 4),
        ("a = " + "1" * 65, 4),
        ("a = 5x", 5),
        ("a = 'x", 4),
        ('"" = 5', 0),
        ('"a\x00" = 5', 0),
        ("b AND " + "n" * 128 + " IS NULL", 6),
        ("a AND TAGS", 6),
        ("TAGS = TRUE", 7),
        ("TAGS = 5", 7),
        ("TAGS IN (1, 2)", 9),
        ("TAGS IN ('a', 2)", 14),
        ("TAGS < 5", 0),
        ("TAGS >= 'a'", 0),
        ("5 < TAGS", 4),
        ("TAGS = a", 0),
        ("a <> TAGS", 5),
        ("TAGS = TAGS", 0),
        ("TAGS BETWEEN 1 AND 5", 0),
        ("TAGS CONTAINS 'x'", 0),
        ("TAGS NOT STARTSWITH 'x'", 0),
        ("TAGS ENDSWITH 'x'", 0),
        ("TAGS = ''", 7),
        ("TAGS IN ('a', '\x07')", 14),
        ("TAGS = '" + "t" * 128 + "'", 7),
        ("a = 5; DROP", 5),
        ("a = 5 -- b", 6),
        ("ä = 5", 0),
        ("a NOT = 5", 6),
        ("(a = 5", 6),
        ("a IN (" + "1," * 256 + "1)", 517),
    ],
)
def test_parse_when_refused_it_says_where(text: str, position: int) -> None:
    with pytest.raises(errors.InvalidFilter) as caught:
        parse(text)
    assert caught.value.params["position"] == str(position)
    assert f"character {position}" in caught.value.message or "too early" in caught.value.message


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a STARTSW\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}TH 'x'", 2),
        ("a \N{LATIN SMALL LETTER DOTLESS I}S NULL", 2),
        ("a i\N{LATIN SMALL LETTER LONG S} NULL", 2),
        ("a END\N{LATIN SMALL LETTER LONG S}WITH 'x'", 2),
    ],
)
def test_parse_when_a_keyword_has_letters_that_only_fold_to_its_own(
    text: str, position: int
) -> None:
    with pytest.raises(errors.InvalidFilter) as caught:
        parse(text)
    assert caught.value.params["position"] == str(position)
