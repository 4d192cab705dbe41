"""How the process before this one ended: what a node that exits at once cannot report itself.

After a failed fsync, or a broken invariant, a node exits without a last scrape, and its supervisor
starts it again. The next process finds a note of the reason, and reports it. Nothing depends on the
note, and nothing is synced: a process that is killed, or a machine that loses power, leaves the
note as it was at the start, and that is what `KILLED` means.
"""

import contextlib
from pathlib import Path
from typing import Final

LAST_EXIT: Final = "last_exit"
"""Name of the note, in the data directory."""
FIRST: Final = "FIRST_START"
KILLED: Final = "KILLED"
STOPPED: Final = "STOPPED"
_CHARS_MAX: Final = 64


class LastExit:
    """The note of one data directory, which this process has locked.

    Attributes:
        reason: how the last process ended: `FIRST_START`, `STOPPED`, `KILLED`, or the typed reason
            of an error, such as `FSYNC_FAILED`.
    """

    def __init__(self, directory: Path) -> None:
        """Read what the last one has left, and leave what stands for being killed."""
        self._path = directory / LAST_EXIT
        self.reason = FIRST
        with contextlib.suppress(OSError):
            text = self._path.read_text("ascii", errors="replace").strip()
            is_sound = text.isidentifier() and text.isupper() and len(text) <= _CHARS_MAX
            self.reason = text if is_sound else KILLED
        self.note(KILLED)

    def note(self, reason: str) -> None:
        """The process ends, for this reason."""
        with contextlib.suppress(OSError):  # a full or failing disk: that is said elsewhere
            self._path.write_text(f"{reason}\n", "ascii")
