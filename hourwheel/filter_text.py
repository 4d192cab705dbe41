"""Filter expressions: what a user writes, what a subscription keeps, and how it is read.

An expression goes over the wire as text. Reading it needs the package `lark` (the extra
`hourwheel[filters]`); making one and sending it does not. Grammar and rules: docs/FILTERS.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from hourwheel import errors, limits
from hourwheel.filter_ast import EVERYTHING, Node, sql_text, tag_text

_CACHED: Final = 512
"""Trees of texts of at most 4 KiB; few, because a stranger chooses what a node is asked."""


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
    if expression.text == "" or (expression.kind is FilterKind.TAGS and expression.text == "*"):
        return EVERYTHING  # needs no lark
    return _read(expression.kind, expression.text).tree


class _Read(NamedTuple):
    """A text that was read."""

    tree: Node
    canonical: str


@lru_cache(maxsize=_CACHED)
def _read(kind: FilterKind, text: str) -> _Read:
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
        from hourwheel import filter_sql, filter_tags  # noqa: PLC0415 - lark is an extra
    except ModuleNotFoundError as missing:
        if missing.name != "lark":
            raise
        raise errors.FailedPrecondition(
            "reading filters needs a package that is not installed: pip install hourwheel[filters]"
        ) from None
    return filter_tags.parse(text) if kind is FilterKind.TAGS else filter_sql.parse(text)


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
