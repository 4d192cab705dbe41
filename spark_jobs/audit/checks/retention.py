"""Which entries TRIM records let go of: by topic, since one may have a retention of its own."""

from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import NDArray

from spark_jobs.audit.checks.catalog import FOREVER, Timeline

LEVEL: Final = 11
"""The feature level from which on a topic's own retention counts."""


class Trims:
    """The TRIM records of a log, in its order."""

    def __init__(
        self, rows: NDArray[Any], line: Timeline, levels: Sequence[tuple[int, int]]
    ) -> None:
        """`rows`: `audit_records.TRIM`; `levels`: (offset, feature level) of what raises it."""
        self._rows: list[tuple[int, int, int]] = rows.tolist()
        self._line = line
        self._since = min((at for at, level in levels if level >= LEVEL), default=FOREVER)
        self.offsets = [offset for offset, _, _ in self._rows]

    def from_ms(self, ordinal: int, topic_id: int) -> int:
        """What is released from this instant on stays in a topic's queues at a TRIM record."""
        offset, from_ms, store_ms = self._rows[ordinal]
        own_ms = self._line.retention_at(topic_id, offset) if offset > self._since else 0
        return store_ms - own_ms if own_ms else from_ms

    def of(self, topic_id: int) -> list[tuple[int, int]]:
        """(offset, that instant) of each."""
        return [(offset, self.from_ms(at, topic_id)) for at, offset in enumerate(self.offsets)]
