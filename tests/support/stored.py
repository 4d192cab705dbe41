"""What the data directory of a node that does not run holds, read in this process from copies.

Opening is recovery: it cuts, rebuilds and writes. So a directory is copied first, and what a test
looks at afterwards is as the node left it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from node.checkpoint import MANIFEST, ShardPlace
from node.config import NodeConfig
from node.embedded import config_for
from node.node_meta import NODE_META
from node.opening import Opened, open_shard
from node.wiring import shard_config
from storage import atomic_file
from storage.disk import RealDisk
from storage.file_header import Identity
from chaos.history import Stored
from chaos.stored import read_stored as stored_of_log
from tests.support.shard_views import check_views

SHARD: Final = "shard-0"
_VIEWS: Final = (MANIFEST, "queues", "sequences", "tombstones", "wheel")


class Digests(NamedTuple):
    """Two ways to the views of one directory; equal by I5."""

    restored: str
    """Of the checkpoint and the log behind it."""
    rebuilt: str
    """Of the whole log alone."""
    applied_offset: int


def config_of(directory: Path) -> NodeConfig:
    """The configuration by which copies of a node's directory are opened."""
    return config_for(directory)


@contextmanager
def opened_copy(directory: Path, *, without_views: bool = False) -> Iterator[Opened]:
    """A copy of a directory, open. `without_views`: nothing but its log is copied."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        left_out = shutil.ignore_patterns("reserve", *(_VIEWS if without_views else ()))
        shutil.copytree(directory, copy, ignore=left_out)
        disk = RealDisk(copy)
        cluster_id = atomic_file.read_any(disk, NODE_META).header.identity.cluster_id
        place = ShardPlace(disk, SHARD, Identity(cluster_id, 0))
        opened = open_shard(place, shard_config(config_of(copy)))
        yield opened
        opened.shard.log.close()


def digests_of(directory: Path) -> Digests:
    """Restore and rebuild, and hold the invariants of both."""
    found = []
    for without_views in (False, True):
        with opened_copy(directory, without_views=without_views) as opened:
            opened.shard.check()
            views = opened.shard.views
            found.append((views.digest(), views.applied_offset))
    (restored, offset), (rebuilt, _) = found
    return Digests(restored, rebuilt, offset)


def read_stored(directory: Path) -> Stored:
    """Read everything, from the log by the naive model, and hold the views against that."""
    with opened_copy(directory) as opened:
        log, views = opened.shard.log, opened.shard.views
        model, stored = stored_of_log(log, log.flushed_end_offset)
        check_views(views, model)
    return stored
