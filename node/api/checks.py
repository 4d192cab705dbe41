"""Names and numbers in requests, checked before the engine sees them."""

from functools import lru_cache
from typing import Final

from hourwheel import errors
from hourwheel.types import DUE_MS_MAX
from storage.views.catalog_names import (
    validate_group_name,
    validate_known_group_name,
    validate_topic_name,
)

_CACHED: Final = 1_024
"""Good names that are remembered."""
_INTERNAL: Final = "%"

check_topic = lru_cache(maxsize=_CACHED)(validate_topic_name)
"""Refuse (InvalidTopic) what no topic to publish to may be called."""
check_new_group = lru_cache(maxsize=_CACHED)(validate_group_name)
"""Refuse (InvalidGroup) what no group may be created by."""
check_group = lru_cache(maxsize=_CACHED)(validate_known_group_name)
"""Refuse (InvalidGroup) what no group may be called; those of a broadcast's members are."""


def check_readable_topic(name: str) -> None:
    """Refuse (InvalidTopic) what no topic to receive from may be called.

    The cluster's own topics, as "%DLQ%<group>", can be read; whether one exists the engine knows.
    """
    if not name.startswith(_INTERNAL):
        check_topic(name)


def due_range(from_due_ms: int, to_due_ms: int) -> tuple[int, int]:
    """The bounds of due times that a request has; 0: none. Raises InvalidArgument."""
    for name, value in (("from_due_ms", from_due_ms), ("to_due_ms", to_due_ms)):
        if not 0 <= value <= DUE_MS_MAX:
            raise errors.InvalidArgument(f"{name} is no instant: {value}", field=name, value=value)
    if to_due_ms and to_due_ms < from_due_ms:
        raise errors.InvalidArgument("to_due_ms is before from_due_ms", field="to_due_ms")
    return from_due_ms, to_due_ms


def check_at_most(name: str, value: int, most: int) -> None:
    """Raises InvalidArgument where a field's value is greater."""
    if value > most:
        raise errors.InvalidArgument(
            f"{name} is {value}; at most {most} are allowed", field=name, value=value, most=most
        )


def check_at_least(name: str, value: int, least: int) -> None:
    """Raises InvalidArgument where a field's value is less."""
    if value < least:
        raise errors.InvalidArgument(
            f"{name} is {value}, which is below {least}", field=name, value=value, least=least
        )
