"""The exact check of one message that is too long for one go, a part at a time.

What takes long is to search long texts, and a filter may search one many times. So the searches are
made one by one, as many at a time as there is time for. The filter is then evaluated with what they
found.
"""

from typing import Final

from filters.vector_program import read_meta
from hourwheel.filter_language.evaluate import PLACES, matches
from hourwheel.filter_language.tree import (
    And,
    Constant,
    Node,
    Not,
    Or,
    TextMatch,
    TextPlace,
    operands_of,
)

_BYTES_WORK: Final = 8
"""A search goes through so many bytes for one unit of work; see `BlockFilter.check_work`."""


class LongCheck:
    """Whether one message matches a filter: call `step` until it says so."""

    def __init__(self, tree: Node, raw: bytes) -> None:
        """Nothing is searched yet. `raw`: the encoded meta; what is none counts as empty."""
        self._tree, self._meta = tree, read_meta(raw)
        self._texts = dict(self._meta.properties)
        self._left = list(dict.fromkeys(_searches(tree)))
        self._found: dict[TextMatch, bool] = {}

    def step(self, work: int) -> bool | None:
        """Search on for about so much work, one text at least; the answer, or None: not yet."""
        while self._left and work > 0:
            search = self._left.pop()
            text = self._texts.get(search.name)
            if text is not None:  # else it is unknown, which costs nothing to find out again
                self._found[search] = PLACES[search.place](text, search.text)
                work -= 1 + len(text.encode()) // _BYTES_WORK
        if self._left:
            return None
        return matches(self._settled(self._tree), self._meta.tags, self._meta.properties)

    def _settled(self, node: Node) -> Node:
        """The tree, with what was found in the place of the searches."""
        match node:
            case And(operands):
                return And(tuple(map(self._settled, operands)))
            case Or(operands):
                return Or(tuple(map(self._settled, operands)))
            case Not(operand):
                return Not(self._settled(operand))
            case TextMatch() if node in self._found:
                return Constant(self._found[node])
            case _:
                return node


def _searches(node: Node) -> list[TextMatch]:
    if isinstance(node, TextMatch) and node.place is TextPlace.CONTAINS:
        return [node]
    return [search for each in operands_of(node) for search in _searches(each)]
