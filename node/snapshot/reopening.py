"""Start a shard that is one of several copies: what is damaged here is fetched from a peer."""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel import errors
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.snapshot_files import Marker
from node.snapshot.install import install_snapshot, set_aside_damaged


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
