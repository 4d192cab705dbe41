"""The files of a shard, for reading only: whose they are, the manifest, and what it says is valid.

A node may be running on them. It replaces the manifest as one and removes files that no manifest
names, so an inspection that misses a file reads the manifest again before calling it damage.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.shard.checkpoint import MANIFEST
from node.shard.node_meta import NODE_META
from node.tools.inspect.report import READ_ERRORS, Damage, Report
from storage.files import atomic_file
from storage.files.disk import Disk, File, join
from storage.files.file_header import FILE_HEADER_BYTES, FileHeader, FileType, unpack_file_header

SHARD_START: Final = "shard-"
_ATTEMPTS: Final = 10


@dataclass(frozen=True)
class ShardFiles:
    """Where the files of a shard are."""

    disk: Disk
    folder: str
    """Of the shard; the disk's root is the data directory."""
    cluster_id: bytes | None = None
    """Whose files these should be; None: unknown."""

    @property
    def number(self) -> int | None:
        """The shard's, by its folder's name."""
        digits = self.folder.removeprefix(SHARD_START)
        return int(digits) if digits.isascii() and digits.isdigit() else None

    def path(self, *names: str) -> str:
        """A path in the shard's folder."""
        return join(self.folder, *names)

    def list(self, name: str, end: str = "") -> list[str]:
        """Names in one of the shard's folders that end so; none where there is no such folder."""
        path = self.path(name)
        if not self.disk.exists(path):
            return []
        return [found for found in self.disk.list(path) if found.endswith(end)]

    def manifest(self, path: str = "") -> Checkpoint | None:
        """What the newest checkpoint says; None before the first.

        Args:
            path: of another manifest than the shard's own.

        Raises:
            CorruptFile, ForeignDirectory, IncompatibleFormat: it cannot be used.
            DecodeError: neither.
        """
        path = path or self.path(MANIFEST)
        if not self.disk.exists(path):
            return None
        found = atomic_file.read_any(self.disk, path)
        self.check_header(found.header, path, FileType.CHECKPOINT)
        return Checkpoint.FromString(found.payload)

    def find_manifest(self) -> Checkpoint | None:
        """The manifest; None also where it is damaged, which its own view tells."""
        try:
            return self.manifest()
        except READ_ERRORS:
            return None

    def check_header(self, header: FileHeader, path: str, file_type: FileType) -> None:
        """Demand that a file is what it should be, and this shard's.

        Raises:
            CorruptFile: another type of file.
            ForeignDirectory: of another cluster or shard.
        """
        if header.file_type is not file_type:
            raise errors.CorruptFile(
                f"{header.file_type.name} lies where {file_type.name} should be", file=path
            )
        owner = header.identity
        if self.cluster_id not in (None, owner.cluster_id) or self.number not in (
            None,
            owner.shard,
        ):
            raise errors.ForeignDirectory(
                f"belongs to cluster {owner.cluster_id.hex()} shard {owner.shard}", file=path
            )

    def open_checked(self, path: str, file_type: FileType) -> tuple[File, FileHeader]:
        """An open file and its header. The caller closes it. Raises as `check_header`."""
        file = self.disk.open(path)
        try:
            header = unpack_file_header(file.pread(FILE_HEADER_BYTES, 0), path)
            self.check_header(header, path, file_type)
        except errors.HourwheelError:
            file.close()
            raise
        return file, header


def header_of(disk: Disk, path: str) -> FileHeader:
    """The header of any file of ours. Raises as `unpack_file_header`."""
    with closing(disk.open(path)) as file:
        return unpack_file_header(file.pread(FILE_HEADER_BYTES, 0), path)


def cluster_id_of(disk: Disk) -> bytes | None:
    """The cluster that a data directory belongs to; None where that cannot be read."""
    try:
        return header_of(disk, NODE_META).identity.cluster_id
    except READ_ERRORS:
        return None


def steadily(files: ShardFiles, check: Callable[[Checkpoint, Report], None]) -> Report:
    """Run a check that compares files with the manifest.

    If it finds damage and there is a new manifest by now, it may have looked at files that the node
    was changing, and is run again with the new one. Of a node that changes them all the time, what
    was found twice in a row counts.
    """
    manifest = files.find_manifest()
    before: list[Damage] | None = None
    for _ in range(_ATTEMPTS):
        report = Report()
        if manifest is None:
            return report
        check(manifest, report)
        newer = None if report.is_good else files.find_manifest()
        if newer is None or newer == manifest:
            return report
        if before is not None:
            report.damage = [damage for damage in report.damage if damage in before]
            if report.damage:
                return report
        before, manifest = report.damage, newer
    report = Report()
    report.remark(f"{files.folder} changes faster than it can be compared with its checkpoints")
    return report
