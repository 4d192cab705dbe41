"""Filters as users give them: a plain text is one by tags, `Sql("...")` one by properties."""

from typing import Final

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression, check_text

Tags: Final = FilterExpression.tags
"""`Tags("paid && !test")`: a filter by tags, as the plain text is, but one that can say more."""
Sql: Final = FilterExpression.sql
"""`Sql("region = 'eu' AND amount > 100")`: a filter by conditions on properties."""


def as_filter(given: str | FilterExpression | None) -> FilterExpression | None:
    """The filter that a user gave, ready to be sent; its grammar is left to who receives it.

    Raises:
        InvalidArgument: neither a text nor an expression.
        InvalidFilter: blank, too long, or no Unicode text.
    """
    if given is None:
        return None
    text = given.text if isinstance(given, FilterExpression) else given
    if not isinstance(text, str):
        raise errors.InvalidArgument(f"a filter is a text or a FilterExpression, not {given!r}")
    if text:
        check_text(text)
    return given if isinstance(given, FilterExpression) else FilterExpression.tags(given)
