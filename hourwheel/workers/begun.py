"""Which messages a child has begun: a byte for each, in memory that it shares with its worker.

A child sets the byte of a message before the first line of a program's own code runs for it. What
it has set is there whatever ends the child: nothing has to be sent any more. Messages whose byte is
not set are none that ended it, and run elsewhere as if it had never had them.
"""

import mmap
import os
import tempfile
from typing import Final, Self

MARK_COUNT: Final = 4_096
"""Messages of a child at one time; those beyond it are unknown, and count as begun."""


class BegunMarks:
    """The bytes, in the worker or in the child."""

    def __init__(self, fd: int) -> None:
        """`fd`: of the file that both have; it may be closed afterwards."""
        self._marks = mmap.mmap(fd, MARK_COUNT)

    @classmethod
    def make(cls) -> tuple[Self, int]:
        """(those of a worker, a descriptor for the child, which the caller closes)."""
        with tempfile.TemporaryFile() as file:
            file.truncate(MARK_COUNT)
            marks = cls(file.fileno())
            return marks, os.dup(file.fileno())

    def set(self, number: int) -> None:
        """The message is being begun. Called in threads, too."""
        if number < MARK_COUNT:
            self._marks[number] = 1

    def clear(self, number: int) -> None:
        """Another message has the number now."""
        if number < MARK_COUNT:
            self._marks[number] = 0

    def has_begun(self, number: int) -> bool:
        """Whether it may have been begun."""
        return number >= MARK_COUNT or self._marks[number] == 1

    def close(self) -> None:
        """Nothing of it is used any more."""
        self._marks.close()
