"""Metas of many messages as columns: where the values of some properties are, who has which tag.

All metas are walked at once, one protobuf field further a step: a step is a few dozen operations on
arrays of all messages that still have fields, and there are as many steps as the longest meta has
fields. No Python object is made for a message.

What is walked is what every protobuf library writes (hourwheel/formats/meta.py): fields 1 to 5,
each with a length; in a property the name, then the value. A meta with anything else (unknown
fields, a property written the other way round, more fields than a message may have, damage) is
*odd*: it is left to the caller, who decodes it as a message.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from filters.packed_bytes import I64, Mask, PackedBytes, TextIndex
from hourwheel import limits

_TAG: Final = 0x0A
_PROPERTY: Final = 0x1A
_NAME: Final = 0x0A
_VALUE: Final = 0x12
_IS_FIELD: Final = np.zeros(256, np.bool_)
_IS_FIELD[[0x0A, 0x12, 0x1A, 0x22, 0x2A]] = True
"""Key bytes of the fields of `MessageMeta`, all with a length."""
_STEPS_MAX: Final = (
    limits.MESSAGE_TAG_COUNT_MAX
    + limits.MESSAGE_KEY_COUNT_MAX
    + limits.MESSAGE_PROPERTY_COUNT_MAX
    + 2
)
"""Fields of the largest meta. One that says an id thousands of times over is odd: each step costs
the same for one message as for a hundred."""
_MORE: Final = 0x80
"""In a byte of a length: another one follows."""


class Values(NamedTuple):
    """Of one property: where its value is in each meta."""

    starts: I64
    """int64[n] first byte; of no use where the length is negative."""
    lengths: I64
    """int64[n] bytes; -1: the message does not have the property."""

    @property
    def is_there(self) -> Mask:
        """bool[n]: who has the property."""
        found: Mask = self.lengths >= 0
        return found


class MetaColumns:
    """Result of a walk: `tags` and `values` by name, and the rows that it could not read."""

    def __init__(
        self,
        packed: PackedBytes,
        starts: I64,
        lengths: I64,
        tags: Sequence[str],
        names: Sequence[str],
        *,
        asks_for_any_tag: bool = False,
    ) -> None:
        """Walk.

        Args:
            packed: where the metas are.
            starts: int64[n] first byte of each meta in it.
            lengths: int64[n] bytes of each.
            tags: which tags to look for, each once.
            names: which properties to look for, each once.
            asks_for_any_tag: whether `has_any_tag` is asked for; else it is not filled.
        """
        count = len(starts)
        self.packed: Final = packed
        self._has_tag = np.zeros((len(tags), count), np.bool_)
        self._starts = np.zeros((len(names), count), np.int64)
        self._lengths = np.full((len(names), count), -1, np.int64)
        self.tags: Final = dict(zip(tags, self._has_tag, strict=True))
        self.has_any_tag: Final = np.zeros(count, np.bool_)
        """bool[n]: who has a tag at all."""
        self.values: Final = {
            name: Values(self._starts[ordinal], self._lengths[ordinal])
            for ordinal, name in enumerate(names)
        }
        self.is_odd: Final = np.zeros(count, np.bool_)
        """bool[n]: metas that are to be decoded one by one."""
        self._tag_index = TextIndex([tag.encode() for tag in tags])
        self._name_index = TextIndex([name.encode() for name in names])
        self._seers: list[tuple[int, Callable[[I64, I64, I64], None]]] = []
        if asks_for_any_tag:
            self._seers.append((_TAG, self._see_any_tag))
        if self.tags:
            self._seers.append((_TAG, self._see_tags))
        if self.values:
            self._seers.append((_PROPERTY, self._see_properties))
        self._walk(starts, lengths)

    def _walk(self, starts: I64, lengths: I64) -> None:
        rows = np.flatnonzero(lengths > 0)
        at, ends = starts[rows], (starts + lengths)[rows]
        for _ in range(_STEPS_MAX):
            if not len(rows):
                return
            keys = self.packed.bytes[at]
            first, end, is_odd = _content(self.packed, at)
            is_odd |= end > ends
            key = int(keys[0])
            if is_uniform := bool((keys == key).all()):  # as it mostly is: messages are alike
                is_odd |= not _IS_FIELD[key]
            else:
                is_odd |= ~_IS_FIELD[keys]
            if is_odd.any():
                self.is_odd[rows[is_odd]] = True
                good = ~is_odd
                keys, rows, ends = keys[good], rows[good], ends[good]
                first, end = first[good], end[good]
            for kind, see in self._seers:
                if is_uniform:
                    if key == kind:
                        see(rows, first, end)
                else:
                    chosen = np.flatnonzero(keys == kind)
                    if len(chosen):
                        see(rows[chosen], first[chosen], end[chosen])
            at, goes_on = end, end < ends
            if not goes_on.all():
                rows, at, ends = rows[goes_on], at[goes_on], ends[goes_on]
        self.is_odd[rows] = True

    def _see_any_tag(self, rows: I64, _first: I64, _end: I64) -> None:
        self.has_any_tag[rows] = True

    def _see_tags(self, rows: I64, first: I64, end: I64) -> None:
        for hits, tag in self._tag_index.hits(self.packed, first, end - first):
            self._has_tag[tag, rows[hits]] = True

    def _see_properties(self, rows: I64, first: I64, end: I64) -> None:
        content = self.packed.bytes
        sizes = content[first + 1].astype(np.int64)
        name = first + 2
        name_end = name + sizes
        # Names are short, so their length is one byte: the margin lets a lie be followed here.
        is_odd = (content[first] != _NAME) | (sizes >= _MORE) | (name_end > end)
        np.minimum(name_end, end, out=name_end)
        value, value_end, has_odd_length = _content(self.packed, name_end)
        has_odd_length |= (content[name_end] != _VALUE) | (value_end != end)
        has_none = name_end == end  # an empty value is not written at all
        is_odd |= has_odd_length & ~has_none
        if is_odd.any():
            self.is_odd[rows[is_odd]] = True
            sizes[is_odd] = -1
        for hits, wanted in self._name_index.hits(self.packed, name, sizes):
            chosen, begins = rows[hits], value[hits]
            self._starts[wanted, chosen] = begins
            self._lengths[wanted, chosen] = np.where(has_none[hits], 0, end[hits] - begins)


def _content(packed: PackedBytes, at: I64) -> tuple[I64, I64, Mask]:
    """Of a field at each place: first byte and end of its content, and whether its length is odd.

    `at` may be an end, behind which there is a margin.
    """
    sizes = packed.bytes[at + 1]
    first = at + 2
    is_odd = np.zeros(len(at), np.bool_)
    if int(sizes.max(initial=0)) < _MORE:
        return first, first + sizes, is_odd
    wide = sizes.astype(np.int64)
    rows = np.flatnonzero(wide >= _MORE)  # lengths of two or three bytes
    low, at = wide[rows] & 0x7F, at[rows]
    middle = packed.bytes[at + 2].astype(np.int64)
    high = np.where(middle >= _MORE, packed.bytes[at + 3], 0).astype(np.int64)
    wide[rows] = low | (middle & 0x7F) << 7 | high << 14
    first[rows] += 1 + (middle >= _MORE)
    is_odd[rows] = high >= _MORE
    return first, first + wide, is_odd
