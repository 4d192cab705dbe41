"""The gene mask: which entries of a block can match, by their genes alone.

A filter's tree becomes a smaller one that only ever says too much: a tag or a pair of the gene's
properties becomes "these bits are set"; what the gene cannot tell, and NOT of anything that it can
only suspect, becomes "maybe". AND and OR keep that: nothing that matches is ever left out.

    a && (b || !c)    ->    bits(a) AND (bits(b) OR maybe)    ->    bits(a)

A block is worked through in pieces that stay in the processor's cache, in scratch arrays that all
pieces use: two passes for a set of bits, one for each AND or OR. Many sets of which one will do are
looked up 64 at a time: for each byte of a gene a table says which of them that byte allows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.filter_language.tree import (
    And,
    Constant,
    HasTag,
    Node,
    Not,
    Or,
    TagIn,
    TextIn,
    wanted_tags,
)
from hourwheel.formats.tag_gene import (
    GENE_UNKNOWN,
    GeneKind,
    GeneSpec,
    item_bits,
    property_bits,
)

Genes: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]

WORD: Final = 8
"""Bytes of a gene."""
TABLE_SETS: Final = 64
"""Sets of bits that are looked up at once: a bit of a word for each."""
PIECE: Final = 16_384
"""Entries: 128 KiB of genes and as much scratch, half of an ordinary L2 cache."""
_TESTS_MAX: Final = 64
"""Sets of bits that one filter compares each gene with; of more, some are taken for "maybe". So a
filter of hundreds of tags costs at most so much: some 25 million genes a second are left."""
_TABLE_TESTS: Final = 16
"""What looking up as many sets costs as go into a table, in sets of bits compared."""
_TABLE_MIN: Final = 24
"""From so many sets on of which one will do, looking them up beats comparing with each."""
_SETS_MAX: Final = _TESTS_MAX // _TABLE_TESTS * TABLE_SETS
_LIST_MIN: Final = 8
"""From so many hashes on, looking up each gene's last 16 bits, and then those few whose bits any
hash has, beats comparing with each."""


class BitTables:
    """Which genes have all bits of one of many sets: looked up by their bytes, 64 sets at a time.

    A gene has a set's bits where each of its eight bytes has those of the set that lie there. So a
    table says, for each place and each value of a byte, which of 64 sets that byte allows: a word
    with a bit for each. The AND of a gene's eight words has a bit left for each set that it has.
    Holds nothing between calls.
    """

    def __init__(self, sets: Sequence[int]) -> None:
        """Of at least one set; each is bits of 64."""
        self._tables = [
            _table_of(sets[first : first + TABLE_SETS]) for first in range(0, len(sets), TABLE_SETS)
        ]

    @property
    def size_bytes(self) -> int:
        """16 KiB for each 64 sets."""
        return sum(table.nbytes for table in self._tables)

    def find(self, values: NDArray[np.intp], out: Mask) -> None:
        """Write into bool[n] which genes have all bits of one set; `values`: int[8, n] bytes."""
        out[:] = False
        allowed = np.empty(len(out), np.uint64)
        found = np.empty(len(out), np.uint64)
        for table in self._tables:
            np.take(table[0], values[0], out=found, mode="clip")
            for place in range(1, WORD):
                np.take(table[place], values[place], out=allowed, mode="clip")
                np.bitwise_and(found, allowed, out=found)
            np.logical_or(out, found, out=out)


def bytes_of(genes: NDArray[Any]) -> NDArray[np.uint8]:
    """uint8[8, n]: each byte of uint64[n] genes that lie side by side, the lowest first."""
    return genes.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD).T


def _table_of(sets: Sequence[int]) -> NDArray[np.uint64]:
    """uint64[8, 256] of at most 64 sets; a bit that stands for none is never there."""
    table = np.empty((WORD, 256), np.uint64)
    values = np.arange(256, dtype=np.uint8)[:, None]
    for place, wanted in enumerate(bytes_of(np.array(sets, np.uint64))):
        is_allowed = np.zeros((256, TABLE_SETS), np.bool_)
        is_allowed[:, : len(sets)] = values & wanted == wanted
        table[place] = np.packbits(is_allowed, axis=1, bitorder="little").view("<u8")[:, 0]
    return table


@dataclass(frozen=True, slots=True)
class Maybe:
    """Every gene may match, or (`value` False) none can."""

    value: bool


@dataclass(frozen=True, slots=True)
class HasBits:
    """The gene has all of these bits."""

    bits: int


@dataclass(frozen=True, slots=True)
class HasOneOf:
    """The gene has all bits of one of these sets."""

    sets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsHash:
    """The gene is one of these hashes, or unknown; sorted."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts say maybe."""

    parts: tuple["Test", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of the parts says maybe."""

    parts: tuple["Test", ...]


Test: TypeAlias = Maybe | HasBits | HasOneOf | IsHash | AllOf | AnyOf
_YES: Final = Maybe(value=True)
_NO: Final = Maybe(value=False)


def test_of(node: Node, spec: GeneSpec) -> Test:
    """What the genes of `spec` can tell of the tree."""
    return _cheap(_test(node, spec, is_wanted=True), _TESTS_MAX)


def count_tests(test: Test) -> int:
    """How many sets of bits (or lists of hashes) a gene is compared with."""
    match test:
        case AllOf(parts) | AnyOf(parts):
            return sum(map(count_tests, parts))
        case Maybe():
            return 0
        case HasOneOf(sets):
            return -(-len(sets) // TABLE_SETS) * _TABLE_TESTS
        case _:
            return 1


def _cheap(test: Test, count_max: int) -> Test:
    """The test, or one that says yes to more and compares with at most `count_max` sets."""
    if count_tests(test) <= count_max:
        return test
    if isinstance(test, AllOf):
        kept, left = [], count_max
        for part in sorted(test.parts, key=count_tests):
            kept.append(_cheap(part, left))
            left -= count_tests(kept[-1])
        return _all(kept)
    return _YES


def _test(node: Node, spec: GeneSpec, *, is_wanted: bool) -> Test:
    """What genes tell of `node` being true (`is_wanted`) or being false."""
    match node:
        case Constant(value):
            return _YES if value is is_wanted else _NO
        case Not(operand):
            return _test(operand, spec, is_wanted=not is_wanted)
        case And(operands) | Or(operands):
            parts = [_test(each, spec, is_wanted=is_wanted) for each in operands]
            is_and = isinstance(node, And) is is_wanted  # De Morgan
            return _all(parts) if is_and else _any(parts)
        case HasTag() | TagIn() if is_wanted:
            return _any(_item(spec, item_bits(spec, tag)) for tag in wanted_tags(node))
        case TextIn(name, values) if is_wanted and name in spec.properties:
            return _any(_item(spec, property_bits(spec, name, value)) for value in values)
        case _:
            return _YES


def _item(spec: GeneSpec, bits: int) -> Test:
    if spec.kind is GeneKind.HASH_SET:
        return IsHash((bits,))
    return HasBits(bits) if bits else _YES


def _all(parts: Iterable[Test]) -> Test:
    kept: dict[Test, None] = {}
    bits = 0
    hashes: frozenset[int] | None = None
    for part in _flat(parts, AllOf):
        match part:
            case Maybe(False):
                return _NO
            case Maybe():
                pass
            case HasBits(more):
                bits |= more
            case IsHash(more_hashes):
                hashes = (
                    hashes & frozenset(more_hashes)
                    if hashes is not None
                    else (frozenset(more_hashes))
                )
            case _:
                kept[part] = None
    if hashes is not None:
        kept[IsHash(tuple(sorted(hashes)))] = None
    if bits:
        # An OR that the bits alone make true says nothing more.
        kept = {part: None for part in kept if not _follows(part, bits)}
        kept[HasBits(bits)] = None
    if len(kept) > 1:
        return AllOf(tuple(kept))
    return next(iter(kept), _YES)


def _any(parts: Iterable[Test]) -> Test:
    kept: dict[Test, None] = {}
    masks: set[int] = set()
    hashes: set[int] | None = None
    for part in _flat(parts, AnyOf):
        match part:
            case Maybe(value):
                if value:
                    return _YES
            case HasBits(bits):
                masks.add(bits)
            case HasOneOf(sets):
                masks.update(sets)
            case IsHash(more):
                hashes = {*(hashes or ()), *more}  # even of no hash: a gene may be unknown
            case _:
                kept[part] = None
    if hashes is not None:
        kept[IsHash(tuple(sorted(hashes)))] = None
    if len(masks) > _SETS_MAX:
        return _YES  # as `_cheap`
    kept |= _one_of(masks)
    if len(kept) > 1:
        return AnyOf(tuple(kept))
    return next(iter(kept), _NO)


def _one_of(masks: set[int]) -> dict[Test, None]:
    """Tests of which one says yes where a gene has one of these sets of bits."""
    if len(masks) <= _TESTS_MAX:  # of more, comparing all with all takes too long
        masks = _without_supersets(masks)
    if len(masks) >= _TABLE_MIN:
        return {HasOneOf(tuple(sorted(masks))): None}
    return dict.fromkeys(map(HasBits, sorted(masks)))


def _without_supersets(masks: set[int]) -> set[int]:
    """Bits that include those of another can only be there where those are."""
    kept: set[int] = set()
    for bits in sorted(masks, key=int.bit_count):
        if not any(bits & each == each for each in kept):
            kept.add(bits)
    return kept


def _flat(parts: Iterable[Test], kind: type[AllOf] | type[AnyOf]) -> Iterable[Test]:
    return chain.from_iterable(part.parts if isinstance(part, kind) else (part,) for part in parts)


def _follows(test: Test, bits: int) -> bool:
    """Whether a gene that has `bits` passes the test for certain."""
    match test:
        case HasBits(needed):
            return bits & needed == needed
        case HasOneOf(sets):
            return any(bits & needed == needed for needed in sets)
        case AnyOf(parts):
            return any(_follows(part, bits) for part in parts)
        case AllOf(parts):
            return all(_follows(part, bits) for part in parts)
        case _:
            return False


class GeneMask:
    """A test, ready to be run over blocks of genes. Holds nothing between calls."""

    def __init__(self, test: Test) -> None:
        """Take the test."""
        self._test = test
        self._tables = {each: BitTables(each.sets) for each in _lookups(test)}

    @property
    def narrows(self) -> bool:
        """Whether there is a gene that it says no to."""
        return self._test != _YES

    @property
    def test_count(self) -> int:
        """As `count_tests`."""
        return count_tests(self._test)

    @property
    def size_bytes(self) -> int:
        """What its tables weigh."""
        return sum(each.size_bytes for each in self._tables.values())

    def maybe(self, genes: NDArray[Any]) -> Mask:
        """bool[n]: which of uint64[n] genes may match. Any stride will do."""
        count = len(genes)
        result = np.empty(count, np.bool_)
        if isinstance(self._test, Maybe):
            result[:] = self._test.value
            return result
        scratch = _Scratch(min(count, PIECE), self._tables)
        for first in range(0, count, PIECE):
            piece = genes[first : first + PIECE]
            if not piece.flags.c_contiguous:
                piece = scratch.copied(piece)
            _run(self._test, piece, result[first : first + PIECE], scratch, 0)
        return result


class _Scratch:
    """Arrays for one call, used again for each piece."""

    def __init__(self, count: int, tables: dict[HasOneOf, BitTables]) -> None:
        self._count = count
        self.tables = tables
        self._bytes: NDArray[np.intp] | None = None
        self._hashes: dict[tuple[int, ...], tuple[Genes, Mask]] = {}
        self._words = np.empty(count, np.uint64)
        self._copy: Genes | None = None
        self._masks: list[Mask] = []

    def words(self, count: int) -> Genes:
        """uint64[count], of no content."""
        return self._words[:count]

    def mask(self, level: int, count: int) -> Mask:
        """bool[count], of no content; another one for each level."""
        while len(self._masks) <= level:
            self._masks.append(np.empty(self._count, np.bool_))
        return self._masks[level][:count]

    def bytes_of(self, genes: Genes) -> NDArray[np.intp]:
        """int[8, n]: each byte of the genes, the lowest first, to look things up by."""
        if self._bytes is None:
            self._bytes = np.empty((WORD, self._count), np.intp)
        found = self._bytes[:, : len(genes)]
        found[:] = bytes_of(genes)
        return found

    def hashes(self, hashes: tuple[int, ...]) -> tuple[Genes, Mask]:
        """(the hashes, bool[65536]: which last 16 bits any of them has)."""
        if hashes not in self._hashes:
            wanted = np.array(hashes, np.uint64)
            is_end = np.zeros(1 << 16, np.bool_)
            is_end[wanted.astype(np.uint16)] = True
            self._hashes[hashes] = wanted, is_end
        return self._hashes[hashes]

    def copied(self, genes: NDArray[Any]) -> Genes:
        """The genes, one behind the other: entries lie 64 bytes apart, and each is read twice."""
        if self._copy is None:
            self._copy = np.empty(self._count, np.uint64)
        copy = self._copy[: len(genes)]
        copy[:] = genes
        return copy


def _run(test: Test, genes: Genes, out: Mask, scratch: _Scratch, level: int) -> None:
    """Write into `out` what the test says of the genes; masks below `level` are in use."""
    match test:
        case Maybe(value):
            out[:] = value
        case HasBits(bits):
            wanted, found = np.uint64(bits), scratch.words(len(genes))
            np.bitwise_and(genes, wanted, out=found)
            np.equal(found, wanted, out=out)
        case HasOneOf():
            scratch.tables[test].find(scratch.bytes_of(genes), out)
        case IsHash(hashes):
            np.equal(genes, np.uint64(GENE_UNKNOWN), out=out)
            if len(hashes) >= _LIST_MIN:
                wanted_hashes, is_end = scratch.hashes(hashes)
                rows = np.flatnonzero(is_end[genes.astype(np.uint16)])
                out[rows] |= np.isin(genes[rows], wanted_hashes)
                return
            is_equal = scratch.mask(level, len(genes))
            for each in hashes:
                np.equal(genes, np.uint64(each), out=is_equal)
                np.logical_or(out, is_equal, out=out)
        case AllOf(parts) | AnyOf(parts):
            join = np.logical_and if isinstance(test, AllOf) else np.logical_or
            other = scratch.mask(level, len(genes))
            _run(parts[0], genes, out, scratch, level + 1)
            for part in parts[1:]:
                _run(part, genes, other, scratch, level + 1)
                join(out, other, out=out)


def _lookups(test: Test) -> Iterator[HasOneOf]:
    match test:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _lookups(part)
        case HasOneOf():
            yield test
        case _:
            return
