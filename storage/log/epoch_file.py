"""Where each epoch begins in the log, durably: the history by which logs of two nodes are compared.

An atomic file (storage.files.atomic_file) of type EP; its payload is one entry an epoch, oldest
first:

    byte  size  field
       0     4  epoch         u32   greater than the one before
       4     4  zero
       8     8  start_offset  u64   of its first batch; not below the one before

A follower that asks where an epoch ends, and cuts its log there, has the same log as the master up
to that point, whatever either wrote in epochs that the other never saw (Kafka's KIP-101, KIP-279).

Epochs leave from the front when the log has been trimmed beyond them. After a crash the log may
begin earlier again, before the first epoch that is known: then two logs that part there count as
unrelated, and the follower takes a snapshot.
"""

from bisect import bisect_left
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import Epoch, Offset
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header

_ENTRY: Final = Struct("<I4xQ")


class EpochEntry(NamedTuple):
    """One epoch's beginning."""

    epoch: Epoch
    start_offset: Offset


class EpochFile:
    """The epochs of one shard. Each change is durable when the method returns.

    Raises, from each method that changes it: FsyncFailed, DiskFailed (stop the process), DiskFull
    (nothing has changed; rarely: the file keeps room, see storage.files.spare_file).
    """

    __slots__ = ("_disk", "_entries", "_identity", "_path")

    def __init__(
        self, disk: Disk, path: str, identity: Identity, entries: list[EpochEntry]
    ) -> None:
        """Use `open`."""
        self._disk = disk
        self._path = path
        self._identity = identity
        self._entries = entries

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> "EpochFile":
        """Read the file; without one there were no epochs yet.

        Raises:
            CorruptFile, ForeignDirectory, IncompatibleFormat: it is not to be used.
        """
        entries: list[EpochEntry] = []
        if disk.exists(path):
            found = atomic_file.read(disk, path, FileType.EPOCHS, identity)
            entries = _unpack(found.payload, path)
        return cls(disk, path, identity, entries)

    def keep_room(self) -> None:
        """See that the next epochs can be noted on a full disk, as far as there is room now."""
        atomic_file.keep_room(self._disk, self._path, len(self._entries) * _ENTRY.size)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        """The last epoch; None before the first."""
        return self._entries[-1] if self._entries else None

    def append(self, epoch: int, start_offset: int, *, log_start_offset: int = 0) -> None:
        """A new epoch begins at `start_offset`, the log's end.

        Args:
            epoch: its number.
            start_offset: where it begins.
            log_start_offset: where the log begins. Epochs that ended before it are forgotten with
                the same write, so that the file grows with the log and not with each election.
        """
        last = self.latest
        grows = last is None or (epoch > last.epoch and start_offset >= last.start_offset)
        errors.invariant(grows, "epochs only grow", epoch=epoch, start_offset=start_offset)
        # The epoch that ends just where the log begins stays: two logs may part there.
        ended = bisect_left(self._entries, log_start_offset, key=lambda entry: entry.start_offset)
        kept = self._entries[max(0, ended - 1) :]
        self._replace([*kept, EpochEntry(Epoch(epoch), Offset(start_offset))])

    def truncate(self, end_offset: int) -> None:
        """The log was cut to `end_offset`: forget the epochs that began at or behind it."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) < len(self._entries):
            self._replace(kept)

    def renew(self) -> None:
        """Write the file anew, as it should be: it was found damaged."""
        self._replace(self._entries)

    def _replace(self, entries: list[EpochEntry]) -> None:
        payload = b"".join(_ENTRY.pack(*entry) for entry in entries)
        header = pack_file_header(FileType.EPOCHS, self._identity)
        atomic_file.write_over(self._disk, self._path, header, payload)
        self._entries = entries


def _unpack(payload: bytes, path: str) -> list[EpochEntry]:
    if len(payload) % _ENTRY.size:
        raise errors.CorruptFile(f"{path}: half an epoch", file=path)
    entries = [
        EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in _ENTRY.iter_unpack(payload)
    ]
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            raise errors.CorruptFile(f"{path}: epochs out of order", file=path)
    return entries
