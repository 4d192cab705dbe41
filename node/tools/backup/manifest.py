"""What one backup consists of: a text file, written last, which names each piece by its SHA-256.

    line 1   a JSON object: the fields of `Manifest`; of each file its name, its size and its pieces
    line 2   SHA-256 of line 1 (without its end), in hexadecimal digits

A piece is up to `PIECE_BYTES` of one file. Behind its pieces a file has zeros: queues have their
full size from the beginning.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from hourwheel import errors
from hourwheel.types import DUE_MS_MAX, NodeId, Offset
from node.config.checks import NODE_ID
from node.shard.snapshot_files import (
    FILE_BYTES_MAX,
    FILE_COUNT_MAX,
    QUEUE_CHUNK_END,
    NamedSize,
    check_log_files,
    is_known_name,
)
from replication.raft.snapshot import SNAPSHOT_BYTES_MAX

FORMAT: Final = 2
_WITHOUT_CONTROL: Final = 1
"""The format before, which had no control state."""
PIECE_BYTES: Final = 8 << 20
MANIFEST_BYTES_MAX: Final = 256 << 20
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_CLUSTER: Final = re.compile("[0-9a-f]{32}")
_OFFSET_MAX: Final = (1 << 63) - 1


class Piece(NamedTuple):
    """Some bytes, and what they must be."""

    digest: str
    """SHA-256, in hexadecimal digits."""
    size_bytes: int


class BackupFile(NamedTuple):
    """A file of the shard."""

    name: str
    """In the shard's folder."""
    size_bytes: int
    pieces: tuple[Piece, ...]
    """Of its beginning; behind them it has zeros, if it is a queue's."""


@dataclass(frozen=True)
class Manifest:
    """One backup of one node's shard."""

    cluster_id: str
    """32 hexadecimal digits."""
    node_id: NodeId
    made_ms: int
    """When it was begun."""
    applied_offset: Offset
    """The views are those of the log below it."""
    views_ms: int
    """The latest store time below that offset: no moment before it can be restored by the views."""
    log_start_offset: Offset
    log_end_offset: Offset
    files: tuple[BackupFile, ...]
    control: tuple[Piece, ...] = ()
    """The control state, encoded; none: the node had none."""

    @property
    def pieces(self) -> Iterator[Piece]:
        """All that it needs, in order."""
        for file in self.files:
            yield from file.pieces
        yield from self.control

    @property
    def total_bytes(self) -> int:
        """Of all its pieces, shared ones too."""
        return sum(piece.size_bytes for piece in self.pieces)


def digest_of(raw: bytes) -> str:
    """The name of a piece with these bytes."""
    return hashlib.sha256(raw).hexdigest()


def pack_manifest(manifest: Manifest) -> bytes:
    """The bytes of its file."""
    fields = {"format": FORMAT, **asdict(manifest)}
    line = json.dumps(fields, separators=(",", ":")).encode()
    return line + b"\n" + digest_of(line).encode() + b"\n"


def unpack_manifest(raw: bytes, path: str) -> Manifest:
    """Read it, and believe nothing that no backup can say.

    Raises:
        CorruptFile: it is torn or altered.
        IncompatibleFormat: intact, and of a later version.
    """
    line, _, end = raw.partition(b"\n")
    if end != digest_of(line).encode() + b"\n":
        raise errors.CorruptFile(f"{path} is torn or was altered", file=path)
    try:
        fields = json.loads(line)
        version = fields.pop("format")
    except (ValueError, AttributeError, KeyError, RecursionError) as error:
        raise errors.CorruptFile(f"{path} is no manifest of a backup", file=path) from error
    if version not in {_WITHOUT_CONTROL, FORMAT} or type(version) is not int:
        raise errors.IncompatibleFormat(
            f"{path}: version {version!r} of backups is not known to this version of Hourwheel",
            file=path,
        )
    try:
        files = tuple(_file(*one) for one in fields.pop("files"))
        control = _pieces(fields.pop("control")) if version == FORMAT else ()
        manifest = Manifest(files=files, control=control, **fields)
        _check(manifest)
    except (KeyError, TypeError, ValueError, errors.PeerRefused) as error:
        raise errors.CorruptFile(f"{path}: {error}", file=path) from error
    return manifest


def _pieces(found: Any) -> tuple[Piece, ...]:
    if type(found) is not list:
        raise TypeError("no list of pieces")
    return tuple(Piece(*one) for one in found)


def _file(name: Any, size_bytes: Any, pieces: Any) -> BackupFile:
    return BackupFile(name, size_bytes, tuple(Piece(*one) for one in pieces))


def _check(manifest: Manifest) -> None:
    """Raises TypeError, ValueError; PeerRefused: the log has gaps."""
    if not _CLUSTER.fullmatch(manifest.cluster_id):
        raise ValueError(f"no id of a cluster: {manifest.cluster_id!r}")
    if not NODE_ID.fullmatch(manifest.node_id):
        raise ValueError("no id of a node")
    if not all(_is_number(one, DUE_MS_MAX) for one in (manifest.made_ms, manifest.views_ms)):
        raise ValueError("no moment")
    offsets = manifest.log_start_offset, manifest.applied_offset, manifest.log_end_offset
    if not all(_is_number(one, _OFFSET_MAX) for one in offsets) or list(offsets) != sorted(offsets):
        raise ValueError("the views are not of its log")
    if len(manifest.files) > FILE_COUNT_MAX:
        raise ValueError("too many files")
    for one in manifest.files:
        _check_file(one)
    _check_pieces("the control state", manifest.control)
    if sum(piece.size_bytes for piece in manifest.control) > SNAPSHOT_BYTES_MAX:
        raise ValueError("the control state is too long")
    files = {NamedSize(one.name, one.size_bytes) for one in manifest.files}
    if len({one.name for one in files}) != len(manifest.files):
        raise ValueError("a file is there twice")
    if check_log_files(sorted(files), manifest.log_start_offset) != manifest.log_end_offset:
        raise ValueError("the log does not end where it is said to")


def _check_file(one: BackupFile) -> None:
    if not is_known_name(one.name):
        raise ValueError(f"a file of the name {one.name!r}")
    _check_pieces(one.name, one.pieces)
    if not _is_number(one.size_bytes, FILE_BYTES_MAX):
        raise ValueError(f"{one.name}: of no possible size")
    there = sum(piece.size_bytes for piece in one.pieces)
    has_zeros = one.name.endswith(QUEUE_CHUNK_END)
    if there > one.size_bytes or (there < one.size_bytes and not has_zeros):
        raise ValueError(f"{one.name}: its pieces are not what it has")


def _check_pieces(name: str, pieces: tuple[Piece, ...]) -> None:
    if not all(_DIGEST.fullmatch(piece.digest) for piece in pieces):
        raise ValueError(f"{name}: no SHA-256")
    if not all(_is_number(piece.size_bytes, PIECE_BYTES, 1) for piece in pieces):
        raise ValueError(f"{name}: a piece of no possible size")


def _is_number(value: Any, most: int, least: int = 0) -> bool:
    return type(value) is int and least <= value <= most
