"""SQL-92 conditions on properties and tags, as RocketMQ has them, with three-valued logic.

Comparisons = <> != < <= > >=, [NOT] BETWEEN, [NOT] IN, IS [NOT] NULL, AND, OR, NOT, [NOT] CONTAINS,
STARTSWITH and ENDSWITH; numbers, 'texts' ('' stands for ' in one), TRUE, FALSE. Keywords in any
case of letters. A property alone is `= TRUE`. The constant says how a property's value is read; two
properties are compared as texts by = and <>, and as numbers by the others.

`TAGS` stands for the message's tags and is NULL where it has none; of several tags one must be what
it is compared with. `"TAGS"` is a property.
"""

from functools import cache
from typing import Final, NamedTuple, TypeAlias

from lark import Lark, Token

from hourwheel import errors, limits
from hourwheel.filter_language.grammar import LogicRules, checked_tag, invalid, make_parser, run
from hourwheel.filter_language.tree import (
    BARE_NAME,
    CONTROL,
    EVERYTHING,
    FLIPPED,
    NOTHING,
    TAGS,
    BooleanIs,
    IsNull,
    Node,
    NoTags,
    Order,
    TextMatch,
    TextPlace,
    all_of,
    negated,
    number_in,
    number_order,
    numbers_order,
    same_text,
    tag_in,
    text_in,
)
from hourwheel.filter_language.values import Number, read_number

_END: Final = r"(?![A-Za-z0-9_$.\-])"
"""A keyword is not the beginning of a longer name."""
_GRAMMAR: Final = rf"""
    start: any
    ?any: all (OR all)*
    ?all: one (AND one)*
    ?one: NOT one                                             -> negation
        | LPAR any RPAR                                       -> group
        | operand COMPARED operand                            -> comparison
        | name NOT? BETWEEN constant AND constant             -> between
        | name NOT? IN LPAR constant (COMMA constant)* RPAR   -> in_list
        | name IS NOT? NULL                                   -> is_null
        | name NOT? PLACE constant                            -> place
        | name                                                -> alone
        | (TRUE | FALSE)                                      -> truth
    ?operand: name | constant
    name: NAME | QUOTED_NAME
    constant: NUMBER | TEXT | TRUE | FALSE | NULL
    AND.2: /(?ai:and){_END}/
    OR.2: /(?ai:or){_END}/
    NOT.2: /(?ai:not){_END}/
    BETWEEN.2: /(?ai:between){_END}/
    IN.2: /(?ai:in){_END}/
    IS.2: /(?ai:is){_END}/
    NULL.2: /(?ai:null){_END}/
    TRUE.2: /(?ai:true){_END}/
    FALSE.2: /(?ai:false){_END}/
    PLACE.2: /(?ai:contains|startswith|endswith){_END}/
    NAME: /{BARE_NAME.pattern}/
    QUOTED_NAME: /"(?:[^"]|"")*"/
    TEXT: /'(?:[^']|'')*'/
    NUMBER: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?/
    COMPARED: "=" | "<>" | "!=" | "<=" | ">=" | "<" | ">"
    LPAR: "("
    RPAR: ")"
    COMMA: ","
    %ignore /[ \t\r\n]+/
"""
_TERMS: Final = frozenset(("NAME", "QUOTED_NAME", "NOT", "BETWEEN", "TRUE", "FALSE"))
_EQUALITIES: Final = frozenset(("=", "<>", "!="))


class _Name(NamedTuple):
    name: str
    token: Token


class _Constant(NamedTuple):
    value: Number | str | bool | None
    token: Token


class _Tags(NamedTuple):
    """`TAGS`."""

    token: Token


_Operand: TypeAlias = _Name | _Tags | _Constant
_Part: TypeAlias = Node | _Name | _Tags | _Constant | Token


class _Builder(LogicRules):
    """What each rule of the grammar stands for."""

    def name(self, parts: list[Token]) -> _Name | _Tags:
        """A property, or the tags."""
        token = parts[0]
        if str(token) == TAGS:  # of a quoted name the marks belong to the token
            return _Tags(token)
        name = token[1:-1].replace('""', '"') if token.type == "QUOTED_NAME" else str(token)
        if not name:
            raise invalid("the filter has an empty name", token)
        if len(name.encode()) > limits.PROPERTY_NAME_BYTES_MAX:
            raise invalid(
                f"the filter has a name of over {limits.PROPERTY_NAME_BYTES_MAX} bytes", token
            )
        if not CONTROL.isdisjoint(name):
            raise invalid("the filter has a name with a control character", token)
        return _Name(name, token)

    def constant(self, parts: list[Token]) -> _Constant:
        """A number, a text, TRUE, FALSE; NULL, which nothing can be compared with."""
        token = parts[0]
        match token.type:
            case "TEXT":
                return _Constant(token[1:-1].replace("''", "'"), token)
            case "NUMBER":
                number = read_number(str(token))
                if number is None:
                    raise invalid("the filter has a number that is too large or long", token)
                return _Constant(number, token)
            case "NULL":
                raise invalid("the filter compares with NULL (write IS NULL)", token)
            case _:
                return _Constant(token.type == "TRUE", token)

    def truth(self, parts: list[Token]) -> Node:
        """TRUE or FALSE as a condition."""
        return EVERYTHING if parts[0].type == "TRUE" else NOTHING

    def alone(self, parts: list[_Part]) -> Node:
        """A property as a condition."""
        return BooleanIs(_name(parts[0]).name, value=True)

    def is_null(self, parts: list[_Part]) -> Node:
        """IS [NOT] NULL."""
        if isinstance(parts[0], _Tags):
            return _perhaps_negated(NoTags(), parts)
        return _perhaps_negated(IsNull(_name(parts[0]).name), parts)

    def place(self, parts: list[_Part]) -> Node:
        """[NOT] CONTAINS, STARTSWITH, ENDSWITH."""
        operator, text = _token(parts[-2]), _constant(parts[-1])
        if not isinstance(text.value, str):
            raise invalid(f"the filter has {operator} with something that is no text", text.token)
        node = TextMatch(_name(parts[0]).name, TextPlace(operator.upper()), text.value)
        return _perhaps_negated(node, parts)

    def between(self, parts: list[_Part]) -> Node:
        """[NOT] BETWEEN: both ends belong to it."""
        name, low, high = _name(parts[0]).name, _number(parts[-3]), _number(parts[-1])
        node = all_of(
            (
                number_order(name, Order.GREATER_OR_EQUAL, low),
                number_order(name, Order.LESS_OR_EQUAL, high),
            )
        )
        return _perhaps_negated(node, parts)

    def in_list(self, parts: list[_Part]) -> Node:
        """[NOT] IN: all texts, or all numbers."""
        constants = [part for part in parts if isinstance(part, _Constant)]
        if isinstance(parts[0], _Tags):
            return _perhaps_negated(tag_in(map(_tag, constants)), parts)
        texts = [each.value for each in constants if isinstance(each.value, str)]
        name = _name(parts[0]).name
        if len(texts) == len(constants):
            return _perhaps_negated(text_in(name, texts), parts)
        if texts:
            other = next(each for each in constants if type(each.value) is not type(texts[0]))
            raise invalid("the filter has texts and something else in one list", other.token)
        return _perhaps_negated(number_in(name, map(_number, constants)), parts)

    def comparison(self, parts: list[_Part]) -> Node:
        """= <> != < <= > >=."""
        left, right, operator = _operand(parts[0]), _operand(parts[2]), _token(parts[1])
        if isinstance(left, _Tags) or isinstance(right, _Tags):
            return _compared_tags(left, operator, right)
        if isinstance(left, _Constant):
            if isinstance(right, _Constant):
                raise invalid("the filter compares two constants", left.token)
            return _compared(right, _turned(str(operator)), left, operator)
        return _compared(left, str(operator), right, operator)


def _compared_tags(left: _Operand, operator: Token, right: _Operand) -> Node:
    """`TAGS = 'a'`, or the operands the other way round."""
    tags, other = (left, right) if isinstance(left, _Tags) else (right, left)
    if not (isinstance(tags, _Tags) and isinstance(other, _Constant)):
        raise _no_such_question(tags.token)
    if operator not in _EQUALITIES:
        raise _no_such_question(tags.token)
    node = tag_in((_tag(other),))
    return node if operator == "=" else negated(node)


def _tag(constant: _Constant) -> str:
    """The tag that a text names, if a message can have it at all."""
    tag, token = constant.value, constant.token
    if not isinstance(tag, str):
        raise invalid("the filter compares TAGS with something that is no text", token)
    return checked_tag(tag, token)


def _no_such_question(token: Token) -> errors.InvalidFilter:
    return invalid(
        "the filter asks of TAGS what is not clear where a message has several (write TAGS = 'a', "
        "TAGS IN ('a', 'b') or TAGS IS NULL, or their opposites; a property of that name is "
        'written "TAGS")',
        token,
    )


def _compared(left: _Name, operator: str, right: _Operand, at: Token) -> Node:
    """`left operator right`; `at` is the operator as it is written."""
    is_equality = operator in _EQUALITIES
    node: Node
    match right:
        case _Name(name, _):
            if not is_equality:
                return numbers_order(left.name, Order(operator), name)
            node = same_text(left.name, name)
        case _Constant(bool() as truth, _):
            if not is_equality:
                raise invalid(f"the filter compares by {at} with TRUE or FALSE", at)
            node = BooleanIs(left.name, truth)
        case _Constant(str() as text, _):
            if not is_equality:
                raise invalid(f"the filter compares by {at} with a text", at)
            node = text_in(left.name, (text,))
        case _:
            number = _number(right)
            if not is_equality:
                return number_order(left.name, Order(operator), number)
            node = number_in(left.name, (number,))
    return node if operator == "=" else negated(node)


def _perhaps_negated(node: Node, parts: list[_Part]) -> Node:
    has_not = any(isinstance(part, Token) and part.type == "NOT" for part in parts)
    return negated(node) if has_not else node


def _number(part: _Part) -> Number:
    constant = _constant(part)
    if isinstance(constant.value, str | bool | None):
        raise invalid("the filter has something that is no number here", constant.token)
    return constant.value


def _turned(operator: str) -> str:
    """The operator when its operands change places."""
    return operator if operator in _EQUALITIES else str(FLIPPED[Order(operator)])


def _name(part: _Part) -> _Name:
    if isinstance(part, _Tags):
        raise _no_such_question(part.token)
    assert isinstance(part, _Name)
    return part


def _constant(part: _Part) -> _Constant:
    assert isinstance(part, _Constant)
    return part


def _operand(part: _Part) -> _Operand:
    assert isinstance(part, _Name | _Tags | _Constant)
    return part


def _token(part: _Part) -> Token:
    assert isinstance(part, Token)
    return part


@cache
def _parser() -> Lark:
    return make_parser(_GRAMMAR, _Builder(), _TERMS)


def parse(text: str) -> Node:
    """The tree of an SQL condition.

    Raises:
        InvalidFilter: with the position of the first character at fault.
    """
    tree: Node = run(_parser(), text)
    return tree
