"""The highest epoch that a node has seen, and whose it is: kept durably, never lowered.

The control plane gives epochs out; should it ever forget one that it gave (a disk that lied, an
operator's restore), the nodes do not: each refuses a lower epoch, and the same epoch from another
master, and tells the control plane what it has seen when it registers.

An atomic file (storage.files.atomic_file) of type ES; its payload:

    byte  size  field
       0     4  epoch   u32
       4     n  master  its node id, UTF-8
"""

from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.types import NO_NODE, Epoch, NodeId
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header

EPOCH_SEEN: Final = "epoch_seen"
"""The name of its file in the shard's folder."""
_EPOCH: Final = Struct("<I")


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

    def is_acceptable(self, epoch: int, master: NodeId) -> bool:
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
        self.epoch, self.master = epoch, master
