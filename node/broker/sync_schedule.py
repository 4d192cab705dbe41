"""When the commit log is synced: with each write, or in the asynchronous mode now and then.

Pure: the engine tells the time, by any clock that only goes forward.
"""


class SyncSchedule:
    """Sees to it that nothing written waits longer than `flush_ms` for its sync."""

    def __init__(self, *, is_durable: bool, flush_ms: int) -> None:
        """`is_durable`: with each write; else every `flush_ms` while there is something."""
        self._is_durable, self._flush_s = is_durable, flush_ms / 1_000
        self._since_s: float | None = None
        """When the first write was begun that is not synced yet."""

    def is_due(self, now_s: float) -> bool:
        """Whether a write that begins now is to be synced."""
        return self._is_durable or self.wait_s(now_s) == 0

    def wait_s(self, now_s: float) -> float | None:
        """How long a sync may wait that no write brings along; None where none is needed."""
        return None if self._since_s is None else max(0.0, self._since_s + self._flush_s - now_s)

    def note(self, begun_s: float, *, is_synced: bool) -> bool:
        """A write, or a sync alone, that was begun then has ended. Whether a wait begins so."""
        begins = not is_synced and self._since_s is None
        if is_synced:
            self._since_s = None
        elif begins:
            self._since_s = begun_s
        return begins
