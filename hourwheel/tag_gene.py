"""The tag gene and the key hash: 64 bits that let a column say "certainly not" without the message.

A *sparse* gene sets 3 of 64 bits for each tag, chosen by the tag's XXH3 hash, 6 bits at a time:

    hash  ... | 17..12 | 11..6 | 5..0 |
                bit c    bit b   bit a      gene = 1 << a | 1 << b | 1 << c, for all tags ORed

A message carries a tag only if its gene has all bits of that tag's gene; it may have them and not
carry the tag ("gene says maybe"), so a match is always checked against the tags themselves.

XXH3 is frozen and gives the same number on every machine: genes and hashes lie in the log.
"""

from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_intdigest

GENE_NONE: Final = 0
"""`gene_kind` of a batch whose gene column says nothing."""
GENE_SPARSE: Final = 1
"""`gene_kind` of a batch whose genes are `sparse_gene`s."""

_CACHED_TAGS: Final = 16_384
_CACHED_TAG_LISTS: Final = 1_024
"""Fewer: a list may have 64 tags of 127 bytes, and a stranger chooses what a node is sent."""
_BIT_MASK: Final = 63


@lru_cache(maxsize=_CACHED_TAGS)
def tag_bits(tag: str) -> int:
    """The bits of one tag: at most 3 of 64."""
    digest = xxh3_64_intdigest(tag.encode())
    return (
        1 << (digest & _BIT_MASK) | 1 << (digest >> 6 & _BIT_MASK) | 1 << (digest >> 12 & _BIT_MASK)
    )


@lru_cache(maxsize=_CACHED_TAG_LISTS)
def sparse_gene(tags: tuple[str, ...]) -> int:
    """The bits of all `tags` together, as an unsigned 64-bit number; 0 for no tags."""
    gene = 0
    for tag in tags:
        gene |= tag_bits(tag)
    return gene


def key_hash(key: str | bytes) -> int:
    """XXH3 of a key (UTF-8), as an unsigned 64-bit number; never 0, which stands for "no key"."""
    return xxh3_64_intdigest(key if isinstance(key, bytes) else key.encode()) or 1
