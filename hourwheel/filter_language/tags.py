"""Tag expressions: `a || b`, `a && !b`, parentheses, `*`, 'a tag with blanks'.

`!` binds tighter than `&&`, that tighter than `||`.
"""

from functools import cache
from typing import Final

from lark import Lark, Token

from hourwheel.filter_language.grammar import LogicRules, checked_tag, make_parser, run
from hourwheel.filter_language.tree import (
    BARE_TAG,
    EVERYTHING,
    HasTag,
    Node,
)

_GRAMMAR: Final = rf"""
    start: any
    ?any: all (OR all)*
    ?all: one (AND one)*
    ?one: NOT one        -> negation
        | LPAR any RPAR  -> group
        | BARE           -> bare
        | QUOTED         -> quoted
        | STAR           -> star
    OR: "||"
    AND: "&&"
    NOT: "!"
    LPAR: "("
    RPAR: ")"
    STAR: "*"
    BARE: /{BARE_TAG.pattern}/
    QUOTED: /'(?:[^']|'')*'/
    %ignore /[ \t\r\n]+/
"""
_TERMS: Final = frozenset(("BARE", "QUOTED", "STAR", "NOT"))


class _Builder(LogicRules):
    """What each rule of the grammar stands for."""

    def star(self, _: list[Token]) -> Node:
        """Everything."""
        return EVERYTHING

    def bare(self, parts: list[Token]) -> Node:
        """A tag as it is."""
        return HasTag(checked_tag(str(parts[0]), parts[0]))

    def quoted(self, parts: list[Token]) -> Node:
        """A tag in quotation marks."""
        return HasTag(checked_tag(parts[0][1:-1].replace("''", "'"), parts[0]))


@cache
def _parser() -> Lark:
    return make_parser(_GRAMMAR, _Builder(), _TERMS)


def parse(text: str) -> Node:
    """The tree of a tag expression.

    Raises:
        InvalidFilter: with the position of the first character at fault.
    """
    tree: Node = run(_parser(), text)
    return tree
