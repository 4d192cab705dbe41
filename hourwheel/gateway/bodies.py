"""Bodies of requests: from bytes to a checked value, at a cost that their size bounds.

Eight megabytes of `[[],[],...` are two hundred of Python objects, and as many unknown names are
seven hundred of complaints. So the values of a body are counted before any is made, and an object
with more members than there can be is refused as a whole.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from hourwheel import errors
from hourwheel.gateway import problems

VALUE_COUNT_MAX: Final = 131_072
"""Of one body: values, and objects and lists around them."""
_ERRORS_SHOWN: Final = 5
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_MARKS: Final = (b",", b"[", b"{")
"""There are at least as many of these as there are values, less one."""


def checked(adapter: TypeAdapter[Any], raw: bytes) -> Any:
    """The body, of its type.

    Raises:
        NotJson: it is none, or is nested too deeply.
        TooManyItems: it has more than `VALUE_COUNT_MAX` values.
        InvalidArgument: it is of another type; says where.
    """
    if _has_many_values(raw):
        raise errors.TooManyItems(
            f"the body has more than {VALUE_COUNT_MAX} values", limit_value=VALUE_COUNT_MAX
        )
    try:
        parsed = from_json(raw, allow_inf_nan=False)  # nested 200 deep at most
    except ValueError as error:
        raise problems.NotJson(f"the body is no JSON: {error}") from None
    try:
        return adapter.validate_python(parsed)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        shown = "; ".join(f"{_place(one['loc'])}: {one['msg']}" for one in found[:_ERRORS_SHOWN])
        raise errors.InvalidArgument(shown, field=_place(found[0]["loc"])) from None


def _has_many_values(raw: bytes) -> bool:
    """Without making anything of it. Marks in strings are none, so these are passed over."""
    if _count_marks(raw, 0, len(raw)) <= VALUE_COUNT_MAX:
        return False
    count, end = 0, 0
    for strings, one in enumerate(_STRING.finditer(raw)):
        count += _count_marks(raw, end, one.start())
        end = one.end()
        if max(count, strings // 2) > VALUE_COUNT_MAX:  # each value has one name at most
            return True
    return count + _count_marks(raw, end, len(raw)) > VALUE_COUNT_MAX


def _count_marks(raw: bytes, start: int, end: int) -> int:
    return sum(raw.count(mark, start, end) for mark in _MARKS)


def _place(parts: Sequence[int | str]) -> str:
    """Where in the body, without the names of alternatives."""
    names = [str(part) for part in parts if part not in {"one", "list"}]
    return ".".join(names) or "body"
