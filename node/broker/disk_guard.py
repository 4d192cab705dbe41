"""Room on the disk: when to stop accepting, so that what is durable can still be delivered.

Dispatches and acknowledgements are records, too, and a full disk must not stop them. So messages
are refused while less than `free_bytes_min` is free, and a reserve file holds room that only
control records get: it is given up when a write finds no room at all, and made again when there is.

    low         less than `free_bytes_min` is free: no messages, and control records as before
    exhausted   a write found no room, and there was no reserve to give up: nothing at all
"""

from collections.abc import Callable
from typing import Final

from hourwheel import errors
from hourwheel.types import NodeId
from storage.files.disk import Disk

RESERVE: Final = "reserve"
_RELIEF_BYTES: Final = 1 << 20
"""So much more must be free before another write is tried where one found no room."""


class DiskGuard:
    """Says whether messages may be accepted.

    `read_only_reason` is empty while they may, as far as this disk goes. Polled; costs a statvfs.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        free_bytes_min: int,
        reserve_bytes: int,
        on_change: Callable[[str, int], None] | None = None,
    ) -> None:
        """`on_change` gets the new reason (or "") and the free bytes, for the log."""
        self._disk, self.free_bytes_min = disk, free_bytes_min
        self._reserve_bytes, self._on_change = reserve_bytes, on_change
        self.read_only_reason = ""
        self._others_low: frozenset[NodeId] = frozenset()
        self.free_bytes = 0
        self._exhausted_at_bytes: int | None = None
        self.check(0)

    @property
    def refusal(self) -> str:
        """Why messages are refused, also for others' sake; empty: they are not."""
        if self.read_only_reason or not self._others_low:
            return self.read_only_reason
        return (
            f"too few nodes are in sync without {', '.join(sorted(self._others_low))}, and there"
            " the disk is full"
        )

    @property
    def is_low(self) -> bool:
        """This disk has no room for messages."""
        return bool(self.read_only_reason)

    def note_others(self, nodes: frozenset[NodeId]) -> None:
        """Nodes whose disks are low, and which must have on them what is accepted here."""
        self._others_low = nodes

    @property
    def is_exhausted(self) -> bool:
        """Not even control records can be written."""
        return self._exhausted_at_bytes is not None

    def check(self, now_ms: int) -> None:
        """Look at the disk again."""
        del now_ms
        self.free_bytes = self._disk.free_bytes()
        at_bytes = self._exhausted_at_bytes
        if at_bytes is not None and self.free_bytes >= at_bytes + _RELIEF_BYTES:
            self._exhausted_at_bytes = None
        has_reserve = self._disk.exists(RESERVE)
        wanted = self.free_bytes_min + (0 if has_reserve else self._reserve_bytes)
        if self.free_bytes >= wanted:
            self._exhausted_at_bytes = None
            if not has_reserve and self._reserve_bytes:
                self._make_reserve()
            self._say("")
        else:
            self._say(
                f"{self.free_bytes} bytes are free, and messages are accepted from {wanted} on "
                "(disk.free_bytes_min)"
            )

    def _make_reserve(self) -> None:
        try:
            mapping = self._disk.map(RESERVE, self._reserve_bytes, create=True)
        except errors.DiskFull:
            return
        try:
            mapping.allocate(0, self._reserve_bytes)
        except errors.DiskFull:
            self._disk.remove(RESERVE)
        finally:
            mapping.close()

    def on_disk_full(self, now_ms: int) -> None:
        """A write found no room: give up the reserve, and refuse messages."""
        had_reserve = self.give_up_reserve()
        self.check(now_ms)
        if not had_reserve:
            self._exhausted_at_bytes = self.free_bytes
        if not self.read_only_reason:
            self._say("a write found no room")

    def give_up_reserve(self) -> bool:
        """Free the room of the reserve, for what must not fail. Whether there was any."""
        had_reserve = self._disk.exists(RESERVE)
        if had_reserve:
            self._disk.remove(RESERVE)
        return had_reserve

    def _say(self, reason: str) -> None:
        changed = bool(reason) != bool(self.read_only_reason)
        self.read_only_reason = reason
        if changed and self._on_change is not None:
            self._on_change(reason, self.free_bytes)
