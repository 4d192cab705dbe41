"""Replace a damaged file by a copy of it with the right bytes put in. Old or new, never in between.

    <path>          the damaged file
    <path>.repair   the copy: written, synced, checked; then it takes the name

What is left of a copy after a crash is removed at the next start.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hourwheel import errors
from storage.files.disk import Disk, File, join, parent_of

REPAIR_SUFFIX: Final = ".repair"
_CHUNK_BYTES: Final = 256 << 10
_SYNC_BYTES: Final = 8 << 20
"""Synced so often: one large sync at the end would keep the log's own waiting."""
_SECTOR_BYTES: Final = 4_096


class Patch(NamedTuple):
    """Right bytes, and where in the file they belong."""

    position: int
    raw: bytes


def rewrite(
    disk: Disk,
    path: str,
    patches: Sequence[Patch],
    *,
    check: Callable[[File], None] = lambda _: None,
    pause: Callable[[], None] = lambda: None,
    bytes_min: int | None = None,
    chunk_bytes: int = _CHUNK_BYTES,
    sync_bytes: int = _SYNC_BYTES,
) -> None:
    """Put `patches` in. No other thread writes to the file. Blocks: for a thread that may.

    Args:
        disk: where it is.
        path: the file. A reader that has it open goes on reading the old one.
        patches: where it should be longer than it is, too: what is missing comes as zeros.
        check: raises where the copy is not what it should be; it never gets the name then.
        pause: called between two pieces of work.
        bytes_min: the copy has so many at least; a file that is missing is made of zeros. None:
            as many as the file, which has to be there.
        chunk_bytes: copied between two calls of `pause`.
        sync_bytes: the copy is synced each time that so many are written.

    Raises:
        FileNotFoundError: the file, or the copy, was removed meanwhile.
        DiskFull: the old file is still there.
        FsyncFailed: stop the process.
    """
    copy = path + REPAIR_SUFFIX
    if disk.exists(copy):
        disk.remove(copy)
    is_missing = bytes_min is not None and not disk.exists(path)
    source = None if is_missing else disk.open(path)
    target = disk.open(copy, create=True)
    try:
        sizes = [bytes_min or 0, 0 if source is None else source.size()]
        size = max(sizes + [one.position + len(one.raw) for one in patches])
        patches = sorted(patches)
        synced = 0
        for at in range(0, size, chunk_bytes):
            end = min(at + chunk_bytes, size)
            target.pwrite((_patched(source, at, end, patches),), at)
            if end - synced >= sync_bytes:
                target.datasync()
                synced = end
            pause()
        errors.invariant(target.size() == size, "a copy is whole", file=path)
        target.datasync()
        check(target)
        disk.rename(copy, path)
    except (errors.DiskFull, errors.DataLoss):
        disk.remove(copy)
        raise
    finally:
        if source is not None:
            source.close()
        target.close()
    disk.sync_dir(parent_of(path))


def _patched(source: File | None, at: int, end: int, patches: Sequence[Patch]) -> bytearray:
    """The bytes [at, end) as they should be; zeros where there is no source."""
    chunk = bytearray() if source is None else bytearray(_read(source, at, end - at))
    chunk += bytes(end - at - len(chunk))
    for position, raw in patches:
        low, high = max(position, at), min(position + len(raw), end)
        if low < high:
            chunk[low - at : high - at] = raw[low - position : high - position]
    return chunk


def _read(file: File, at: int, length: int) -> bytes:
    """The bytes; zeros where the disk cannot read them: their checksums fail then."""
    try:
        return file.pread(length, at)
    except errors.DiskFailed:
        if length <= _SECTOR_BYTES:
            return bytes(length)
    firsts = range(at, at + length, _SECTOR_BYTES)
    return b"".join(_read(file, one, min(_SECTOR_BYTES, at + length - one)) for one in firsts)


def remove_leftovers(disk: Disk, directory: str) -> None:
    """Remove what rewrites have left that did not end."""
    left = [name for name in disk.list(directory) if name.endswith(REPAIR_SUFFIX)]
    for name in left:
        disk.remove(join(directory, name))
    if left:
        disk.sync_dir(directory)
