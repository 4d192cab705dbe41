"""Backups in a store. Pieces are named by their SHA-256, so backups share what is the same.

    objects/<2 digits>/<64 digits>    a piece; written once, never changed; removed where damaged
    backups/<id>.json                 a manifest (see manifest.py), written after all its pieces

A manifest is written when all its pieces are durable. So a backup that was interrupted, or for
which there was no room, has no manifest, and the ones before it are as good as they were; its
pieces serve the next one. Two that are taken at once into an object store share pieces, too, and
nothing else: a piece's name says what is in it.
"""

import re
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
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
from node.tools.backup.store import BackupStore

_OBJECTS: Final = "objects"
_BACKUPS: Final = "backups"
_MANIFEST_END: Final = ".json"
_FOLDER_DIGITS: Final = 2
_FOLDER: Final = re.compile("[0-9a-f]{2}")
_PIECE: Final = re.compile(r"[0-9a-f]{64}(\.tmp)?")
_ID_DIGITS: Final = 8
_MS: Final = 1_000


class Repository:
    """See the top of this file. Who writes does so within the store's `adding` or `removing`.

    Raises, from what writes: as `BackupStore`; nothing half done is left.
    """

    def __init__(self, store: BackupStore) -> None:
        """Nothing is made before something is written."""
        self._store = store

    # -- pieces -----------------------------------------------------------------------------------

    @contextmanager
    def putting(self) -> Iterator["Puts"]:
        """Within it pieces are put, several at a time; when it ends none is under way.

        Raises:
            HourwheelError: of a piece that could not be put, if nothing else was raised.
        """
        with ThreadPoolExecutor(self._store.writer_count, "hourwheel-backup") as threads:
            puts = Puts(self._store, threads)
            yield puts
            puts.wait()

    def get(self, piece: Piece) -> bytes:
        """The bytes of a piece, verified.

        Raises:
            CorruptFile: it is missing, torn or altered.
        """
        path = _path_of(piece)
        try:
            raw = self._store.read(path, piece.size_bytes)
        except FileNotFoundError as error:
            raise errors.CorruptFile(f"{path} is missing", file=path) from error
        if len(raw) < piece.size_bytes:
            raise errors.CorruptFile(f"{path} is torn", file=path)
        if digest_of(raw) != piece.digest:
            raise errors.CorruptFile(f"{path} was altered: its SHA-256 is another", file=path)
        return raw

    # -- backups ----------------------------------------------------------------------------------

    def complete(self, manifest: Manifest) -> str:
        """Make a backup complete; `putting` of its pieces has ended. Returns its id."""
        self._store.settle()
        raw = pack_manifest(manifest)
        made = datetime.fromtimestamp(manifest.made_ms / _MS, UTC)
        backup_id = (
            f"{made:%Y%m%dT%H%M%S}.{manifest.made_ms % _MS:03}Z-{digest_of(raw)[:_ID_DIGITS]}"
        )
        self._store.write_new(f"{_BACKUPS}/{backup_id}{_MANIFEST_END}", raw)
        return backup_id

    def ids(self) -> list[str]:
        """Of all complete backups, oldest first."""
        names = self._store.names(_BACKUPS)
        return [one.removesuffix(_MANIFEST_END) for one in names if one.endswith(_MANIFEST_END)]

    def read(self, backup_id: str, expected_digest: str | None = None) -> Manifest:
        """A backup's manifest.

        Args:
            backup_id: which.
            expected_digest: `digest_of` its file; None: whatever it is. It names all pieces by
                their digests, so that nothing can have been changed where this one holds.

        Raises:
            NotFound: there is no such backup.
            CorruptFile, IncompatibleFormat: see `unpack_manifest`.
            DataLoss: it has another digest.
        """
        path = f"{_BACKUPS}/{backup_id}{_MANIFEST_END}"
        if backup_id not in self.ids():
            raise errors.NotFound(f"there is no backup {backup_id!r}", backup=backup_id)
        raw = self._store.read(path, MANIFEST_BYTES_MAX)
        if expected_digest not in {None, digest_of(raw)}:
            raise errors.DataLoss(
                f"{path} is not the manifest that was expected: its SHA-256 is {digest_of(raw)}",
                file=path,
            )
        return unpack_manifest(raw, path)

    def remove(self, backup_id: str) -> int:
        """Remove a backup, and the pieces that no other has; the bytes of these.

        The manifest goes first, durably: what is interrupted leaves pieces without a backup, which
        go with the next removal. What is no piece by its name is somebody else's, and stays.

        Raises:
            As `read`, of any backup: while one cannot be read, it is unknown what it needs.
        """
        self.read(backup_id)
        others = [self.read(one) for one in self.ids() if one != backup_id]
        needed = {piece.digest for one in others for piece in one.pieces}
        self._store.remove(f"{_BACKUPS}/{backup_id}{_MANIFEST_END}")
        self._store.settle()
        removed_bytes = 0
        for folder in filter(_FOLDER.fullmatch, self._store.names(_OBJECTS)):
            for name in filter(_PIECE.fullmatch, self._store.names(f"{_OBJECTS}/{folder}")):
                if name not in needed:
                    removed_bytes += self._store.remove(f"{_OBJECTS}/{folder}/{name}")
        return removed_bytes

    def verify(
        self, backup_id: str, removed: list[str] | None = None
    ) -> Iterator[errors.DataLoss | None]:
        """Read a backup: for each different piece None, or what is wrong with it.

        `BackupStore.keep` looks at names and sizes alone. So while a damaged piece is there, each
        backup that has the same bytes relies on it; without it, the next one writes them again.

        Args:
            backup_id: which.
            removed: damaged pieces are removed, and their paths come here; None: they stay.

        Raises:
            As `read`; and as what removes, where it does.
        """
        manifest = self.read(backup_id)
        for piece in dict.fromkeys(manifest.pieces):
            damage = self._find_damage(piece)
            yield damage
            # One bad read removes nothing.
            if removed is not None and damage is not None and self._find_damage(piece) is not None:
                path = _path_of(piece)
                if self._store.remove(path):
                    removed.append(path)
        if removed:
            self._store.settle()

    def _find_damage(self, piece: Piece) -> errors.DataLoss | None:
        try:
            self.get(piece)
        except errors.DataLoss as error:
            return error
        return None


class Puts:
    """Pieces on their way into a store. Belongs to one thread.

    Invariant: at most `writer_count` + 1 pieces are held in memory, the one that waits included.
    """

    def __init__(self, store: BackupStore, threads: Executor) -> None:
        """None is. `threads`: as many as the store is worth."""
        self._store, self._threads = store, threads
        self._under_way: set[Future[int]] = set()
        self._seen: set[Piece] = set()
        self.new_bytes = 0
        """Of pieces that were not there; final when all are put."""

    def put(self, raw: bytes) -> Piece:
        """See that a piece is there: which it is. Durable by `complete`.

        Raises:
            HourwheelError: an earlier one could not be put.
        """
        piece = Piece(digest_of(raw), len(raw))
        if piece in self._seen:
            return piece
        self._seen.add(piece)
        if self._store.writer_count == 1:
            self.new_bytes += self._put(piece, raw)
        else:
            while len(self._under_way) >= self._store.writer_count:
                self._take(futures.FIRST_COMPLETED)
            self._under_way.add(self._threads.submit(self._put, piece, raw))
        return piece

    def wait(self) -> None:
        """Until all are put. Raises as `put`."""
        self._take(futures.ALL_COMPLETED)

    def _take(self, when: str) -> None:
        done, self._under_way = futures.wait(self._under_way, return_when=when)
        self.new_bytes += sum(one.result() for one in done)

    def _put(self, piece: Piece, raw: bytes) -> int:
        """How many bytes are new."""
        path = _path_of(piece)
        if self._store.keep(path, piece.size_bytes):
            return 0
        self._store.write(path, raw)
        return piece.size_bytes


def _path_of(piece: Piece) -> str:
    return f"{_OBJECTS}/{piece.digest[:_FOLDER_DIGITS]}/{piece.digest}"
