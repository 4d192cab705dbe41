"""`inspect --digest`: the canonical digest of the views, restored and rebuilt, from copies.

Opening is recovery: it cuts, rebuilds and writes. So the directory is copied first, and the node
that owns it must not run. The two ways to the views of one log are equal, and so are those of all
nodes of a cluster up to one offset (I5).
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from hourwheel.types import FIRST_SHARD, Offset
from node.broker.settings import shard_config
from node.process.loopback_config import config_for
from node.shard.checkpoint import MANIFEST, ShardPlace
from node.shard.node_meta import CONTROL, NODE_META
from node.shard.recovery import WATERMARK, Opened, open_shard
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, Identity
from storage.log.flushed_mark import FlushedMark

SHARD: Final = "shard-0"
_VIEWS: Final = (MANIFEST, "keys", "queues", "sequences", "tombstones", "wheel")


class Digests(NamedTuple):
    """Two ways to the views of one directory; equal by I5."""

    restored: str
    """Of the checkpoint and the log behind it."""
    rebuilt: str
    """Of the whole log alone; empty where the log does not reach back to its beginning."""
    applied_offset: Offset


@contextmanager
def opened_copy(
    directory: Path, *, without_views: bool = False, until: Offset | None = None
) -> Iterator[Opened]:
    """A copy of a data directory, open.

    Args:
        directory: the data directory; its node does not run.
        without_views: copy nothing but the log.
        until: apply the log up to this offset only; None: all of it.

    Raises:
        HourwheelError: see node.shard.recovery.open_shard.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        left_out = shutil.ignore_patterns("reserve", CONTROL, *(_VIEWS if without_views else ()))
        shutil.copytree(directory, copy, ignore=left_out)
        disk = RealDisk(copy)
        cluster_id = atomic_file.read_any(disk, NODE_META).header.identity.cluster_id
        place = ShardPlace(disk, SHARD, Identity(cluster_id, FIRST_SHARD))
        config = shard_config(config_for(copy))
        if until is not None:
            _set_watermark(place, until)
            config = replace(config, has_peers=True)
        opened = open_shard(place, config)
        yield opened
        opened.shard.log.close()


def _set_watermark(place: ShardPlace, offset: Offset) -> None:
    """A replica applies what it knows to be committed: say that this is it."""
    path = place.under(WATERMARK)
    if place.disk.exists(path):
        place.disk.remove(path)
    mark = FlushedMark.open(place.disk, path, place.identity, FileType.HIGH_WATERMARK)
    mark.store(offset)
    mark.close()


def digests_of(directory: Path, until: Offset | None = None) -> Digests:
    """Restore and rebuild, and hold the invariants of both.

    Raises:
        HourwheelError: the directory cannot be opened, or an invariant does not hold.
    """
    found = []
    for without_views in (False, True):
        with opened_copy(directory, without_views=without_views, until=until) as opened:
            opened.shard.check()
            views = opened.shard.views
            found.append((views.digest(), views.applied_offset))
            if opened.shard.log.start_offset > 0:
                break
    restored, offset = found[0]
    return Digests(restored, found[1][0] if found[1:] else "", offset)
