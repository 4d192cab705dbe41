"""What a filter's tree weighs in memory: for the caches that keep trees and what they become."""

from sys import getsizeof
from typing import Final

from hourwheel.filter_language.tree import (
    Constant,
    HasTag,
    Node,
    NumberIn,
    TagIn,
    TextIn,
    TextMatch,
    operands_of,
    wanted_tags,
)

_NODE_BYTES: Final = 180
"""A node, its place in its parent and the garbage collector's part of both."""
_VALUE_BYTES: Final = 56
"""A number and its place in a list; a text's place."""


def tree_bytes(node: Node) -> int:
    """Bytes of a tree, its texts included; from a little above to twice of what they are."""
    size = _NODE_BYTES + sum(map(tree_bytes, operands_of(node)))
    match node:
        case HasTag() | TagIn():
            return size + sum(_VALUE_BYTES + getsizeof(tag) for tag in wanted_tags(node))
        case TextIn(name, values):
            return (
                size
                + getsizeof(name)
                + sum(getsizeof(each) for each in values)
                + (_VALUE_BYTES * len(values))
            )
        case NumberIn(name, numbers):
            return size + getsizeof(name) + _VALUE_BYTES * len(numbers)
        case TextMatch(name, _, text):
            return size + getsizeof(name) + getsizeof(text)
        case Constant():
            return size
        case _:
            names = (getattr(node, each, "") for each in ("name", "left", "right"))
            return size + sum(getsizeof(each) for each in names if each)
