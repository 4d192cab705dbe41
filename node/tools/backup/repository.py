"""A folder with backups. Pieces are named by their SHA-256, so backups share what is the same.

    objects/<2 digits>/<64 digits>    a piece; written once, never changed
    backups/<id>.json                 a manifest (see manifest.py), written after all its pieces

A piece is written beside its name, made durable and renamed; a manifest likewise, when the names of
all its pieces are durable. So a backup that was interrupted, or for which the disk was too small,
has no manifest, and the ones before it are as good as they were; its pieces serve the next one.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from hourwheel import errors
from node.tools.backup.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    Piece,
    digest_of,
    pack_manifest,
    unpack_manifest,
)
from storage.files.disk import Disk, parent_of

_OBJECTS: Final = "objects"
_BACKUPS: Final = "backups"
_MANIFEST_END: Final = ".json"
_TMP: Final = ".tmp"
_FOLDER_DIGITS: Final = 2
_FOLDER: Final = re.compile("[0-9a-f]{2}")
_PIECE: Final = re.compile(r"[0-9a-f]{64}(\.tmp)?")
_ID_DIGITS: Final = 8
_MS: Final = 1_000


class Repository:
    """See the top of this file. One process at a time may write to it.

    Raises, from what writes: DiskFull (nothing half done is left), FsyncFailed and DiskFailed (end
    the process).
    """

    def __init__(self, disk: Disk) -> None:
        """On a disk whose root is the folder. Nothing is made before something is written."""
        self._disk = disk
        self._touched: set[str] = set()
        """Folders with names that are not durable yet."""

    # -- pieces -----------------------------------------------------------------------------------

    def put(self, raw: bytes) -> tuple[Piece, bool]:
        """See that a piece is there: which it is, and whether it is new. Durable by `complete`."""
        piece = Piece(digest_of(raw), len(raw))
        path = _path_of(piece)
        if self._size_of(path) == piece.size_bytes:
            self._touched.add(parent_of(path))  # whoever wrote it may have died before the sync
            return piece, False
        self._disk.make_dir(parent_of(path))
        self._write(path, raw)
        self._touched.add(parent_of(path))
        return piece, True

    def get(self, piece: Piece) -> bytes:
        """The bytes of a piece, verified.

        Raises:
            CorruptFile: it is missing, torn or altered.
        """
        path = _path_of(piece)
        if self._size_of(path) != piece.size_bytes:
            raise errors.CorruptFile(f"{path} is missing or torn", file=path)
        with closing(self._disk.open(path)) as file:
            raw = file.pread(piece.size_bytes, 0)
        if digest_of(raw) != piece.digest:
            raise errors.CorruptFile(f"{path} was altered: its SHA-256 is another", file=path)
        return raw

    def _size_of(self, path: str) -> int | None:
        try:
            with closing(self._disk.open(path)) as file:
                return file.size()
        except FileNotFoundError:
            return None

    def _write(self, path: str, raw: bytes) -> None:
        beside = path + _TMP
        with closing(self._disk.open(beside, create=True)) as file:
            try:
                file.truncate(0)
                file.pwrite((raw,), 0)
                file.datasync()
            except errors.DiskFull:
                self._disk.remove(beside)
                raise
        self._disk.rename(beside, path)

    # -- backups ----------------------------------------------------------------------------------

    def complete(self, manifest: Manifest) -> str:
        """Make a backup complete, all of whose pieces were `put`. Returns its id."""
        for folder in sorted(self._touched):
            self._disk.sync_dir(folder)
        self._touched.clear()
        raw = pack_manifest(manifest)
        made = datetime.fromtimestamp(manifest.made_ms / _MS, UTC)
        backup_id = (
            f"{made:%Y%m%dT%H%M%S}.{manifest.made_ms % _MS:03}Z-{digest_of(raw)[:_ID_DIGITS]}"
        )
        self._disk.make_dir(_BACKUPS)
        self._write(f"{_BACKUPS}/{backup_id}{_MANIFEST_END}", raw)
        self._disk.sync_dir(_BACKUPS)
        return backup_id

    def ids(self) -> list[str]:
        """Of all complete backups, oldest first."""
        if not self._disk.exists(_BACKUPS):
            return []
        names = self._disk.list(_BACKUPS)
        return [one.removesuffix(_MANIFEST_END) for one in names if one.endswith(_MANIFEST_END)]

    def read(self, backup_id: str) -> Manifest:
        """A backup's manifest.

        Raises:
            NotFound: there is no such backup.
            CorruptFile, IncompatibleFormat: see `unpack_manifest`.
        """
        path = f"{_BACKUPS}/{backup_id}{_MANIFEST_END}"
        if backup_id not in self.ids():
            raise errors.NotFound(f"there is no backup {backup_id!r}", backup=backup_id)
        with closing(self._disk.open(path)) as file:
            raw = file.pread(MANIFEST_BYTES_MAX, 0)
        return unpack_manifest(raw, path)

    def remove(self, backup_id: str) -> int:
        """Remove a backup, and the pieces that no other has; the bytes of these.

        The manifest goes first, durably: what is interrupted leaves pieces without a backup, which
        go with the next removal. What is no piece by its name is somebody else's, and stays.

        Raises:
            As `read`, of any backup: while one cannot be read, nobody knows what it needs.
        """
        self.read(backup_id)
        others = [self.read(one) for one in self.ids() if one != backup_id]
        needed = {piece.digest for one in others for piece in one.pieces}
        self._disk.remove(f"{_BACKUPS}/{backup_id}{_MANIFEST_END}")
        self._disk.sync_dir(_BACKUPS)
        removed_bytes = 0
        for folder in filter(_FOLDER.fullmatch, self._disk.list(_OBJECTS)):
            for name in filter(_PIECE.fullmatch, self._disk.list(f"{_OBJECTS}/{folder}")):
                if name not in needed:
                    path = f"{_OBJECTS}/{folder}/{name}"
                    removed_bytes += self._size_of(path) or 0
                    self._disk.remove(path)
        return removed_bytes

    def verify(self, backup_id: str) -> Iterator[errors.DataLoss | None]:
        """Read a backup: for each different piece None, or what is wrong with it.

        Raises:
            As `read`.
        """
        manifest = self.read(backup_id)
        for piece in dict.fromkeys(manifest.pieces):
            try:
                self.get(piece)
            except errors.DataLoss as error:
                yield error
            else:
                yield None


def _path_of(piece: Piece) -> str:
    return f"{_OBJECTS}/{piece.digest[:_FOLDER_DIGITS]}/{piece.digest}"
