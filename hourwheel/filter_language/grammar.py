"""Runs a grammar over a filter's text: bounded, without recursion, every error with its position.

The parser is Lark's LALR(1), whose time is linear in the text. What a stranger could make large
(depth, number of terms) is counted on the tokens, before anything is built of them. Lexing does not
depend on the context, so that a keyword is one everywhere.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from lark import Lark, Token
from lark.common import LexerConf
from lark.exceptions import UnexpectedEOF, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex
from lark.lexer import Lexer

from hourwheel import errors, limits
from hourwheel.filter_language.tree import CONTROL, Node, all_of, any_of, negated

_BAD: Final = "BAD_"
"""Name of the group for a character that begins no terminal."""
_SHOWN: Final = 24
"""Characters of a token that an error shows."""


class _Lexer(Lexer):
    """All terminals of the grammar as one regular expression; what it ignores stands before each.

    Lark's own lexer keeps line and column of each token, which are not needed here, and reading
    the largest filters would take three times as long.
    """

    def __init__(self, conf: LexerConf) -> None:
        """Of two terminals that match, the one wins that Lark would take."""
        terminals = sorted(
            (each for each in conf.terminals if each.name not in conf.ignore),
            key=lambda each: (
                *(-each.priority, -each.pattern.max_width, -len(each.pattern.value)),
                each.name,
            ),
        )
        ignored = "|".join(
            each.pattern.to_regexp() for each in conf.terminals if each.name in conf.ignore
        )
        named = "|".join(f"(?P<{each.name}>{each.pattern.to_regexp()})" for each in terminals)
        self._match = re.compile(rf"(?:{ignored})*(?:{named}|\Z|(?P<{_BAD}>(?s:.)))").match

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        """The tokens of the text. Raises `InvalidFilter`."""
        match, at = self._match, 0
        # Something always matches: a terminal, the end, or a character that begins none.
        while (found := match(text, at)) is not None and (name := found.lastgroup) is not None:
            start, at = found.span(name)
            if name == _BAD:
                raise errors.InvalidFilter(
                    f"the filter has an unexpected {_seen(text[start])} at character {start}",
                    position=start,
                )
            yield Token(name, text[start:at], start)


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
        lexer=_Lexer,
        transformer=builder,
        postlex=_Bounds(terms),
        maybe_placeholders=False,
    )


def run(parser: Lark, text: str) -> Any:
    """What the builder made of `text`. Raises `InvalidFilter`."""
    try:
        return parser.parse(text)
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


def checked_tag(tag: str, token: Token) -> str:
    """The tag, if a message can have it at all; `token` is where it is written.

    Raises:
        InvalidFilter: it cannot.
    """
    if not tag:
        raise invalid("the filter has an empty tag", token)
    if len(tag.encode()) > limits.NAME_BYTES_MAX:
        raise invalid(f"the filter has a tag of over {limits.NAME_BYTES_MAX} bytes", token)
    if not CONTROL.isdisjoint(tag):
        raise invalid("the filter has a tag with a control character", token)
    return tag


def _ended(text: str) -> errors.InvalidFilter:
    return errors.InvalidFilter("the filter ends too early", position=len(text))


def _seen(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
