"""What a snapshot is going to carry, verified: damage is not given away.

Who takes a snapshot opens it as at any start. What is damaged there it cannot use, and would ask
for again and again; what is found later would be damaged on two nodes. So the giver reads, before
it gives them, the views as far as the manifest vouches for them, and the log that who takes them
replays. Older log is the scrubber's (storage/log/scrub.py), as are bodies in delay logs: they may
be many, and each is under a checksum that travels with it.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.shard.view_check import ViewCheck, ViewFile
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity
from storage.log.scan import BatchWalk, corrupt_log
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, find_start_offset


class HeldFile(NamedTuple):
    """A file of a snapshot."""

    name: str
    """In the shard's folder."""
    size_bytes: int
    sent_bytes: int
    """Behind these it has zeros."""
    path: str
    """Of its second name."""
    head: bytes = b""
    """Its first bytes as they were when it was held."""

    @property
    def view(self) -> ViewFile:
        """For who verifies it."""
        return ViewFile(self.name, self.path, self.size_bytes, self.head)


class SnapshotCheck:
    """See the top of this file. No threads: for one that may wait for the disk."""

    def __init__(self, disk: Disk, directory: str, identity: Identity, manifest: Checkpoint):
        """`directory`: of the shard, for what is said; `manifest`: as the snapshot has it."""
        self._disk, self._directory = disk, directory
        self._manifest = manifest
        self._names: set[str] = set()
        self._views = ViewCheck(disk, identity, manifest)

    def run(self, files: Sequence[HeldFile]) -> None:
        """Verify these.

        Raises:
            CorruptLog, CorruptFile: naming the first file that is damaged, as the shard names it.
        """
        self._names = {one.name for one in files}
        for held in files:
            path = f"{self._directory}/{held.name}"
            try:
                if held.name.startswith("log/"):
                    self._check_log(held)
                else:
                    self._views.run(held.view)
            except errors.CorruptLog as error:
                at = error.params["offset"]
                raise errors.CorruptLog(
                    error.message.replace(held.path, path), file=path, offset=at
                ) from error
            except errors.CorruptFile as error:
                why = error.message.replace(held.path, path)
                raise errors.CorruptFile(
                    why if path in why else f"{path}: {why}", file=path
                ) from error

    def _check_log(self, held: HeldFile) -> None:
        start = find_start_offset(held.name.removeprefix("log/"))
        if start is None:
            return  # an index: its reader makes it again
        try:
            self._views.check_header(held.view, FileType.LOG_SEGMENT, start)
        except errors.CorruptFile as error:
            raise corrupt_log(error.message, held.path, start, 0) from error
        end = start + held.size_bytes - FILE_HEADER_BYTES
        # Without its index, who takes it reads the segment from its beginning.
        has_index = held.name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX in self._names
        begin = max(start, min(end, self._manifest.applied_offset)) if has_index else start
        with closing(self._disk.open(held.path)) as file:
            walk = BatchWalk(file, start, begin, end)
            for _ in walk:
                pass
            if walk.fault is not None:
                at = walk.next_offset
                raise corrupt_log(walk.fault, held.path, at, at - start + FILE_HEADER_BYTES)
