from hourwheel.filter_language.tree import (
    EVERYTHING,
    NOTHING,
    And,
    HasTag,
    IsNull,
    Not,
    NumberIn,
    NumberOrder,
    NumbersOrder,
    Or,
    Order,
    SameText,
    all_of,
    any_of,
    negated,
    number_in,
    operands_of,
    property_names,
    quoted,
    sql_text,
    tag_text,
    text_in,
    wanted_tags,
)

A, B, C = HasTag("a"), HasTag("b"), HasTag("c")


def test_all_of_and_any_of_when_there_are_constants() -> None:
    assert all_of(()) == EVERYTHING
    assert any_of(()) == NOTHING
    assert all_of((A, EVERYTHING)) == A
    assert all_of((A, NOTHING)) == NOTHING
    assert any_of((A, NOTHING)) == A
    assert any_of((A, EVERYTHING)) == EVERYTHING


def test_all_of_and_any_of_when_nested_or_doubled() -> None:
    assert all_of((C, And((A, B)), A)) == And((A, B, C))
    assert any_of((Or((B, C)), A)) == Or((A, B, C))
    assert any_of((A, A)) == A
    assert all_of((Or((A, B)), C)) == And((Or((A, B)), C))


def test_negated() -> None:
    assert negated(EVERYTHING) == NOTHING
    assert negated(NOTHING) == EVERYTHING
    assert negated(A) == Not(A)
    assert negated(Not(A)) == A
    low = NumberOrder("a", Order.LESS, 5)
    assert negated(low) == NumberOrder("a", Order.GREATER_OR_EQUAL, 5)
    assert negated(negated(low)) == low
    pair = NumbersOrder("a", Order.LESS_OR_EQUAL, "b")
    assert negated(pair) == NumbersOrder("b", Order.LESS, "a")
    assert negated(negated(pair)) == pair


def test_numbers_when_one_is_there_as_int_and_float() -> None:
    assert number_in("a", (5.0, 5, 1.5)) == NumberIn("a", (1.5, 5))
    assert repr(number_in("a", (5.0,))) == repr(NumberIn("a", (5,)))


def test_texts_hold_only_as_many_parentheses_as_needed() -> None:
    tree = Or((And((A, B)), Not(And((A, C))), And((Or((A, B)), C))))
    assert tag_text(tree) == "a && b || !(a && c) || (a || b) && c"
    assert sql_text(Not(Or((IsNull("a"), IsNull("b"))))) == "NOT (a IS NULL OR b IS NULL)"


def test_names_and_tags() -> None:
    tree = And((Or((IsNull("a"), Not(SameText("b", "c")))), NumbersOrder("d", Order.LESS, "e")))
    assert property_names(tree) == {"a", "b", "c", "d", "e"}
    assert property_names(text_in("x", "y")) == {"x"}
    assert wanted_tags(Or((A, Not(And((B, C)))))) == {"a", "b", "c"}
    assert wanted_tags(tree) == property_names(A) == frozenset()


def test_operands_of() -> None:
    assert operands_of(Or((A, B))) == (A, B)
    assert operands_of(Not(A)) == (A,)
    assert operands_of(A) == ()


def test_quoted() -> None:
    assert quoted("it's", "'") == "'it''s'"
