"""Fields of a browser's request: of the expected type and size, or refused by name. Pure."""

from collections.abc import Mapping

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression

_TEXT_CHARS_MAX = 300_000
_LIST_COUNT_MAX = 256
_NUMBER_MAX = 1 << 53
"""The largest whole number that a browser has."""


def text(given: Mapping[str, object], name: str, default: str | None = None) -> str:
    """A text. Raises InvalidArgument: it is none, or it is missing and has no default."""
    value = given.get(name, default)
    if not isinstance(value, str) or len(value) > _TEXT_CHARS_MAX:
        raise _refused(name, "a text")
    return value


def number(given: Mapping[str, object], name: str, default: int | None = None) -> int:
    """A whole number, 0 or more; as a text, too. Raises InvalidArgument as `text`."""
    value = given.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:  # noqa: PLR2004
        value = int(value)
    if type(value) is not int or not 0 <= value < _NUMBER_MAX:
        raise _refused(name, "a whole number")
    return value


def texts(given: Mapping[str, object], name: str) -> list[str]:
    """A list of texts; empty where it is missing. Raises InvalidArgument."""
    value = given.get(name, [])
    if not isinstance(value, list) or len(value) > _LIST_COUNT_MAX:
        raise _refused(name, "a list")
    return [text({name: one}, name) for one in value]


def pairs(given: Mapping[str, object], name: str) -> dict[str, str]:
    """Names and texts; empty where they are missing. Raises InvalidArgument."""
    value = given.get(name, {})
    if not isinstance(value, dict) or len(value) > _LIST_COUNT_MAX:
        raise _refused(name, "names and texts")
    return {text({name: key}, name): text({name: one}, name) for key, one in value.items()}


def wanted(given: Mapping[str, object]) -> FilterExpression:
    """A filter: `filter`, and `filter_kind` "tags" or "sql"; everything where there is none.

    Raises:
        InvalidArgument: it is none. Its grammar the node checks.
    """
    found = text(given, "filter", "").strip()
    return FilterExpression(text(given, "filter_kind", "tags"), found or "*")  # type: ignore[arg-type]


def _refused(name: str, what: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(f"{name} is not {what}", field=name)
