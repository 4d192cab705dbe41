"""Instants and spans of time for people: in UTC, exact to the millisecond."""

from typing import Final

import numpy as np

_FAR_MS: Final = 1 << 61
"""Beyond it numpy overflows on its way to a text."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


def exact_instant_text(ms: int) -> str:
    """`2026-11-22 07:00:01.234`; any integer."""
    ms = min(max(ms, -_FAR_MS), _FAR_MS)
    return str(np.datetime64(ms, "ms")).replace("T", " ")


def span_text(ms: int) -> str:
    """`12 ms`, `61.2 s`, `2 h 5 min`, `3 d 1 h`: two units at most."""
    if abs(ms) < 1_000:  # noqa: PLR2004 - a second
        return f"{ms} ms"
    if abs(ms) < 120_000:  # noqa: PLR2004 - seconds are read best up to two minutes
        return f"{ms / 1_000:.1f} s"
    sign, ms = ("-", -ms) if ms < 0 else ("", ms)
    parts: list[str] = []
    for size, name in _UNITS:
        count, ms = divmod(ms, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return sign + " ".join(one for one in parts[:2] if one)
