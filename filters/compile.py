"""From a filter's text to what is run over blocks: the gene mask, then the exact check."""

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from filters.gene_mask import GeneMask, test_of
from filters.vector_program import VectorProgram, is_match
from hourwheel.filter_ast import Constant, Node, TextMatch, TextPlace, operands_of
from hourwheel.filter_text import FilterExpression, parse
from hourwheel.tag_gene import GeneSpec

Mask = NDArray[np.bool_]
I64 = NDArray[np.int64]

_CACHED: Final = 512
_FEW: Final = 24
"""So many messages are checked faster one by one than as columns: 0.2 ms, whatever their number."""
_MESSAGE_WORK: Final = 64
_TERM_WORK: Final = 32
"""Of each condition, on a message whose values are read one by one."""
_BYTES_WORK: Final = 8
"""CONTAINS goes through so many bytes for one unit of work where a text is made to be slow, ..."""
_PASSES: Final = 2
"""... and decoding a meta that cannot be walked costs as much as so many of it."""


class BlockFilter:
    """One filter for one topic's genes. Holds nothing between calls: threads may share it."""

    def __init__(self, tree: Node, spec: GeneSpec) -> None:
        """Use `compile_filter`."""
        self._tree = tree
        self._mask = GeneMask(test_of(tree, spec))
        self._program = None if isinstance(tree, Constant) else VectorProgram(tree)
        terms, self._search_count = _count(tree)
        self._message_work = max(_MESSAGE_WORK, _TERM_WORK * terms)

    @property
    def is_everything(self) -> bool:
        """Whether every message matches."""
        return isinstance(self._tree, Constant) and self._tree.value

    @property
    def needs_metas(self) -> bool:
        """Whether metas must be read: not for a filter that lets all through, or none."""
        return self._program is not None

    @property
    def narrows(self) -> bool:
        """Whether `maybe` can say no to any gene."""
        return self._mask.narrows

    @property
    def test_count(self) -> int:
        """With how many sets of bits `maybe` compares each gene, at most 64: what it costs."""
        return self._mask.test_count

    def check_work(self, meta_lengths: I64) -> I64:
        """int64[n]: what `exact` costs at most for metas of so many bytes.

        One is what it costs to mask a gene: some 40 ns. It is on the side of who must not wait: a
        stranger may choose the filter and the metas.
        """
        passes = self._search_count + _PASSES
        work: I64 = meta_lengths * passes // _BYTES_WORK + self._message_work
        return work

    def maybe(self, genes: NDArray[Any]) -> Mask:
        """bool[n]: which of uint64[n] genes may match; a view with strides will do."""
        return self._mask.maybe(genes)

    def exact(self, metas: bytes | bytearray | memoryview, starts: I64, lengths: I64) -> Mask:
        """bool[n]: which messages match.

        Args:
            metas: where the encoded metas are.
            starts: int64[n] first byte of each meta.
            lengths: int64[n] bytes of each; 0 where a message has none.
        """
        if self._program is None:
            return np.full(len(starts), self.is_everything)
        if len(starts) > _FEW:
            return self._program.run(metas, starts, lengths)
        view = memoryview(metas)
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        found = [is_match(self._tree, bytes(view[at : at + size])) for at, size in spans]
        return np.array(found, np.bool_)


def _count(node: Node) -> tuple[int, int]:
    """(conditions, those of them that search texts)."""
    if operands := operands_of(node):
        counts = [_count(each) for each in operands]
        return sum(terms for terms, _ in counts), sum(searches for _, searches in counts)
    return 1, isinstance(node, TextMatch) and node.place is TextPlace.CONTAINS


@lru_cache(maxsize=_CACHED)
def compile_filter(expression: FilterExpression, spec: GeneSpec) -> BlockFilter:
    """The filter, ready for blocks of messages with genes of `spec`.

    Raises:
        InvalidFilter: as `filter_text.parse`.
    """
    return BlockFilter(parse(expression), spec)
