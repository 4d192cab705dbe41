"""Filter expressions: what a user writes, what a subscription keeps, and how it is read.

An expression goes over the wire as text. Reading it needs the package `lark` (the extra
`hourwheel[filters]`); making one and sending it does not. Grammar and rules: docs/FILTERS.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from sys import getsizeof
from typing import Final, NamedTuple

from hourwheel import errors, limits
from hourwheel.filter_language.lru_cache import LruCache
from hourwheel.filter_language.size import tree_bytes
from hourwheel.filter_language.tree import EVERYTHING, Node, sql_text, tag_text

_CACHED_BYTES: Final = 8 << 20
"""Of trees, by their texts: some hundred of the largest. A stranger chooses what a node is asked,
so what counts is how large they are, and not how many."""
_ENTRY_BYTES: Final = 400
"""An entry without its texts and its tree."""


class FilterKind(StrEnum):
    """How a filter's text is read."""

    TAGS = "tags"
    """`a || b`, `a && !b`, `*`."""
    SQL = "sql"
    """`region = 'eu' AND amount > 100`."""


@dataclass(frozen=True, slots=True)
class FilterExpression:
    """Which messages are wanted. Nothing is read or checked before `parse`.

    Raises:
        InvalidArgument: `kind` is none.
    """

    kind: FilterKind
    """Tags or SQL; also as the text "tags" or "sql"."""
    text: str
    """At most `FILTER_BYTES_MAX` bytes; empty: every message."""
    check_at_client: bool = False
    """The node looks at its index only, and the client checks each message that it is handed."""

    def __post_init__(self) -> None:
        """Take the kind as a text, too."""
        try:
            object.__setattr__(self, "kind", FilterKind(self.kind))
        except ValueError:
            raise errors.InvalidArgument(f"there is no kind of filter {self.kind!r}") from None

    @classmethod
    def everything(cls) -> "FilterExpression":
        """The filter that lets every message through."""
        return cls(FilterKind.TAGS, "*")

    @classmethod
    def tags(cls, text: str, *, check_at_client: bool = False) -> "FilterExpression":
        """A filter by tags."""
        return cls(FilterKind.TAGS, text, check_at_client)

    @classmethod
    def sql(cls, text: str, *, check_at_client: bool = False) -> "FilterExpression":
        """A filter by SQL conditions on properties."""
        return cls(FilterKind.SQL, text, check_at_client)

    def canonical(self) -> "FilterExpression":
        """The expression read and printed again, in one way: `b||a` becomes `a || b`.

        What lets every message through becomes `everything()`, whatever it was. Raises as `parse`.
        """
        if parse(self) == EVERYTHING:
            return FilterExpression.everything()
        text = _read(self.kind, self.text).canonical
        return FilterExpression(self.kind, text, self.check_at_client)

    @property
    def is_everything(self) -> bool:
        """Whether every message matches. Raises as `parse`."""
        return parse(self) == EVERYTHING


def parse(expression: FilterExpression) -> Node:
    """The tree of an expression.

    Raises:
        InvalidFilter: it cannot be understood, or exceeds a limit; `params["position"]` is the
            first character at fault, from 0.
        FailedPrecondition: the package `lark` is not installed.
    """
    if _is_plain(expression):
        return EVERYTHING
    return _read(expression.kind, expression.text).tree


def _is_plain(expression: FilterExpression) -> bool:
    """Whether it lets everything through, and that can be seen without lark."""
    return expression.text == "" or (expression.kind is FilterKind.TAGS and expression.text == "*")


class _Read(NamedTuple):
    """A text that was read."""

    tree: Node
    canonical: str


_cache: Final = LruCache[tuple[FilterKind, str], _Read](_CACHED_BYTES)


def is_read(expression: FilterExpression) -> bool:
    """Whether `parse` and `canonical` cost nothing: the text was read lately, or needs no reading.

    Reading a large one takes some milliseconds, which an event loop may not have.
    """
    return _is_plain(expression) or _cache.find((expression.kind, expression.text)) is not None


def _read(kind: FilterKind, text: str) -> _Read:
    found = _cache.find((kind, text))
    if found is None:
        found = _read_anew(kind, text)
        size_bytes = _ENTRY_BYTES + tree_bytes(found.tree) + getsizeof(found.canonical)
        _cache.keep((kind, found.canonical), found, size_bytes)
        if text != found.canonical:
            _cache.keep((kind, text), found, size_bytes + getsizeof(text))
    return found


def _read_anew(kind: FilterKind, text: str) -> _Read:
    tree = _tree(kind, text)
    canonical = tag_text(tree) if kind is FilterKind.TAGS else sql_text(tree)
    if canonical != text:  # it is kept and sent instead of the text, so it must be within limits
        try:
            again = _tree(kind, canonical)
        except errors.InvalidFilter as error:
            raise errors.InvalidFilter(
                f"the filter, written out, is too large: {error.message}", position=0
            ) from None
        errors.invariant(again == tree, "a filter's canonical form means the same", text=text)
    return _Read(tree, canonical)


def _tree(kind: FilterKind, text: str) -> Node:
    check_text(text)
    try:
        from hourwheel.filter_language import sql, tags  # noqa: PLC0415 - lark is an extra
    except ModuleNotFoundError as missing:
        if missing.name != "lark":
            raise
        raise errors.FailedPrecondition(
            "reading filters needs a package that is not installed: pip install hourwheel[filters]"
        ) from None
    return tags.parse(text) if kind is FilterKind.TAGS else sql.parse(text)


def check_text(text: str) -> None:
    """Raise `InvalidFilter` if the text is none, blank or too long."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidFilter(
            f"the filter is no Unicode text at character {error.start}", position=error.start
        ) from None
    if size > limits.FILTER_BYTES_MAX:
        raise errors.InvalidFilter(
            f"the filter has {size} bytes; at most {limits.FILTER_BYTES_MAX} are allowed",
            position=_character_at(text, limits.FILTER_BYTES_MAX),
            bytes_max=limits.FILTER_BYTES_MAX,
        )
    if not text.strip():
        raise errors.InvalidFilter("the filter is blank", position=0)


def _character_at(text: str, byte: int) -> int:
    """Ordinal of the character that holds the byte."""
    return len(text.encode()[:byte].decode(errors="ignore"))
