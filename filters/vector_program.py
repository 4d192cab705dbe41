"""The exact check: a filter's tree as operations on columns of many messages, in three values.

The same meaning as `hourwheel.filter_language.evaluate`, which does it for one message. Each node
becomes a function from columns to a `TruthMasks`: who is certainly in, who is certainly out; who is
neither is unknown. So NOT exchanges the two, AND is (and of ins, or of outs), OR the reverse.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from filters.meta_columns import MetaColumns, Values
from filters.number_columns import F64, Numbers, read_numbers
from filters.packed_bytes import I64, Buffer, Mask, PackedBytes, TextIndex
from hourwheel import errors
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.tree import (
    And,
    BooleanIs,
    Constant,
    HasTag,
    IsNull,
    Node,
    Not,
    NoTags,
    NumberIn,
    NumberOrder,
    NumbersOrder,
    Or,
    Order,
    SameText,
    TagIn,
    TextIn,
    TextMatch,
    TextPlace,
    asks_for_any_tag,
    property_names,
    wanted_tags,
)
from hourwheel.filter_language.values import INT64_MAX, Number
from hourwheel.formats.meta import NO_META, MessageMeta, decode

PIECE: Final = 4_096
"""Messages: their columns stay in the processor's cache."""
_LOWER_CASE: Final = np.uint64(0x2020202020202020)
_INT64_END: Final = 2.0**63
_COMPARE: Final[dict[Order, Callable[[Any, Any], Any]]] = {
    Order.LESS: operator.lt,
    Order.LESS_OR_EQUAL: operator.le,
    Order.GREATER: operator.gt,
    Order.GREATER_OR_EQUAL: operator.ge,
}


class TruthMasks(NamedTuple):
    """Of n messages."""

    is_in: Mask
    is_out: Mask


class _Columns:
    """A piece of messages, and what was already read of them."""

    def __init__(self, columns: MetaColumns) -> None:
        self.tags = columns.tags
        self.has_any_tag = columns.has_any_tag
        self.values = columns.values
        self.packed = columns.packed
        self.count = len(columns.is_odd)
        self._numbers: dict[str, Numbers] = {}

    def numbers(self, name: str) -> Numbers:
        """The property's values as numbers; read once."""
        if name not in self._numbers:
            self._numbers[name] = read_numbers(self.packed, self.values[name])
        return self._numbers[name]


_Step: TypeAlias = Callable[[_Columns], TruthMasks]


class VectorProgram:
    """One filter, ready for blocks of metas. Holds nothing between calls."""

    def __init__(self, tree: Node) -> None:
        """Compile."""
        self._tree = tree
        self._tags = sorted(wanted_tags(tree))
        self._names = sorted(property_names(tree))
        self._asks_for_any_tag = asks_for_any_tag(tree)
        self._step = _compile(tree)

    def run(self, metas: Buffer, starts: I64, lengths: I64) -> Mask:
        """bool[n]: which messages match; arguments as in `BlockFilter.exact`."""
        result = np.empty(len(starts), np.bool_)
        for first in range(0, len(starts), PIECE):
            piece = slice(first, first + PIECE)
            result[piece] = self._run_piece(metas, starts[piece], lengths[piece])
        return result

    def _run_piece(self, metas: Buffer, starts: I64, lengths: I64) -> Mask:
        packed = PackedBytes(metas, starts, lengths)
        columns = MetaColumns(
            packed,
            packed.starts,
            lengths,
            self._tags,
            self._names,
            asks_for_any_tag=self._asks_for_any_tag,
        )
        result = self._step(_Columns(columns)).is_in
        for row in np.flatnonzero(columns.is_odd).tolist():
            first = int(packed.starts[row])
            result[row] = is_match(self._tree, packed.raw[first : first + int(lengths[row])])
        return result


def is_match(tree: Node, raw: bytes) -> bool:
    """Whether the message with this meta matches; bytes that are no meta count as none."""
    meta = read_meta(raw)
    return matches(tree, meta.tags, meta.properties)


def read_meta(raw: bytes) -> MessageMeta:
    """The meta that a filter looks at; bytes that are none count as one that says nothing."""
    try:
        return decode(raw)
    except errors.InvalidArgument:
        return NO_META


def _compile(node: Node) -> _Step:  # noqa: PLR0911 - one for each kind
    match node:
        case And(operands) | Or(operands):
            return _joined([_compile(each) for each in operands], is_and=isinstance(node, And))
        case Not(operand):
            return _negated(_compile(operand))
        case HasTag() | TagIn() | NoTags():
            return _compile_tags(node)
        case IsNull(name):
            return lambda columns: _two_valued(~columns.values[name].is_there)
        case TextIn() | TextMatch() | BooleanIs():
            return _compile_text(node)
        case SameText(left, right):
            return lambda columns: _same_text(columns, left, right)
        case NumberIn(name, numbers):
            return lambda columns: _number_in(columns.numbers(name), numbers)
        case NumberOrder(name, order, number):
            return lambda columns: _number_order(columns.numbers(name), order, number)
        case NumbersOrder(left, order, right):
            return lambda columns: _numbers_order(
                columns.numbers(left), _COMPARE[order], columns.numbers(right)
            )
        case Constant(value):
            return lambda columns: _two_valued(np.full(columns.count, value))


def _joined(steps: Sequence[_Step], *, is_and: bool) -> _Step:
    def run(columns: _Columns) -> TruthMasks:
        is_in, is_out = steps[0](columns)
        for step in steps[1:]:
            more = step(columns)
            if is_and:
                is_in, is_out = is_in & more.is_in, is_out | more.is_out
            else:
                is_in, is_out = is_in | more.is_in, is_out & more.is_out
        return TruthMasks(is_in, is_out)

    return run


def _negated(step: _Step) -> _Step:
    def run(columns: _Columns) -> TruthMasks:
        is_in, is_out = step(columns)
        return TruthMasks(is_out, is_in)

    return run


def _two_valued(is_in: Mask) -> TruthMasks:
    return TruthMasks(is_in, ~is_in)


def _where_known(is_in: Mask, is_known: Mask) -> TruthMasks:
    return TruthMasks(is_in & is_known, is_known & ~is_in)


def _compile_tags(node: HasTag | TagIn | NoTags) -> _Step:
    match node:
        case HasTag(tag):
            return lambda columns: _two_valued(columns.tags[tag])
        case TagIn(tags):
            return lambda columns: _where_known(
                np.logical_or.reduce([columns.tags[tag] for tag in tags]), columns.has_any_tag
            )
        case NoTags():
            return lambda columns: _two_valued(~columns.has_any_tag)


def _compile_text(node: TextIn | TextMatch | BooleanIs) -> _Step:
    name = node.name
    match node:
        case TextIn(_, texts):
            wanted = TextIndex([text.encode() for text in texts])

            def run(columns: _Columns) -> TruthMasks:
                values = columns.values[name]
                is_in = wanted.contains(columns.packed, values.starts, values.lengths)
                return _where_known(is_in, values.is_there)

        case TextMatch(_, place, text):
            find, part = _FIND[place], text.encode()

            def run(columns: _Columns) -> TruthMasks:
                values = columns.values[name]
                is_in = np.zeros(len(values.lengths), np.bool_)
                rows = np.flatnonzero(values.lengths >= len(part))
                starts, lengths = values.starts[rows], values.lengths[rows]
                is_in[rows] = find(columns.packed, part, starts, lengths)
                return _where_known(is_in, values.is_there)

        case BooleanIs(_, value):

            def run(columns: _Columns) -> TruthMasks:
                is_true, is_false = _booleans(columns.packed, columns.values[name])
                return TruthMasks(is_true, is_false) if value else TruthMasks(is_false, is_true)

    return run


def _starts_with(packed: PackedBytes, part: bytes, starts: I64, _: I64) -> Mask:
    return packed.begin_with(part, starts)


def _ends_with(packed: PackedBytes, part: bytes, starts: I64, lengths: I64) -> Mask:
    return packed.begin_with(part, starts + lengths - len(part))


def _contains(packed: PackedBytes, part: bytes, starts: I64, lengths: I64) -> Mask:
    """By `bytes.find`, message by message: numpy has no search, and this one is linear."""
    find = packed.raw.find
    ends = (starts + lengths).tolist()
    found = (find(part, first, end) >= 0 for first, end in zip(starts.tolist(), ends, strict=True))
    return np.fromiter(found, np.bool_, len(ends))


_FIND: Final[dict[TextPlace, Callable[[PackedBytes, bytes, I64, I64], Mask]]] = {
    TextPlace.CONTAINS: _contains,
    TextPlace.STARTS: _starts_with,
    TextPlace.ENDS: _ends_with,
}


def _booleans(packed: PackedBytes, values: Values) -> TruthMasks:
    """Who is true, who is false."""
    masks = TruthMasks(*(np.zeros(len(values.lengths), np.bool_) for _ in range(2)))
    for text, target in ((b"true", masks.is_in), (b"false", masks.is_out)):
        rows = np.flatnonzero(values.lengths == len(text))
        # Only the two cases of a letter have that letter's bits when 0x20 is set.
        words = packed.words(values.starts[rows]) | _LOWER_CASE
        words &= np.uint64(2 ** (8 * len(text)) - 1)
        target[rows] = words == np.uint64(int.from_bytes(text, "little"))
    return masks


def _same_text(columns: _Columns, left: str, right: str) -> TruthMasks:
    first, second = columns.values[left], columns.values[right]
    is_known = first.is_there & second.is_there
    is_in = is_known & (first.lengths == second.lengths)
    rows = np.flatnonzero(is_in)
    is_in[rows] = columns.packed.equal(first.starts[rows], second.starts[rows], first.lengths[rows])
    return _where_known(is_in, is_known)


def _number_in(numbers: Numbers, wanted: tuple[Number, ...]) -> TruthMasks:
    whole = np.array([each for each in wanted if isinstance(each, int)], np.int64)
    real = np.array([each for each in wanted if isinstance(each, float)], np.float64)
    # A float that is a whole number of 64 bits may be equal to one of `whole`.
    as_whole = np.array([float(each) for each in whole.tolist() if int(float(each)) == each])
    is_in = np.where(
        numbers.is_whole,
        _is_one_of(numbers.whole, whole),
        _is_one_of(numbers.real, np.concatenate((real, as_whole))),
    )
    return _where_known(is_in, numbers.is_known)


_LIST_MIN: Final = 8


def _is_one_of(column: I64 | F64, wanted: I64 | F64) -> Mask:
    if len(wanted) >= _LIST_MIN:
        return np.isin(column, wanted)
    is_in = np.zeros(len(column), np.bool_)
    for each in wanted:
        is_in |= column == each
    return is_in


def _number_order(numbers: Numbers, order: Order, wanted: Number) -> TruthMasks:
    """Rounding to a float keeps the order, or makes two numbers equal: then it is settled."""
    compare = _COMPARE[order]
    rounded = float(wanted)
    is_in = compare(numbers.real, rounded)
    tied = numbers.real == rounded
    if tied.any():
        if isinstance(wanted, int):
            settled = np.where(
                numbers.is_whole, compare(numbers.whole, wanted), compare(int(rounded), wanted)
            )
        elif wanted.is_integer():
            # Here a whole number is one that rounds to `wanted`, which does not fit 64 bits.
            settled = np.where(
                numbers.is_whole, compare(INT64_MAX, wanted), compare(wanted, wanted)
            )
        else:
            settled = is_in
        is_in = np.where(tied, settled, is_in)
    return _where_known(is_in, numbers.is_known)


def _numbers_order(left: Numbers, compare: Callable[[Any, Any], Any], right: Numbers) -> TruthMasks:
    """As `_number_order`, with another number in each message."""
    is_in = compare(left.real, right.real)
    rows = np.flatnonzero((left.real == right.real) & (left.is_whole | right.is_whole))
    if len(rows):
        sides = []
        for each in (left, right):
            real = each.real[rows]
            # The other side is whole, so this one, rounded alike, is a whole number, too.
            fits = real < _INT64_END
            sides.append(
                (
                    np.where(each.is_whole[rows], each.whole[rows], _as_whole(real, fits)),
                    ~each.is_whole[rows] & ~fits,
                )
            )
        (low, low_is_end), (high, high_is_end) = sides
        is_in[rows] = np.where(
            low_is_end | high_is_end,
            compare(low_is_end.astype(np.int64), high_is_end.astype(np.int64)),
            compare(low, high),
        )
    return _where_known(is_in, left.is_known & right.is_known)


def _as_whole(real: F64, fits: Mask) -> I64:
    return np.where(fits, real, 0.0).astype(np.int64)
