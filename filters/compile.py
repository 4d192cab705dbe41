"""From a filter's text to what is run over blocks: the gene mask, then the exact check."""

from sys import getsizeof
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filters.gene_mask import GeneMask, test_of
from filters.long_check import LongCheck
from filters.vector_program import VectorProgram, is_match
from hourwheel.filter_language.lru_cache import LruCache
from hourwheel.filter_language.size import tree_bytes
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import (
    Constant,
    HasTag,
    Node,
    NumberIn,
    NumberOrder,
    NumbersOrder,
    TagIn,
    TextIn,
    TextMatch,
    TextPlace,
    operands_of,
)
from hourwheel.formats.tag_gene import GeneSpec

Mask = NDArray[np.bool_]
I64 = NDArray[np.int64]

_CACHED_BYTES: Final = 32 << 20
"""Of compiled filters: some hundred of the largest, ten thousand of usual ones."""
_FILTER_BYTES: Final = 4_096
"""A compiled filter without what its conditions need, the cache's entry included."""
_TAG_BYTES: Final = 300
_TERM_BYTES: Final = 480
_TEXTS_BYTES: Final = 850
"""What is compiled of a tag, of another condition, of one that looks a text up, and ..."""
_VALUE_BYTES: Final = 120
"""... of each value of an IN."""
FEW: Final = 24
"""So many messages are checked faster one by one than as columns: 0.2 ms, whatever their number."""
_NUMBERS_MANY: Final = 16
_FEW_NUMBERS: Final = 96
"""Of conditions on numbers each costs more as columns, however few the messages are."""
_MESSAGE_WORK: Final = 64
_TERM_WORK: Final = 32
"""Of each condition, on a message whose values are read one by one; and 1 of each further value."""
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
        counts = _count(tree)
        self._search_count = counts.searches
        self._few = FEW if counts.numbers < _NUMBERS_MANY else _FEW_NUMBERS
        self._message_work = max(_MESSAGE_WORK, _TERM_WORK * counts.terms + counts.values)
        self.size_bytes: Final = (
            _FILTER_BYTES + tree_bytes(tree) + _program_bytes(tree) + self._mask.size_bytes
        )
        """About what it weighs in memory, rather too much than too little."""

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
        if len(starts) > self._few:
            return self._program.run(metas, starts, lengths)
        view = memoryview(metas)
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        found = [is_match(self._tree, bytes(view[at : at + size])) for at, size in spans]
        return np.array(found, np.bool_)

    def begin_check(self, raw: bytes) -> LongCheck:
        """The same for one message whose `check_work` is too much for one go."""
        return LongCheck(self._tree, raw)


class _Counts(NamedTuple):
    """Of the conditions of a tree."""

    terms: int
    searches: int
    """Those that search texts."""
    numbers: int
    """Those that compare numbers."""
    values: int
    """Of all INs, each without its first."""


def _count(node: Node) -> _Counts:
    if operands := operands_of(node):
        return _Counts(*map(sum, zip(*map(_count, operands), strict=True)))
    is_search = isinstance(node, TextMatch) and node.place is TextPlace.CONTAINS
    is_number = isinstance(node, NumberIn | NumberOrder | NumbersOrder)
    values = len(node.values) - 1 if isinstance(node, NumberIn | TextIn | TagIn) else 0
    return _Counts(1, int(is_search), int(is_number), values)


def _program_bytes(node: Node) -> int:
    """What `BlockFilter` makes of a tree weighs, without the tree."""
    match node:
        case HasTag():
            return _TAG_BYTES
        case TagIn(tags):
            return _TERM_BYTES + _TAG_BYTES * len(tags)
        case TextIn(_, texts):
            return _TEXTS_BYTES + _VALUE_BYTES * len(texts)
        case NumberIn(_, numbers):
            return _TERM_BYTES + _VALUE_BYTES * len(numbers)
        case _:
            return _TERM_BYTES + sum(map(_program_bytes, operands_of(node)))


_cache: Final = LruCache[tuple[FilterExpression, GeneSpec], BlockFilter](_CACHED_BYTES)


def compile_filter(expression: FilterExpression, spec: GeneSpec) -> BlockFilter:
    """The filter, ready for blocks of messages with genes of `spec`.

    Raises:
        InvalidFilter: as `filter_text.parse`.
    """
    found = _cache.find((expression, spec))
    if found is None:
        found = BlockFilter(parse(expression), spec)
        _cache.keep((expression, spec), found, found.size_bytes + getsizeof(expression.text))
    return found


def is_compiled(expression: FilterExpression, spec: GeneSpec) -> bool:
    """Whether `compile_filter` costs nothing; else some milliseconds for a large filter."""
    return _cache.find((expression, spec)) is not None
