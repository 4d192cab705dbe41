"""What a snapshot consists of, on the wire and on disk: names, folders, and when it is complete.

Beside a shard's folder there may be, named after it:

    .incoming       a snapshot that is being received; complete with the file `complete` in it
    .outgoing-<n>   second names of the files of a snapshot that is being given
    .replaced       what the shard's folder was before a snapshot took its place
    .damaged-<n>    what it was before it was found damaged

`complete` is an atomic file (storage.files.atomic_file) of type SN; its payload:

    byte  size  field
       0     8  applied_offset       u64  the views are those of the log below it
       8     8  log_start_offset     u64
      16     8  log_end_offset       u64  all below it was committed
      24     8  replaced_end_offset  u64  end of the log that the snapshot was fetched to replace
      32     4  file_count           u32
      36     4  zero
      40    32  digest               SHA-256 of the files' names and sizes

Some small files are the node's own, and are in no snapshot: they go over from folder to folder.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, Offset
from node.shard.checkpoint import ShardPlace
from storage.files import atomic_file
from storage.files.disk import Disk, join
from storage.files.file_header import FILE_HEADER_BYTES, FileType, pack_file_header
from storage.log.flushed_mark import read_mark
from storage.log.segment import find_start_offset

INCOMING: Final = ".incoming"
OUTGOING: Final = ".outgoing-"
REPLACED: Final = ".replaced"
DAMAGED: Final = ".damaged-"
MARKER: Final = "complete"
LOST_END: Final = "lost_end"
FLUSHED_MARK: Final = "flushed.mark"
OWN_FILES: Final = ("epoch_seen", "high_watermark", LOST_END)
"""A node's own: what it has seen, has heard, and has lost."""
PIECE_BYTES_MAX: Final = 1 << 20
FILE_COUNT_MAX: Final = 200_000
"""Of a snapshot: their names, 50 bytes each, must fit one message."""
FILE_BYTES_MAX: Final = 1 << 40
EPOCH_COUNT_MAX: Final = 100_000
QUEUE_CHUNK_END: Final = ".cq"
_NAMES: Final = re.compile(
    r"checkpoint|epochs"
    r"|log/[0-9]{20}\.(log|index)"
    r"|queues/[0-9a-f]{8}/[0-9]{12}\.cq"
    r"|keys/[0-9]{10}\.keys"
    r"|sequences/([0-9]{12}\.seq|tail)"
    r"|tombstones/[0-9]{10}\.tomb"
    r"|wheel/([0-9]{10}-[0-9]{10}\.run|[0-9]{10}\.dlog)"
)
_FOLDERS: Final = ("keys", "log", "queues", "sequences", "tombstones", "wheel")
_NOT_COUNTED: Final = frozenset({*_FOLDERS, *OWN_FILES, MARKER})
_MARKER: Final = Struct("<QQQQI4x32s")
_LOST_END: Final = Struct("<Q")


class NamedSize(NamedTuple):
    """A file of a snapshot."""

    name: str
    """Relative to the shard's folder."""
    size_bytes: int


class Marker(NamedTuple):
    """What says that a snapshot is complete; see the top of this file."""

    applied_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    replaced_end_offset: Offset
    file_count: int
    digest: bytes


def is_known_name(name: str) -> bool:
    """Whether a snapshot may have a file of this name."""
    return _NAMES.fullmatch(name) is not None


def digest_of(files: Iterable[NamedSize]) -> bytes:
    """32 bytes that tell lists of files apart, in whatever order they are."""
    lines = [f"{name}\0{size}\n" for name, size in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).digest()


def incoming(place: ShardPlace) -> ShardPlace:
    """Where a snapshot for this shard is received."""
    return ShardPlace(place.disk, place.directory + INCOMING, place.identity)


def find_files(place: ShardPlace) -> list[NamedSize]:
    """All files of a received snapshot, but for the marker and the node's own."""
    disk, found = place.disk, []
    folders = ["", *_FOLDERS]
    if disk.exists(place.under("queues")):
        folders += [f"queues/{name}" for name in disk.list(place.under("queues"))]
    for folder in folders:
        path = join(place.directory, folder)
        if not disk.exists(path):
            continue
        for name in [] if folder == "queues" else disk.list(path):
            if folder or not (name in _NOT_COUNTED or name.endswith(atomic_file.BESIDE)):
                full = join(folder, name)
                found.append(NamedSize(full, _size_of(disk, place.under(full))))
    return found


def _size_of(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def write_marker(place: ShardPlace, marker: Marker) -> None:
    """Say that the snapshot in this folder is complete. All else must be durable.

    Raises:
        DiskFull: there is no marker. FsyncFailed: stop the process.
    """
    header = pack_file_header(FileType.SNAPSHOT, place.identity)
    atomic_file.write(place.disk, place.under(MARKER), header, _MARKER.pack(*marker))


def find_marker(place: ShardPlace) -> Marker | None:
    """The marker; None where the snapshot is not complete, or is not what the marker says.

    Raises:
        ForeignDirectory, IncompatibleFormat: the folder is not ours to touch.
    """
    path = place.under(MARKER)
    if not place.disk.exists(path):
        return None
    try:
        payload = atomic_file.read(place.disk, path, FileType.SNAPSHOT, place.identity).payload
        marker = unpack_marker(payload, path)
    except errors.CorruptFile:
        return None
    return marker if digest_of(find_files(place)) == marker.digest else None


def unpack_marker(payload: bytes, path: str) -> Marker:
    """The content of a marker's file. Raises CorruptFile; `path` is for the message."""
    if len(payload) != _MARKER.size:
        raise errors.CorruptFile(f"{path}: {len(payload)} bytes of a marker", file=path)
    return Marker._make(_MARKER.unpack(payload))


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and all that is in it, if it is there. Durable after `sync_dir` above it."""
    if not disk.exists(path):
        return
    for name in disk.list(path):
        inner = join(path, name)
        try:
            disk.remove(inner)
        except errors.DiskFailed:  # a folder that is not empty
            remove_tree(disk, inner)
    disk.remove(path)


def find_beside(place: ShardPlace, suffix: str) -> list[tuple[int, str]]:
    """(number, path) of the folders named after the shard's with `suffix` and a number."""
    start = place.directory + suffix
    found = []
    for name in place.disk.list(""):
        digits = name.removeprefix(start)
        if name != digits and digits.isascii() and digits.isdigit():
            found.append((int(digits), name))
    return sorted(found)


def end_of_log(place: ShardPlace) -> Offset:
    """Where the log in this folder ends at the most: by its marks and by the size of its files.

    Raises:
        ForeignDirectory, IncompatibleFormat: a mark is not ours to read.
    """
    disk, identity = place.disk, place.identity
    ends = [
        read_mark(disk, place.under(FLUSHED_MARK), identity, FileType.FLUSHED_MARK),
        read_mark(disk, place.under("high_watermark"), identity, FileType.HIGH_WATERMARK),
    ]
    path = place.under("log")
    for name in disk.list(path) if disk.exists(path) else []:
        start = find_start_offset(name)
        if start is not None:
            size = max(0, _size_of(disk, join(path, name)) - FILE_HEADER_BYTES)
            ends.append(Offset(start + size))
    return max(ends)


def read_lost_end(place: ShardPlace) -> Offset:
    """Up to where this node once had a log that it has lost; 0 for nothing lost.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: it cannot be read.
    """
    path = place.under(LOST_END)
    if not place.disk.exists(path):
        return FIRST_OFFSET
    payload = atomic_file.read(place.disk, path, FileType.LOST_END, place.identity).payload
    return unpack_lost_end(payload, path)


def unpack_lost_end(payload: bytes, path: str) -> Offset:
    """The content of `lost_end`. Raises CorruptFile; `path` is for the message."""
    if len(payload) != _LOST_END.size:
        raise errors.CorruptFile(f"{path}: {len(payload)} bytes of an offset", file=path)
    return Offset(_LOST_END.unpack(payload)[0])


def write_lost_end(place: ShardPlace, offset: Offset) -> None:
    """Note durably that a log up to `offset` is lost. Raises DiskFull, FsyncFailed."""
    header = pack_file_header(FileType.LOST_END, place.identity)
    atomic_file.write(place.disk, place.under(LOST_END), header, _LOST_END.pack(offset))


def settle_lost_end(place: ShardPlace, log_end_offset: Offset) -> Offset:
    """`read_lost_end`, or 0 from when on the log reaches that far again.

    What was acknowledged of a lost log lies in every later master's, at the same offsets: a node
    whose log is that long again has all of it.
    """
    lost_end = read_lost_end(place)
    if lost_end == 0 or log_end_offset < lost_end:
        return lost_end
    place.disk.remove(place.under(LOST_END))
    place.disk.sync_dir(place.directory)
    return FIRST_OFFSET


def check_log_files(files: Sequence[NamedSize], start_offset: Offset) -> Offset:
    """Demand that the segments among `files` follow one another; where the log ends.

    Raises:
        PeerRefused: they do not begin at `start_offset`, or there is a gap.
    """
    end, starts = start_offset, set()
    for name, size in sorted(files):
        start = find_start_offset(name.removeprefix("log/"))
        if start is None or not name.startswith("log/"):
            continue
        if start != end or size < FILE_HEADER_BYTES:
            raise errors.PeerRefused(f"{name} of {size} bytes, where the log ends at {end}")
        starts.add(start)
        end = Offset(start + size - FILE_HEADER_BYTES)
    indexes = [one.name for one in files if one.name.endswith(".index")]
    if any(find_start_offset(name[4:], ".index") not in starts for name in indexes):
        raise errors.PeerRefused("an index without its segment")
    if not starts and start_offset:
        raise errors.PeerRefused(f"a log from {start_offset} on, and nothing of it")
    return end
