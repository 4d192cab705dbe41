"""Tag genes: 64 bits that let an index say "certainly not" without reading the message.

A gene is made of a message's tags and, where the topic's spec names properties, of the (name,
value) pairs of those. Each of these *items* has a hash, XXH3 of 64 bits: of the tag's UTF-8, or of
name, a zero byte and value (no tag has a zero byte). What becomes of the hashes is the *kind*:

    sparse     k of 64 bits for each item: numbered by bits 0-5, 6-11, 12-17, ... of its hash
    bloom      k of 64 bits for each item: (h + i * step) mod 64, h = hash, step = (hash >> 32) | 1
    or-gene    the whole hash of each item
    hash-set   the hash of the one tag

In the first three the bits of all items are ORed, and a message may carry an item only if its gene
has all bits of it; it may have them and not carry the item ("gene says maybe"), so a match is
always checked against the message. `GENE_UNKNOWN` says maybe to everything, in every kind.

XXH3 is frozen and gives the same number on every machine: genes and hashes lie in the log. Test
vectors: tests/golden/genes.json.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_intdigest

from hourwheel import errors, limits

GENE_UNKNOWN: Final = 2**64 - 1
"""The gene of which nothing is known: maybe, whatever is asked."""
GENE_SPEC_NONE: Final = 0
"""Number of no spec: the genes say nothing."""
GENE_SPEC_OF_TOPIC: Final = 2**32 - 1
"""Stands for the number of each message's own topic's spec; only a node writes it."""

GENE_NONE: Final = 0
"""`gene_kind` of a batch whose gene column says nothing."""
GENE_SPARSE: Final = 1
"""`gene_kind` of a batch whose genes are `sparse_gene`s."""

_CACHED_ITEMS: Final = 16_384
_CACHED_TAG_LISTS: Final = 1_024
"""Fewer: a list may have 64 tags of 127 bytes, and a stranger chooses what a node is sent."""
_CACHED_SPECS: Final = 4_096
_CACHED_VALUE_CHARS_MAX: Final = 256
_BIT_MASK: Final = 63
_UINT32_MASK: Final = 2**32 - 1
_CONTROL: Final = frozenset(map(chr, (*range(32), 127)))


class GeneKind(StrEnum):
    """How a gene is made of hashes."""

    SPARSE = "sparse"
    HASH_SET = "hash-set"
    OR_GENE = "or-gene"
    BLOOM = "bloom"


_DEFAULT_BITS: Final = {GeneKind.SPARSE: 5, GeneKind.BLOOM: 4}
"""Of the kinds that have a number of bits; why: docs/decisions/0014-filters.md."""


@dataclass(frozen=True, slots=True)
class GeneSpec:
    """How a topic's genes are made. Equal specs make equal genes.

    Raises:
        InvalidArgument: no such kind; bits or properties that the kind has not, or that exceed a
            limit; a property name that no message can have.
    """

    kind: GeneKind = GeneKind.SPARSE
    """Also as text: "sparse", "hash-set", "or-gene", "bloom"."""
    bits_per_item: int = 0
    """1 to 8; 0 becomes the kind's default, and stays 0 for hash-set and or-gene."""
    properties: tuple[str, ...] = ()
    """Names of the properties in the gene; become sorted."""

    def __post_init__(self) -> None:
        """Check, and bring into the one form."""
        try:
            kind = GeneKind(self.kind)
        except ValueError:
            raise errors.InvalidArgument(f"there is no kind of gene {self.kind!r}") from None
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "bits_per_item", _checked_bits(kind, self.bits_per_item))
        object.__setattr__(self, "properties", _checked_names(kind, tuple(self.properties)))

    @property
    def text(self) -> str:
        """The spec as one line: `sparse/5`, `bloom/4 region,status`."""
        bits = f"/{self.bits_per_item}" if self.bits_per_item else ""
        names = " " + ",".join(self.properties) if self.properties else ""
        return f"{self.kind}{bits}{names}"

    @property
    def number(self) -> int:
        """32 bits that stand for the spec in record batches; never one of the reserved ones."""
        return _number(self)


def _checked_bits(kind: GeneKind, bits: int) -> int:
    default = _DEFAULT_BITS.get(kind, 0)
    if not default and bits:
        raise errors.InvalidArgument(f"a gene of kind {kind} has no number of bits")
    if not 0 <= bits <= limits.GENE_BITS_PER_ITEM_MAX:
        raise errors.InvalidArgument(
            f"{bits} bits for each item of a gene; 1 to {limits.GENE_BITS_PER_ITEM_MAX} may be",
            bits_per_item=bits,
        )
    return bits or default


def _checked_names(kind: GeneKind, names: tuple[str, ...]) -> tuple[str, ...]:
    if names and kind not in _DEFAULT_BITS:
        raise errors.InvalidArgument(f"a gene of kind {kind} has no properties")
    if len(names) > limits.GENE_PROPERTY_COUNT_MAX:
        raise errors.InvalidArgument(
            f"{len(names)} properties in a gene; at most {limits.GENE_PROPERTY_COUNT_MAX} may be",
            count=len(names),
            count_max=limits.GENE_PROPERTY_COUNT_MAX,
        )
    if len(set(names)) != len(names):
        raise errors.InvalidArgument("a property is named twice in a gene")
    for name in names:
        try:
            size = len(name.encode())
        except (UnicodeEncodeError, AttributeError):
            size = 0
        if not 0 < size <= limits.PROPERTY_NAME_BYTES_MAX or not _CONTROL.isdisjoint(name):
            raise errors.InvalidArgument(f"no property can have the name {name!r}")
    return tuple(sorted(names))


@lru_cache(maxsize=_CACHED_SPECS)
def _number(spec: GeneSpec) -> int:
    parts = (str(spec.kind), str(spec.bits_per_item), *spec.properties)
    number = xxh3_64_intdigest("\0".join(parts).encode()) & _UINT32_MASK
    return 1 if number in {GENE_SPEC_NONE, GENE_SPEC_OF_TOPIC} else number


DEFAULT_SPEC: Final = GeneSpec()
"""Of topics that say nothing."""


def gene_of(spec: GeneSpec, tags: Iterable[str], properties: Iterable[tuple[str, str]] = ()) -> int:
    """The gene of a message, as an unsigned 64-bit number.

    Args:
        spec: of the topic.
        tags: all tags of the message.
        properties: (name, value) of all its properties; those that the spec does not name are
            left out.
    """
    gene = _gene_of_tags(spec, tuple(tags))
    names = spec.properties
    if names:
        for name, value in properties:
            if name in names:
                gene |= property_bits(spec, name, value)
    return gene


@lru_cache(maxsize=_CACHED_TAG_LISTS)
def _gene_of_tags(spec: GeneSpec, tags: tuple[str, ...]) -> int:
    if spec.kind is GeneKind.HASH_SET:
        if len(set(tags)) > 1:
            return GENE_UNKNOWN
        return item_bits(spec, tags[0]) if tags else 0
    gene = 0
    for tag in tags:
        gene |= item_bits(spec, tag)
    return gene


@lru_cache(maxsize=_CACHED_ITEMS)
def item_bits(spec: GeneSpec, item: str) -> int:
    """What a tag puts into a gene; or a property, as name, zero byte and value."""
    digest = xxh3_64_intdigest(item.encode())
    match spec.kind:
        case GeneKind.SPARSE:
            return _sparse(digest, spec.bits_per_item)
        case GeneKind.BLOOM:
            step = digest >> 32 | 1
            bits = 0
            for ordinal in range(spec.bits_per_item):
                bits |= 1 << (digest + ordinal * step & _BIT_MASK)
            return bits
        case GeneKind.OR_GENE:
            return digest
        case GeneKind.HASH_SET:
            return 1 if digest in {0, GENE_UNKNOWN} else digest


def property_bits(spec: GeneSpec, name: str, value: str) -> int:
    """What a property that the spec names puts into a gene."""
    item = f"{name}\0{value}"
    if len(value) > _CACHED_VALUE_CHARS_MAX:  # long and likely the only one of its kind
        return item_bits.__wrapped__(spec, item)
    return item_bits(spec, item)


def _sparse(digest: int, count: int) -> int:
    bits = 0
    for _ in range(count):
        bits |= 1 << (digest & _BIT_MASK)
        digest >>= 6
    return bits


def sparse_gene(tags: tuple[str, ...]) -> int:
    """The default gene of `tags`."""
    return _gene_of_tags(DEFAULT_SPEC, tags)


def key_hash(key: str | bytes) -> int:
    """XXH3 of a key (UTF-8), as an unsigned 64-bit number; never 0, which stands for "no key"."""
    return xxh3_64_intdigest(key if isinstance(key, bytes) else key.encode()) or 1
