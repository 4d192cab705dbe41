"""Logical digests of views: equal for two replicas that applied the same log, whatever their files.

Each view has `digest_into(hasher)`, which feeds what the log made of it in one canonical order and
leaves out where bytes happen to lie. Texts and lists are preceded by their length, so that two
different contents never feed the same bytes.
"""

from struct import Struct
from typing import Final, Protocol

from hourwheel.formats.record_batch import Buffer

_MASK: Final = (1 << 64) - 1


class Hasher(Protocol):
    """What digests are fed to: any hash of `hashlib` or `xxhash`."""

    def update(self, data: Buffer, /) -> object:
        """Add bytes."""
        ...


def feed_numbers(hasher: Hasher, *numbers: int) -> None:
    """Feed integers of -2**63 to 2**64 - 1, 8 bytes each."""
    hasher.update(Struct(f"<{len(numbers)}Q").pack(*(number & _MASK for number in numbers)))


def feed_text(hasher: Hasher, text: str) -> None:
    """Feed a text with its length before it."""
    encoded = text.encode()
    feed_numbers(hasher, len(encoded))
    hasher.update(encoded)
