"""At the start, before a shard is opened: a snapshot takes its place, or damage is put aside.

How one folder takes the place of another. Each step is durable before the next; after a power cut
in between, the next start goes on where this one stopped.

    step                                                  after it there are
    0  the new folder is complete: marker                 shard-0   .incoming
    1  the node's own small files are copied into it      shard-0   .incoming
    2  shard-0 -> .replaced (or .damaged-<n>)             .incoming  .replaced
    3  .incoming -> shard-0                               shard-0 with a marker  .replaced
    4  the marker is removed                              shard-0   .replaced
    5  .replaced is removed                               shard-0

Without `shard-0` a complete `.incoming` has been through step 1: nothing but step 2 takes `shard-0`
away. So the highest epoch that this node has seen (`epoch_seen`) is never lost and never goes back.

A snapshot whose log ends before this node's own is not installed, unless it was fetched to replace
just that log: what the node has acknowledged meanwhile must not vanish. And where a log is lost all
the same, to damage, `lost_end` keeps the node from leading until its log is as long again.

A snapshot that is not installed is removed; the master gives another one where it is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, Offset
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.snapshot_files import (
    DAMAGED,
    INCOMING,
    LOST_END,
    MARKER,
    OUTGOING,
    OWN_FILES,
    REPLACED,
    Marker,
    digest_of,
    end_of_log,
    find_beside,
    find_marker,
    incoming,
    read_lost_end,
    remove_tree,
    write_lost_end,
    write_marker,
)
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import Identity

DAMAGED_COUNT_MAX: Final = 2


def install_snapshot(disk: Disk, directory: str, identity: Identity) -> Marker | None:
    """Put a complete snapshot in the place of the shard; tidy up what was interrupted.

    To be called at each start, before anything of the shard is opened.

    Args:
        disk: whose root is the data directory.
        directory: the shard's folder in it.
        identity: the shard's.

    Returns:
        What was installed by this call or by one that was interrupted, or None.

    Raises:
        ForeignDirectory, IncompatibleFormat: a file is not ours to touch.
        FsyncFailed, DiskFailed: stop the process.
    """
    place = ShardPlace(disk, directory, identity)
    new, old = incoming(place), place.directory + REPLACED
    for _, path in find_beside(place, OUTGOING):
        remove_tree(disk, path)
    marker = find_marker(new) if disk.exists(new.directory) else None
    if disk.exists(directory):
        remove_tree(disk, old)
        if marker is not None and _is_worth_it(place, marker):
            _swap(place, old, _lost_end(place, marker))
        remove_tree(disk, new.directory)
    elif marker is not None:
        _rename(disk, new.directory, directory)
    else:
        remove_tree(disk, new.directory)
        if disk.exists(old):
            _rename(disk, old, directory)
    installed = _end_swap(place)
    remove_tree(disk, old)
    disk.sync_dir("")
    return installed


def set_aside_damaged(disk: Disk, directory: str, identity: Identity) -> str:
    """Put a shard that cannot be opened aside, and an empty one in its place.

    For a node that has peers to be filled from. At most two are kept; the oldest goes.

    Args:
        disk: whose root is the data directory.
        directory: the shard's folder in it.
        identity: the shard's.

    Returns:
        The folder in which the damaged files are now.

    Raises:
        DiskFull: nothing has changed.
        FsyncFailed, DiskFailed: stop the process.
    """
    place = ShardPlace(disk, directory, identity)
    new = incoming(place)
    remove_tree(disk, new.directory)
    disk.make_dir(new.directory)
    damaged = find_beside(place, DAMAGED)
    number = damaged[-1][0] + 1 if damaged else 1
    aside = f"{directory}{DAMAGED}{number}"
    end = end_of_log(place)
    _copy_own_files(place, max(end, _known_lost_end(place)))
    write_marker(new, Marker(FIRST_OFFSET, FIRST_OFFSET, FIRST_OFFSET, end, 0, digest_of(())))
    _rename(disk, directory, aside)
    _rename(disk, new.directory, directory)
    _end_swap(place)
    for _, path in damaged[: max(0, len(damaged) + 1 - DAMAGED_COUNT_MAX)]:
        remove_tree(disk, path)
    disk.sync_dir("")
    return aside


def _is_worth_it(place: ShardPlace, marker: Marker) -> bool:
    """Whether the shard has nothing that the snapshot has not, but for what it is to replace.

    One without files is the empty folder of a setting aside that was interrupted before it changed
    anything: opening the shard will tell again whether it is damaged.
    """
    if marker.file_count == 0:
        return False
    return end_of_log(place) <= max(marker.log_end_offset, marker.replaced_end_offset)


def _lost_end(place: ShardPlace, marker: Marker) -> Offset:
    end = end_of_log(place)
    return max(end if end > marker.log_end_offset else FIRST_OFFSET, _known_lost_end(place))


def _known_lost_end(place: ShardPlace) -> Offset:
    try:
        return read_lost_end(place)
    except errors.CorruptFile:
        return end_of_log(place)


def _swap(place: ShardPlace, aside: str, lost_end: Offset) -> None:
    """Steps 1 to 3. Without room for the first nothing is changed."""
    try:
        _copy_own_files(place, lost_end)
    except errors.DiskFull:
        return
    _rename(place.disk, place.directory, aside)
    _rename(place.disk, place.directory + INCOMING, place.directory)


def _copy_own_files(place: ShardPlace, lost_end: Offset) -> None:
    new = incoming(place)
    for name in OWN_FILES:
        if name != LOST_END and place.disk.exists(place.under(name)):
            _copy(place.disk, place.under(name), new.under(name))
    if lost_end:
        write_lost_end(new, lost_end)


def _copy(disk: Disk, old: str, new: str) -> None:
    """Copy a small file as it is, durably and whole or not at all."""
    source = disk.open(old)
    try:
        raw = source.pread(source.size(), 0)
    finally:
        source.close()
    tmp = new + atomic_file.TMP_SUFFIX
    file = disk.open(tmp, create=True)
    try:
        file.truncate(0)
        file.pwrite((raw,), 0)
        file.datasync()
    finally:
        file.close()
    disk.rename(tmp, new)
    disk.sync_dir(new.rpartition("/")[0])


def _rename(disk: Disk, old: str, new: str) -> None:
    disk.rename(old, new)
    disk.sync_dir("")


def _end_swap(place: ShardPlace) -> Marker | None:
    """Step 4. What was installed, if something was."""
    path = place.under(MARKER)
    if not place.disk.exists(path):
        return None
    marker = find_marker(place)
    place.disk.remove(path)
    place.disk.sync_dir(place.directory)
    return marker if marker is not None and marker.file_count else None


@dataclass(frozen=True)
class Reopened:
    """An open shard, and what was done to open it."""

    opened: Opened
    installed: Marker | None
    """A snapshot took the place of what was there."""
    set_aside: str
    """Folder that damaged files are in now; empty for none."""
    damage: errors.DataLoss | None
    """What was found in them."""


def reopen_shard(
    place: ShardPlace,
    config: ShardConfig,
    damage: errors.DataLoss | None = None,
    make_room: Callable[[], bool] | None = None,
) -> Reopened:
    """Install a snapshot that waits; open the shard, or an empty one in place of a damaged one.

    For a node that has peers: `config.has_peers`. Takes as long as `open_shard`.

    Args:
        place: of the shard.
        config: how to open it.
        damage: what the node's former life has found where opening would not look; None: nothing.
        make_room: see `open_shard`.

    Raises:
        IncompatibleFormat, ForeignDirectory: see storage.files.file_header.
        DiskFull, FsyncFailed, DiskFailed: see storage.files.disk.
        CorruptFile, CorruptLog: also the empty one cannot be opened.
    """
    errors.invariant(config.has_peers, "only a node with peers can lose what it has")
    disk, directory, identity = place.disk, place.directory, place.identity
    installed = install_snapshot(disk, directory, identity)
    if damage is None or installed is not None:
        try:
            return Reopened(open_shard(place, config, make_room), installed, "", None)
        except errors.DataLoss as found:
            damage = found
    aside = set_aside_damaged(disk, directory, identity)
    return Reopened(open_shard(place, config, make_room), None, aside, damage)
