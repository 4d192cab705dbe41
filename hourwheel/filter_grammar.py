"""Runs a grammar over a filter's text: bounded, without recursion, every error with its position.

The parser is Lark's LALR(1), whose time is linear in the text. What a stranger could make large
(depth, number of terms) is counted on the tokens, before anything is built of them. Lexing does not
depend on the context, so that a keyword is one everywhere.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex

from hourwheel import errors, limits
from hourwheel.filter_ast import Node, all_of, any_of, negated

_SHOWN: Final = 24
"""Characters of a token that an error shows."""


class _Bounds(PostLex):
    """Passes tokens on until there are too many of a kind, or they lie too deep."""

    always_accept = ()

    def __init__(self, terms: frozenset[str]) -> None:
        self._terms = terms

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The tokens of `stream`. Raises `InvalidFilter`."""
        terms = depth = negations = commas = 0
        opened: list[int] = []
        for token in stream:
            if token.type == "NOT":
                negations += 1
            elif token.type == "LPAR":
                opened.append(negations + 1)
                depth += negations + 1
                negations = commas = 0
            else:
                negations = 0
                if token.type == "RPAR" and opened:
                    depth -= opened.pop()
            terms += token.type in self._terms
            commas += token.type == "COMMA"
            if depth + negations > limits.FILTER_DEPTH_MAX:
                raise invalid("the filter is nested too deeply", token)
            if terms > limits.FILTER_TERM_COUNT_MAX:
                raise invalid("the filter has too many terms", token)
            if commas >= limits.FILTER_LIST_COUNT_MAX:
                raise invalid("the filter has too many values in one list", token)
            yield token


class LogicRules:
    """What the rules stand for that every grammar has: its conditions, joined."""

    def start(self, parts: list[Node]) -> Node:
        """The whole."""
        return parts[0]

    def group(self, parts: list[Node]) -> Node:
        """What is between parentheses."""
        return parts[1]

    def any(self, parts: list[Node | Token]) -> Node:
        """Joined by "or"."""
        return any_of(part for part in parts if not isinstance(part, Token))

    def all(self, parts: list[Node | Token]) -> Node:
        """Joined by "and"."""
        return all_of(part for part in parts if not isinstance(part, Token))

    def negation(self, parts: list[Node]) -> Node:
        """Behind "not"."""
        return negated(parts[1])


def make_parser(grammar: str, builder: object, terms: frozenset[str]) -> Lark:
    """A parser whose rules' callbacks are the methods of `builder`, named as the rules.

    Args:
        grammar: Lark's own notation. NOT, LPAR and RPAR are the tokens that nest.
        builder: each method takes the list of a rule's children and gives its value.
        terms: names of the tokens that count as terms.
    """
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=builder,
        postlex=_Bounds(terms),
        maybe_placeholders=False,
    )


def run(parser: Lark, text: str) -> Any:
    """What the builder made of `text`. Raises `InvalidFilter`."""
    try:
        return parser.parse(text)
    except UnexpectedCharacters as error:
        at = cast(int, error.pos_in_stream)
        raise errors.InvalidFilter(
            f"the filter has an unexpected {_seen(text[at])} at character {at}", position=at
        ) from None
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise _ended(text) from None
        raise invalid(f"the filter has an unexpected {_seen(str(error.token))}", error.token) from (
            None
        )
    except (UnexpectedEOF, UnexpectedInput):
        raise _ended(text) from None


def invalid(message: str, token: Token) -> errors.InvalidFilter:
    """The error, at the token."""
    at = token.start_pos or 0
    return errors.InvalidFilter(f"{message} at character {at}", position=at)


def _ended(text: str) -> errors.InvalidFilter:
    return errors.InvalidFilter("the filter ends too early", position=len(text))


def _seen(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
