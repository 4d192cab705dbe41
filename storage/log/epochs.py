"""What a node knows durably of epochs: where each begins in its log, and the latest it has seen.

In one epoch one master appends, and each follower copies a prefix of what it appended, after its
log was made equal to the master's up to the epoch's beginning. So two logs that both know an epoch
are equal up to where the first of them leaves it (Kafka's KIP-101 and KIP-279):

    master    | epoch 3        | epoch 5     | epoch 8 ...
    follower  | epoch 3        | epoch 5 . . . . . | epoch 6 |
                                             ^ they diverge here

That needs an epoch to belong to one master for ever. The control plane gives epochs out; should it
ever forget one that it gave (a disk that lied, an operator's restore), the nodes do not: each
refuses a lower epoch, and the same epoch from another master, and tells the control plane what it
has seen when it registers.

Both are atomic files (storage.files.atomic_file). `EpochFile`, of type EP, has one entry an epoch,
oldest first:

    byte  size  field
       0     4  epoch         u32   greater than the one before
       4     4  zero
       8     8  start_offset  u64   of its first batch; not below the one before

Epochs leave from the front when the log has been trimmed beyond them. After a crash the log may
begin earlier again, before the first epoch that is known: then two logs that diverge there count
as unrelated, and the follower takes a snapshot.

`EpochStore`, of type ES:

    byte  size  field
       0     4  epoch   u32
       4     n  master  its node id, UTF-8
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, NO_NODE, Epoch, NodeId, Offset
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header

EPOCH_SEEN: Final = "epoch_seen"
"""The name of the `EpochStore`'s file in the shard's folder."""
_ENTRY: Final = Struct("<I4xQ")
_EPOCH: Final = Struct("<I")


class EpochEntry(NamedTuple):
    """One epoch's beginning."""

    epoch: Epoch
    start_offset: Offset


class EpochFile:
    """The epochs of one shard. Each change is durable when the method returns.

    Raises, from each method that changes it: FsyncFailed, DiskFailed (stop the process), DiskFull
    (nothing has changed; rarely: the file keeps room, see storage.files.spare_file).
    """

    __slots__ = ("_disk", "_entries", "_identity", "_path", "lacks_room")

    def __init__(
        self, disk: Disk, path: str, identity: Identity, entries: list[EpochEntry]
    ) -> None:
        """Use `open`."""
        self._disk = disk
        self._path = path
        self._identity = identity
        self._entries = entries
        self.lacks_room = False
        """`keep_room` should be called, when there is time for it."""

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
        self.lacks_room = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        """The last epoch; None before the first."""
        return self._entries[-1] if self._entries else None

    def append(
        self, epoch: Epoch, start_offset: Offset, *, log_start_offset: Offset = FIRST_OFFSET
    ) -> None:
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
        # The epoch that ends just where the log begins stays: two logs may diverge there.
        ended = bisect_left(self._entries, log_start_offset, key=lambda entry: entry.start_offset)
        kept = self._entries[max(0, ended - 1) :]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def truncate(self, end_offset: Offset) -> None:
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
        self._entries, self.lacks_room = entries, True


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


def find_divergence(
    master: Sequence[EpochEntry],
    master_span: tuple[Offset, Offset],
    follower: Sequence[EpochEntry],
    follower_span: tuple[Offset, Offset],
) -> Offset | None:
    """Where two logs diverge: up to there they are the same. None where that cannot be known.

    Args:
        master: its epochs, oldest first.
        master_span: [start, end) of its log.
        follower: its epochs, oldest first.
        follower_span: [start, end) of its log.

    Returns:
        An offset that both logs reach and from which the master can send.
    """
    starts = {entry.epoch: entry.start_offset for entry in master}
    for index in range(len(follower) - 1, -1, -1):
        epoch, start = follower[index]
        if starts.get(epoch) != start:
            continue
        # An epoch may be noted before its first batch, or those in front of it, are in the log.
        ends = _end_of(master, epoch, master_span[1]), _end_of(follower, epoch, follower_span[1])
        divergence = min(*ends, master_span[1], follower_span[1])
        is_sendable = master_span[0] <= divergence and follower_span[0] <= divergence
        return divergence if is_sendable else None
    # No epoch in common: a log that begins at 0 can be built from the beginning.
    return FIRST_OFFSET if master_span[0] == 0 and follower_span[0] == 0 else None


def _end_of(entries: Sequence[EpochEntry], epoch: Epoch, log_end: Offset) -> Offset:
    for entry in entries:
        if entry.epoch > epoch:
            return entry.start_offset
    return log_end


class EpochStore:
    """One shard's highest epoch. Each change is durable when the method returns.

    Raises, from `note`: FsyncFailed, DiskFailed (stop the process), DiskFull (nothing has changed;
    rarely: the file keeps room, see storage.files.spare_file).
    """

    def __init__(
        self, disk: Disk, path: str, identity: Identity, epoch: Epoch, master: NodeId
    ) -> None:
        """Use `open`."""
        self._disk, self._path, self._identity = disk, path, identity
        self.epoch = epoch
        """0 before the first."""
        self.master = master
        """Its node id; empty before the first."""
        self.lacks_room = False
        """`keep_room` should be called, when there is time for it."""

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> "EpochStore":
        """Read the file; without one, no epoch was seen yet.

        Raises:
            CorruptFile, ForeignDirectory, IncompatibleFormat: it is not to be used.
        """
        if not disk.exists(path):
            return cls(disk, path, identity, Epoch(0), NO_NODE)
        payload = atomic_file.read(disk, path, FileType.EPOCH_SEEN, identity).payload
        if len(payload) < _EPOCH.size:
            raise errors.CorruptFile(f"{path}: half an epoch", file=path)
        epoch = Epoch(*_EPOCH.unpack_from(payload))
        try:
            master = NodeId(payload[_EPOCH.size :].decode())
        except UnicodeDecodeError:
            raise errors.CorruptFile(f"{path}: no node id", file=path) from None
        return cls(disk, path, identity, epoch, master)

    def keep_room(self) -> None:
        """See that the next epoch can be noted on a full disk, as far as there is room now."""
        atomic_file.keep_room(self._disk, self._path, _EPOCH.size + len(self.master.encode()))
        self.lacks_room = False

    def is_acceptable(self, epoch: Epoch, master: NodeId) -> bool:
        """Whether to follow that master in that epoch, as far as this node can tell."""
        return epoch > self.epoch or (epoch == self.epoch and master == self.master)

    def note(self, epoch: Epoch, master: NodeId) -> None:
        """Remember an acceptable epoch."""
        errors.invariant(
            self.is_acceptable(epoch, master),
            "an epoch is of one master, and they only grow",
            epoch=epoch,
            master=master,
            seen=self.epoch,
            seen_master=self.master,
        )
        if epoch == self.epoch:
            return
        header = pack_file_header(FileType.EPOCH_SEEN, self._identity)
        payload = _EPOCH.pack(epoch) + master.encode()
        atomic_file.write_over(self._disk, self._path, header, payload)
        self.epoch, self.master, self.lacks_room = epoch, master, True
