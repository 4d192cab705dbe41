"""Room that a small file keeps for its own next version, so that a full disk cannot refuse it.

    epochs           the file
    epochs.spare     its spare: as much room again, and some more
    epochs.old       for the moment between two renames. Where there is no file yet: its next spare

A new version is written over the spare, which has its blocks already, and made durable. Then the
two change places, so what was the file is the next spare: nothing is ever given back to the file
system, where others would take it. A spare is never read; after a crash it holds anything.

    link    epochs       -> epochs.old
    rename  epochs.spare -> epochs         and sync the folder: from here on this is the version
    rename  epochs.old   -> epochs.spare   and sync the folder: before the spare is used again

File and spare are never the same file, whatever a power cut leaves of these steps: the spare's own
name is durable before, and the third begins when the second is. Where there is an old one and no
spare, the second was done and the third not, and the old one is the spare. The third is not needed
for the version to be durable: it is left to the next user of the spare, which may be later, when
none waits. The room is not left for later: the new version is cut to its length, which may free
blocks, and what was the file gets as many at once (`take_room`). That needs no sync.

This holds where a file that is written over keeps its blocks: ext4, XFS, tmpfs. Btrfs and ZFS write
elsewhere, and may find no room all the same.
"""

from contextlib import suppress
from typing import Final

from hourwheel import errors
from storage.files.disk import Disk, File, parent_of

SPARE_SUFFIX: Final = ".spare"
OLD_SUFFIX: Final = ".old"
_BLOCK_BYTES: Final = 4_096
_ZEROS: Final = bytes(64 * 1024)


def room_for(content_bytes: int) -> int:
    """What a spare should have for a file of so many bytes: a block more than that takes."""
    return (content_bytes // _BLOCK_BYTES + 2) * _BLOCK_BYTES


def give_room(file: File, size_bytes: int) -> None:
    """Make a file so long with zeros that take room; shorter where there is none. Not durable.

    Zeros, and not holes: what is written over later has its blocks.
    """
    piece_bytes = len(_ZEROS)
    while (size := file.size()) < size_bytes:
        try:
            file.pwrite((memoryview(_ZEROS)[: min(piece_bytes, size_bytes - size)],), size)
        except errors.DiskFull:
            if piece_bytes == _BLOCK_BYTES:
                return
            piece_bytes = _BLOCK_BYTES  # what is left may be less than a long piece


def open_spare(disk: Disk, path: str) -> File:
    """The spare of a file, whatever is in it; an empty one where there is none.

    Raises:
        DiskFull: there is none, and no room for its name.
        FsyncFailed: stop the process.
    """
    spare, old = path + SPARE_SUFFIX, path + OLD_SUFFIX
    has_spare = disk.exists(spare)
    if disk.exists(old) and not has_spare:
        disk.rename(old, spare)
    elif disk.exists(old) and disk.exists(path):
        disk.remove(old)
    file = disk.open(spare, create=True)
    if not has_spare:
        disk.sync_dir(parent_of(path))
    return file


def keep_spare(disk: Disk, path: str, size_bytes: int) -> None:
    """See that a file has a spare of so many bytes, as far as there is room.

    One that is not there yet will be made of its spare: it has another one, for then.
    """
    with suppress(errors.DiskFull):  # not even a name finds room
        _fill(open_spare(disk, path), size_bytes)
        if not disk.exists(path):
            take_room(disk, path, size_bytes)
            disk.sync_dir(parent_of(path))


def take_room(disk: Disk, path: str, size_bytes: int) -> None:
    """Give what will be the spare so many bytes, as far as there is room, before others take them.

    Comes right behind `exchange`, and costs no sync: `keep_spare` makes it the spare durably.
    """
    with suppress(errors.DiskFull):
        _fill(disk.open(path + OLD_SUFFIX, create=True), size_bytes)


def _fill(file: File, size_bytes: int) -> None:
    try:
        give_room(file, size_bytes)
    finally:
        file.close()


def exchange(disk: Disk, path: str) -> None:
    """Let the spare, which is durable, be the file; what was the file is the next spare.

    Raises:
        FsyncFailed, DiskFailed: stop the process.
    """
    spare, old = path + SPARE_SUFFIX, path + OLD_SUFFIX
    if disk.exists(path):
        with suppress(errors.DiskFull):  # no room for a name: then the room goes
            disk.link(path, old)
    disk.rename(spare, path)
    disk.sync_dir(parent_of(path))
