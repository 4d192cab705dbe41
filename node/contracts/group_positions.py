"""Where groups go on in topics, as it passes between the engine and the API."""

from typing import NamedTuple


class SkippedInfo(NamedTuple):
    """What a group was let go on behind."""

    skipped_count: int
    positions: list[int]
    """Of each queue of the topic, where it goes on, if not behind that already."""
