"""The gene mask: which entries of a block can match, told from their genes alone.

A filter's tree becomes a smaller one that only ever says too much: a tag or a pair of the gene's
properties becomes "these bits are set"; what the gene cannot tell, and NOT of anything that it can
only suspect, becomes "maybe". AND and OR keep that: nothing that matches is ever left out.

    a && (b || !c)    ->    bits(a) AND (bits(b) OR maybe)    ->    bits(a)

A block is worked through in pieces that stay in the processor's cache, in scratch arrays that all
pieces use: two passes for a set of bits, one for each AND or OR.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.filter_ast import And, Constant, HasTag, Node, Not, Or, TextIn
from hourwheel.tag_gene import (
    GENE_UNKNOWN,
    GeneKind,
    GeneSpec,
    item_bits,
    property_bits,
)

Genes: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]

_PIECE: Final = 16_384
"""Entries: 128 KiB of genes and as much scratch, half of an ordinary L2 cache."""
_TESTS_MAX: Final = 64
"""Sets of bits that one filter compares each gene with; of more, some are taken for "maybe". So a
filter of hundreds of tags costs at most so much: some 25 million genes a second are left."""
_LIST_MIN: Final = 8
"""From so many hashes on, looking each gene up in a sorted list beats comparing with each."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """Every gene may match, or (`value` False) none can."""

    value: bool


@dataclass(frozen=True, slots=True)
class HasBits:
    """The gene has all of these bits."""

    bits: int


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


Test: TypeAlias = Maybe | HasBits | IsHash | AllOf | AnyOf
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
        case HasTag(tag) if is_wanted:
            return _item(spec, item_bits(spec, tag))
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
    hashes: set[int] = set()
    for part in _flat(parts, AnyOf):
        match part:
            case Maybe(True):
                return _YES
            case Maybe():
                pass
            case HasBits(bits):
                masks.add(bits)
            case IsHash(more):
                hashes.update(more)
                kept[part] = None  # even of no hash: a gene may be unknown
            case _:
                kept[part] = None
    if hashes:
        kept = {part: None for part in kept if not isinstance(part, IsHash)}
        kept[IsHash(tuple(sorted(hashes)))] = None
    if len(masks) > _TESTS_MAX:
        return _YES  # as `_cheap`, before all are compared with all
    # Bits that include those of another part can only be true where that one is.
    for bits in sorted(masks, key=int.bit_count):
        if not any(isinstance(each, HasBits) and bits & each.bits == each.bits for each in kept):
            kept[HasBits(bits)] = None
    if len(kept) > 1:
        return AnyOf(tuple(kept))
    return next(iter(kept), _NO)


def _flat(parts: Iterable[Test], kind: type[AllOf] | type[AnyOf]) -> Iterable[Test]:
    return chain.from_iterable(part.parts if isinstance(part, kind) else (part,) for part in parts)


def _follows(test: Test, bits: int) -> bool:
    """Whether a gene that has `bits` passes the test for certain."""
    match test:
        case HasBits(needed):
            return bits & needed == needed
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

    @property
    def narrows(self) -> bool:
        """Whether there is a gene that it says no to."""
        return self._test != _YES

    @property
    def test_count(self) -> int:
        """As `count_tests`."""
        return count_tests(self._test)

    def maybe(self, genes: NDArray[Any]) -> Mask:
        """bool[n]: which of uint64[n] genes may match. Any stride will do."""
        count = len(genes)
        result = np.empty(count, np.bool_)
        if isinstance(self._test, Maybe):
            result[:] = self._test.value
            return result
        scratch = _Scratch(min(count, _PIECE))
        for first in range(0, count, _PIECE):
            piece = genes[first : first + _PIECE]
            if not piece.flags.c_contiguous:
                piece = scratch.copied(piece)
            _run(self._test, piece, result[first : first + _PIECE], scratch, 0)
        return result


class _Scratch:
    """Arrays for one call, used again for each piece."""

    def __init__(self, count: int) -> None:
        self._count = count
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
        case IsHash(hashes):
            np.equal(genes, np.uint64(GENE_UNKNOWN), out=out)
            if len(hashes) >= _LIST_MIN:
                out |= np.isin(genes, np.array(hashes, np.uint64))
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
