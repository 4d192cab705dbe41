"""Whether one message matches: for clients that check themselves.

The node decides the same for many messages at once (`filters/`); tests hold both to one meaning.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from hourwheel.filter_language.tree import (
    And,
    BooleanIs,
    Constant,
    HasTag,
    IsNull,
    Node,
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
from hourwheel.filter_language.values import Number, read_boolean, read_number

_ORDERS: Final[dict[Order, Callable[[Number, Number], bool]]] = {
    Order.LESS: operator.lt,
    Order.LESS_OR_EQUAL: operator.le,
    Order.GREATER: operator.gt,
    Order.GREATER_OR_EQUAL: operator.ge,
}
"""Python compares an int with a float exactly, however large."""
PLACES: Final[dict[TextPlace, Callable[[str, str], bool]]] = {
    TextPlace.CONTAINS: operator.contains,
    TextPlace.STARTS: str.startswith,
    TextPlace.ENDS: str.endswith,
}


def matches(node: Node, tags: Collection[str], properties: Iterable[tuple[str, str]]) -> bool:
    """Whether a message with these tags and (name, value) pairs is wanted."""
    return evaluate(node, tags, dict(properties)) is True


def evaluate(  # noqa: PLR0911 - one for each kind
    node: Node, tags: Collection[str], properties: Mapping[str, str]
) -> bool | None:
    """True, false or None (unknown)."""
    match node:
        case Constant(value):
            return value
        case HasTag(tag):
            return tag in tags
        case TagIn(values):
            return any(tag in values for tag in tags) if tags else None
        case NoTags():
            return not tags
        case And(operands):
            return _all(operands, tags, properties)
        case Or(operands):
            return _any(operands, tags, properties)
        case Not(operand):
            inner = evaluate(operand, tags, properties)
            return None if inner is None else not inner
        case IsNull(name):
            return name not in properties
        case SameText(left, right):
            first, second = properties.get(left), properties.get(right)
            return None if first is None or second is None else first == second
        case NumbersOrder(left, order, right):
            low, high = _number(properties, left), _number(properties, right)
            return None if low is None or high is None else _ORDERS[order](low, high)
        case _:
            return _leaf(node, properties)


def _all(
    operands: tuple[Node, ...], tags: Collection[str], properties: Mapping[str, str]
) -> bool | None:
    result: bool | None = True
    for each in operands:
        inner = evaluate(each, tags, properties)
        if inner is False:
            return False
        if inner is None:
            result = None
    return result


def _any(
    operands: tuple[Node, ...], tags: Collection[str], properties: Mapping[str, str]
) -> bool | None:
    result: bool | None = False
    for each in operands:
        inner = evaluate(each, tags, properties)
        if inner is True:
            return True
        if inner is None:
            result = None
    return result


def _leaf(
    node: TextIn | NumberIn | NumberOrder | BooleanIs | TextMatch, properties: Mapping[str, str]
) -> bool | None:
    text = properties.get(node.name)
    if text is None:
        return None
    match node:
        case TextIn(_, values):
            return text in values
        case TextMatch(_, place, part):
            return PLACES[place](text, part)
        case BooleanIs(_, value):
            truth = read_boolean(text)
            return None if truth is None else truth is value
        case NumberIn() | NumberOrder():
            number = read_number(text)
            return None if number is None else _compared(node, number)


def _compared(node: NumberIn | NumberOrder, number: Number) -> bool:
    if isinstance(node, NumberIn):
        return number in node.values
    return _ORDERS[node.order](number, node.value)


def _number(properties: Mapping[str, str], name: str) -> Number | None:
    text = properties.get(name)
    return None if text is None else read_number(text)
