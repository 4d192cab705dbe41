"""Verifies the files of the views, and the messages in delay logs, in small pieces. Pure.

    each file that the manifest names --> its own checksums
    runs, queues --> units that are needed --> their messages in delay logs, by the units' CRCs

The shard goes on meanwhile: files are put in the place of others, and removed. So what seems to be
damaged is looked at once more, by the manifest of that moment, before it is called so.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.shard.view_check import ViewCheck, ViewFile, find_names
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.views.unit import Units, copied
from timewheel.bodies import BadBlob, Bodies, LogReader

_PIECE_BYTES: Final = 64 << 10


class BadMessages(NamedTuple):
    """Messages in a delay log that are not what was published."""

    units: Units
    bad: list[BadBlob]
    """By ordinal of `units`."""


class ViewScrub:
    """One look at everything. One thread at a time; it has its own handles of all files."""

    def __init__(self, disk: Disk, directory: str, identity: Identity, log: LogReader) -> None:
        """Of the shard in `directory`. `log` is not read: it has a scrubber of its own."""
        self._disk, self._directory, self._identity = disk, directory, identity
        self._bodies = Bodies(disk, f"{directory}/wheel", log)
        self._names: Iterator[str] | None = None
        self._steps: Iterator[int] = iter(())
        self._name = ""
        """Of the file that is being looked at."""
        self._doubtful = ""
        """Of a file that seemed to be damaged, and is to be looked at once more."""
        self.damaged: list[errors.CorruptFile] = []
        """Files found damaged; the caller takes them out."""
        self.messages: list[BadMessages] = []
        """Messages found damaged; the caller takes them out."""

    @property
    def is_doubtful(self) -> bool:
        """The next step is best taken a little later."""
        return bool(self._doubtful)

    def run(self, bytes_max: int, manifest: Checkpoint) -> int | None:
        """Go on, until about so many bytes are verified or something seems to be damaged.

        Args:
            bytes_max: the bound.
            manifest: the shard's, as of now.

        Returns:
            How many bytes are well; None: all of it was looked at.
        """
        done = 0
        while done < bytes_max and not self.messages:
            try:
                count = next(self._steps, None)
            except (errors.HourwheelError, FileNotFoundError) as error:
                self._steps = iter(())
                self._doubt(error, manifest)
                return done
            if count is not None:
                done += count
                continue
            if self._name and self._name == self._doubtful:
                self._doubtful = ""  # it is well, as it is now
            if not self._begin_next(manifest):
                return done or None
        return done

    def _begin_next(self, manifest: Checkpoint) -> bool:
        """Begin with the next file. False: there is none."""
        if self._names is None:
            self._names = find_names(self._disk, self._directory, manifest)
        name = self._name = self._doubtful or next(self._names, "")
        if name:
            check = ViewCheck(
                self._disk, self._identity, manifest, is_growing=True, on_units=self._look_at
            )
            self._steps = check.steps(ViewFile(name, f"{self._directory}/{name}", 0))
        return bool(name)

    def _doubt(self, error: Exception, manifest: Checkpoint) -> None:
        name, path = self._name, f"{self._directory}/{self._name}"
        self._name = ""
        if self._doubtful != name:
            self._doubtful = name
            return
        self._doubtful = ""
        if name not in find_names(self._disk, self._directory, manifest):
            return  # it is not needed any more
        why = str(error) if isinstance(error, errors.HourwheelError) else "it is missing"
        self.damaged.append(errors.CorruptFile(why if path in why else f"{path}: {why}", file=path))

    def _look_at(self, units: Units) -> Iterator[int]:
        """Verify what units point at in delay logs."""
        units = units[units["dlog_id"] != 0]
        sizes = units["body_len"].astype(np.int64) + units["meta_len"]
        ends = np.cumsum(sizes)
        at = 0
        while at < len(units):
            begin = int(ends[at - 1]) if at else 0
            until = max(at + 1, int(np.searchsorted(ends, begin + _PIECE_BYTES, "right")))
            piece = units[at:until]
            bad = self._bodies.read_joined(piece)[1]
            if bad:
                self.messages.append(BadMessages(copied(piece), bad))
            at = until
            yield int(ends[until - 1]) - begin

    def close(self) -> None:
        """Let go of all files."""
        self._steps = iter(())
        self._bodies.close()
