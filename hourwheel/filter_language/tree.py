"""What a filter says once its text is read: a small tree, the same for tags and SQL.

A node is true, false or unknown for a message; a message matches where the whole is true. Unknown
comes from a property that is missing, or is no number where one is compared with a number:

    NOT unknown = unknown      false AND unknown = false      true AND unknown = unknown
                                true OR unknown = true        false OR unknown = unknown

Trees are made by `all_of`, `any_of` and `negated`, which bring them into one form: no constants
below the root, no AND directly in an AND, no NOT of a NOT, operands sorted by their text and none
there twice. All of that is sound in three-valued logic. What SQL can say in two ways is one node:
`a <> 5` is the NOT of `a = 5`, BETWEEN is two comparisons, `5 < a` and `NOT a <= 5` are `a > 5`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Final, NamedTuple, TypeAlias

from hourwheel.filter_language.values import Number, plain_number


class Order(StrEnum):
    """How a number must lie beside another."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class TextPlace(StrEnum):
    """Where in a property's value a text must be."""

    CONTAINS = "CONTAINS"
    STARTS = "STARTSWITH"
    ENDS = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Constant:
    """True or false for every message; only ever the whole tree."""

    value: bool


@dataclass(frozen=True, slots=True)
class HasTag:
    """The message carries the tag. Never unknown."""

    tag: str


@dataclass(frozen=True, slots=True)
class TagIn:
    """SQL's `TAGS IN`: the message carries one of the tags; unknown where it carries none at all.

    `values` are sorted.
    """

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoTags:
    """SQL's `TAGS IS NULL`: the message carries no tag. Never unknown."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """The message does not have the property. Never unknown."""

    name: str


@dataclass(frozen=True, slots=True)
class TextIn:
    """The property's value is one of the texts, byte by byte; `values` are sorted."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberIn:
    """The property is a number, and equal to one of these; `values` are sorted."""

    name: str
    values: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class NumberOrder:
    """The property is a number, and lies so beside `value`; unknown where it is no number."""

    name: str
    order: Order
    value: Number


@dataclass(frozen=True, slots=True)
class BooleanIs:
    """The property is `true` or `false` in any case of letters; unknown where it is neither."""

    name: str
    value: bool


@dataclass(frozen=True, slots=True)
class TextMatch:
    """The property's value has `text` there."""

    name: str
    place: TextPlace
    text: str


@dataclass(frozen=True, slots=True)
class SameText:
    """Two properties have the same value, byte by byte; `left` < `right`."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class NumbersOrder:
    """Two properties are numbers, and `left` lies so beside `right`: LESS or LESS_OR_EQUAL."""

    left: str
    order: Order
    right: str


@dataclass(frozen=True, slots=True)
class Not:
    """The operand is false."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class And:
    """All operands are true; two or more."""

    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the operands is true; two or more."""

    operands: tuple["Node", ...]


Leaf: TypeAlias = (
    Constant
    | HasTag
    | TagIn
    | NoTags
    | IsNull
    | TextIn
    | NumberIn
    | NumberOrder
    | BooleanIs
    | TextMatch
    | SameText
    | NumbersOrder
)
Node: TypeAlias = Leaf | Not | And | Or

EVERYTHING: Final = Constant(value=True)
NOTHING: Final = Constant(value=False)


def negated(node: Node) -> Node:
    """NOT `node`."""
    match node:
        case Constant(value):
            return NOTHING if value else EVERYTHING
        case Not(operand):
            return operand
        case NumberOrder(name, order, number):
            return NumberOrder(name, _OPPOSITE[order], number)
        case NumbersOrder(left, order, right):
            return numbers_order(left, _OPPOSITE[order], right)
        case _:
            return Not(node)


def all_of(operands: Iterable[Node]) -> Node:
    """The AND of `operands`; of none: everything."""
    flat = _flat(operands, And)
    if NOTHING in flat:
        return NOTHING
    kept = [each for each in flat if each != EVERYTHING]
    if len(kept) > 1:
        return And(_sorted(kept))
    return kept[0] if kept else EVERYTHING


def any_of(operands: Iterable[Node]) -> Node:
    """The OR of `operands`; of none: nothing."""
    flat = _flat(operands, Or)
    if EVERYTHING in flat:
        return EVERYTHING
    kept = [each for each in flat if each != NOTHING]
    if len(kept) > 1:
        return Or(_sorted(kept))
    return kept[0] if kept else NOTHING


def tag_in(values: Iterable[str]) -> Node:
    """`TAGS` are one of `values`, or several of them."""
    return TagIn(tuple(sorted(set(values))))


def text_in(name: str, values: Iterable[str]) -> Node:
    """`name` is one of `values`."""
    return TextIn(name, tuple(sorted(set(values))))


def number_in(name: str, values: Iterable[Number]) -> Node:
    """`name` is one of `values`."""
    return NumberIn(name, tuple(sorted({plain_number(value) for value in values})))


def number_order(name: str, order: Order, value: Number) -> Node:
    """`name` lies so beside `value`."""
    return NumberOrder(name, order, plain_number(value))


def same_text(left: str, right: str) -> Node:
    """Both properties have the same value."""
    return SameText(min(left, right), max(left, right))


def numbers_order(left: str, order: Order, right: str) -> Node:
    """`left` lies so beside `right`."""
    if order in {Order.GREATER, Order.GREATER_OR_EQUAL}:
        return NumbersOrder(right, FLIPPED[order], left)
    return NumbersOrder(left, order, right)


FLIPPED: Final = {
    Order.LESS: Order.GREATER,
    Order.LESS_OR_EQUAL: Order.GREATER_OR_EQUAL,
    Order.GREATER: Order.LESS,
    Order.GREATER_OR_EQUAL: Order.LESS_OR_EQUAL,
}
"""What `a order b` is, said of b and a."""
_OPPOSITE: Final = {
    Order.LESS: Order.GREATER_OR_EQUAL,
    Order.LESS_OR_EQUAL: Order.GREATER,
    Order.GREATER: Order.LESS_OR_EQUAL,
    Order.GREATER_OR_EQUAL: Order.LESS,
}
"""What NOT `a order b` is; both are unknown for the same messages."""


def _flat(operands: Iterable[Node], kind: type[And] | type[Or]) -> list[Node]:
    flat: dict[Node, None] = {}
    for each in operands:
        for inner in each.operands if isinstance(each, kind) else (each,):
            flat[inner] = None
    return list(flat)


def _sorted(operands: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(operands, key=sql_text))


class _Words(NamedTuple):
    """How a language says the connectives."""

    and_: str
    or_: str
    not_: str
    true: str
    false: str


_TAG_WORDS: Final = _Words(" && ", " || ", "!", "*", "!*")
_SQL_WORDS: Final = _Words(" AND ", " OR ", "NOT ", "TRUE", "FALSE")
BARE_TAG: Final = re.compile(r"""[^\s|&!()*'"\x00-\x1f\x7f]+""")
"""What a tag must look like to stand without quotes."""
CONTROL: Final = frozenset(map(chr, (*range(32), 127)))
"""Characters that neither tags nor names of properties may have."""
BARE_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*")
TAGS: Final = "TAGS"
"""What SQL calls the tags, without quotation marks and in capitals; in them it is a property."""
KEYWORDS: Final = frozenset(
    (
        *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)
"""Names that must be quoted, in any case of letters."""


def tag_text(node: Node) -> str:
    """The tree as a tag expression; it holds only tags."""
    return _text(node, _TAG_WORDS)


def sql_text(node: Node) -> str:
    """The tree as SQL."""
    return _text(node, _SQL_WORDS)


def _text(node: Node, words: _Words) -> str:
    match node:
        case Constant(value):
            return words.true if value else words.false
        case And(operands):
            return words.and_.join(_held(each, words, Or) for each in operands)
        case Or(operands):
            return words.or_.join(_text(each, words) for each in operands)
        case Not(operand):
            return _negation_text(operand) or words.not_ + _held(operand, words, And | Or)
        case _:
            return _leaf_text(node, "")


def _held(node: Node, words: _Words, looser: type | UnionType) -> str:
    """The operand, in parentheses where it would fall apart: AND binds tighter than OR."""
    text = _text(node, words)
    return f"({text})" if isinstance(node, looser) else text


def _negation_text(node: Node) -> str:
    """NOT of a leaf in the way that SQL has for it; empty where it has none."""
    match node:
        case TagIn() | NoTags() | IsNull() | TextMatch() | TextIn() | NumberIn():
            return _leaf_text(node, "NOT ")
        case SameText() | BooleanIs():
            return _leaf_text(node, "NOT ")
        case _:
            return ""


def _leaf_text(node: Node, negation: str) -> str:  # noqa: PLR0911 - one for each kind
    equal = "<>" if negation else "="
    match node:
        case HasTag(tag):
            return tag if BARE_TAG.fullmatch(tag) else quoted(tag, "'")
        case NoTags():
            return f"{TAGS} IS {negation}NULL"
        case TagIn(values):
            return _in_text(TAGS, negation, [quoted(value, "'") for value in values])
        case IsNull(name):
            return f"{_name(name)} IS {negation}NULL"
        case TextIn(name, values):
            return _in_text(_name(name), negation, [quoted(value, "'") for value in values])
        case NumberIn(name, numbers):
            return _in_text(_name(name), negation, [repr(value) for value in numbers])
        case NumberOrder(name, order, number):
            return f"{_name(name)} {order} {number!r}"
        case BooleanIs(name, value):
            return f"{_name(name)} {equal} {'TRUE' if value else 'FALSE'}"
        case TextMatch(name, place, text):
            return f"{_name(name)} {negation}{place} {quoted(text, chr(39))}"
        case SameText(left, right):
            return f"{_name(left)} {equal} {_name(right)}"
        case NumbersOrder(left, order, right):
            return f"{_name(left)} {order} {_name(right)}"
        case _:
            return ""


def _in_text(name: str, negation: str, texts: list[str]) -> str:
    if len(texts) == 1:
        return f"{name} {'<>' if negation else '='} {texts[0]}"
    return f"{name} {negation}IN ({', '.join(texts)})"


def _name(name: str) -> str:
    is_bare = BARE_NAME.fullmatch(name) and name.upper() not in KEYWORDS and name != TAGS
    return name if is_bare else quoted(name, '"')


def quoted(text: str, mark: str) -> str:
    """`text` between quotation marks, those inside doubled."""
    return f"{mark}{text.replace(mark, mark + mark)}{mark}"


def property_names(node: Node) -> frozenset[str]:
    """Names of the properties that the tree asks for."""
    match node:
        case And(operands) | Or(operands):
            return frozenset[str]().union(*map(property_names, operands))
        case Not(operand):
            return property_names(operand)
        case SameText(left, right) | NumbersOrder(left, _, right):
            return frozenset((left, right))
        case Constant() | HasTag() | TagIn() | NoTags():
            return frozenset()
        case _:
            return frozenset((node.name,))


def wanted_tags(node: Node) -> frozenset[str]:
    """Tags that the tree names."""
    match node:
        case And(operands) | Or(operands):
            return frozenset[str]().union(*map(wanted_tags, operands))
        case Not(operand):
            return wanted_tags(operand)
        case HasTag(tag):
            return frozenset((tag,))
        case TagIn(values):
            return frozenset(values)
        case _:
            return frozenset()


def asks_for_any_tag(node: Node) -> bool:
    """Whether the tree asks if a message carries a tag at all."""
    if isinstance(node, TagIn | NoTags):
        return True
    return any(map(asks_for_any_tag, operands_of(node)))


def operands_of(node: Node) -> Sequence[Node]:
    """The nodes directly below."""
    match node:
        case And(operands) | Or(operands):
            return operands
        case Not(operand):
            return (operand,)
        case _:
            return ()
