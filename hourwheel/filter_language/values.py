"""How a property's value, which is always a text, is read as a number or as true or false."""

import math
import re
from typing import Final, TypeAlias

from hourwheel import limits

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")

Number: TypeAlias = int | float
"""An int of 64 bits, else a finite float."""


def read_number(text: str) -> Number | None:
    """The number that a text is: exact in 64 bits, else the nearest float; None if it is none.

    `-12`, `1.5`, `.5`, `5.`, `2e3`; no blanks around it, at most `FILTER_NUMBER_CHARS_MAX`
    characters, and nothing that is too large for a float.
    """
    if len(text) > limits.FILTER_NUMBER_CHARS_MAX or not _NUMBER.fullmatch(text):
        return None
    if _WHOLE.fullmatch(text) and INT64_MIN <= (whole := int(text)) <= INT64_MAX:
        return whole
    value = float(text)
    return value if math.isfinite(value) else None


def plain_number(value: Number) -> Number:
    """The number as an int where that is the same number and fits 64 bits."""
    if isinstance(value, float) and value.is_integer() and INT64_MIN <= int(value) <= INT64_MAX:
        return int(value)
    return value


def read_boolean(text: str) -> bool | None:
    """Whether a text is `true` or `false`, in any case of (ASCII) letters; None: neither."""
    if len(text) > len("false") or not text.isascii():
        return None
    return {"true": True, "false": False}.get(text.lower())
