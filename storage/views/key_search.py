"""The rows of many keys in many runs: what may have some is read, and then searched at once.

    filter, fences of each run --> blocks --read into slots--> one comparison with all rows in them

A node asks some ten runs for some hundred keys, most of which are in one of them: what numpy takes
for a step by itself would be more than the reading, if each run were searched apart.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from storage.files.block_slots import BlockSlots
from storage.views.key_rows import I64, ROW, U64, Hashes, KeyRows, joined, no_rows, unpacked
from storage.views.key_run import BLOCK_BYTES, BLOCK_ROWS, FEW_ROWS, KeyRun, filter_bits

_SLOTS_MAX: Final = 512
"""2 MiB."""


class Located(NamedTuple):
    """Rows of some of n keys."""

    ordinals: I64
    """Of the key that each row is of."""
    rows: KeyRows
    many: I64
    """Ordinals of keys that have too many rows to be read with others; what is here of theirs is
    not all. One may be here several times."""


class _Pairs(NamedTuple):
    """Some keys, each with a slot in which rows of it may lie."""

    ordinals: I64
    slots: I64
    row_counts: I64
    """How many rows the slot has; it may have fewer than this says, and not more than fit."""


def find_in(runs: Sequence[KeyRun], hashes: Hashes, slot_count_max: int = _SLOTS_MAX) -> Located:
    """The rows of n keys, whose `high` ascend.

    Args:
        runs: to look in.
        hashes: of the keys.
        slot_count_max: at most so many blocks are in memory at once.

    Raises:
        CorruptFile: a block that it reads fails its CRC32C.
    """
    ordinals, rows, many = [np.zeros(0, np.int64)], [no_rows()], [np.zeros(0, np.int64)]
    slots = BlockSlots(BLOCK_BYTES, min(slot_count_max, 2 * len(hashes.high) * len(runs)))
    for pairs in _read(runs, hashes, slots, many):
        _search(pairs, hashes, slots, (ordinals, rows, many))
    return Located(np.concatenate(ordinals), joined(rows), np.concatenate(many))


def _read(
    runs: Sequence[KeyRun], hashes: Hashes, slots: BlockSlots, many: list[I64]
) -> Iterator[_Pairs]:
    """Fill the slots as often as it takes; each time, what they have."""
    bits = filter_bits(hashes.low) if runs else hashes.low
    pairs: list[_Pairs] = []
    used = 0
    for run in runs:
        places = run.places_of(hashes, bits)
        many.append(places.many)
        at = 0
        while at < len(places.blocks):
            if used == slots.count:
                yield _joined(pairs)
                pairs, used = [], 0
            some = slice(at, at + slots.count - used)
            blocks, of_each = _each_once(places.blocks[some])
            run.read_into(slots, used, blocks)
            row_counts = run.row_count - BLOCK_ROWS * places.blocks[some]
            pairs.append(_Pairs(places.ordinals[some], used + of_each, row_counts))
            used += len(blocks)
            at += len(of_each)
    if pairs:
        yield _joined(pairs)


def _each_once(blocks: I64) -> tuple[I64, I64]:
    """(The different ones of n blocks, ascending, the ordinal of each of the n among them)."""
    if (blocks[1:] > blocks[:-1]).all():
        return blocks, np.arange(len(blocks))
    return np.unique(blocks, return_inverse=True)


def _joined(pairs: list[_Pairs]) -> _Pairs:
    return _Pairs(*map(np.concatenate, zip(*pairs, strict=True)))


def _search(
    pairs: _Pairs,
    hashes: Hashes,
    slots: BlockSlots,
    found: tuple[list[I64], list[KeyRows], list[I64]],
) -> None:
    """Add what is in the slots to (ordinals, rows, ordinals of keys with too many rows)."""
    rows = slots.rows(ROW)
    in_slots: U64 = rows["high"].reshape(slots.count, BLOCK_ROWS)[pairs.slots]
    places = np.flatnonzero(in_slots == hashes.high[pairs.ordinals, None])
    pair, member = np.divmod(places, BLOCK_ROWS)
    is_row = member < pairs.row_counts[pair]
    pair, member = pair[is_row], member[is_row]
    counts = np.bincount(pair, minlength=len(pairs.slots))
    is_few = counts[pair] <= FEW_ROWS
    pair, member = pair[is_few], member[is_few]
    which = rows[BLOCK_ROWS * pairs.slots[pair] + member]
    ordinals = pairs.ordinals[pair]
    is_same = which["low"] == hashes.low[ordinals]
    found[0].append(ordinals[is_same])
    found[1].append(unpacked(which[is_same]))
    found[2].append(pairs.ordinals[counts > FEW_ROWS])
