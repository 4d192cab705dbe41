"""Names in requests, checked before the engine sees them. Good ones are remembered."""

from functools import lru_cache
from typing import Final

from storage.views.catalog import validate_group_name, validate_topic_name

_CACHED: Final = 1_024
_INTERNAL: Final = "%"

check_topic = lru_cache(maxsize=_CACHED)(validate_topic_name)
"""Refuse (InvalidTopic) what no topic to publish to may be called."""
check_group = lru_cache(maxsize=_CACHED)(validate_group_name)
"""Refuse (InvalidGroup) what no group may be called."""


def check_readable_topic(name: str) -> None:
    """Refuse (InvalidTopic) what no topic to receive from may be called.

    The cluster's own topics, as "%DLQ%<group>", can be read; whether one exists the engine knows.
    """
    if not name.startswith(_INTERNAL):
        check_topic(name)
