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

from hourwheel.record_batch import Kind, RecordBatch
from node.checkpoint import MANIFEST, ShardPlace
from node.config import NodeConfig
from node.embedded import config_for
from node.node_meta import NODE_META
from node.opening import Opened, open_shard
from node.views import Views
from node.wiring import shard_config
from storage import atomic_file
from storage.disk import RealDisk
from storage.file_header import Identity
from tests.support.history import Entry, Kept, Stored, serial_of
from tests.support.log_model import LogModel
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
    model, stored = LogModel(), Stored()
    with opened_copy(directory) as opened:
        log, views = opened.shard.log, opened.shard.views
        for batch in log.scan(0, log.flushed_end_offset):
            model.read(batch)
            if batch.header.kind == Kind.PUBLISH:
                _keep(batch, model, stored)
        model.check()
        check_views(views, model)
        for number, entries in model.queues.items():
            topic = _topic(views, number)
            stored.queued += [Entry(topic, one.sequence, one.attempt) for one in entries]
        for one in model.pending:
            stored.pending.append(Entry(_topic(views, one.topic_queue), one.sequence, one.attempt))
        stored.cancelled = set(model.cancelled)
    return stored


def _topic(views: Views, topic_queue: int) -> str:
    topic = views.catalog.find_topic_by_id(topic_queue >> 8)
    return f"(topic {topic_queue >> 8})" if topic is None else topic.name


def _keep(batch: RecordBatch, model: LogModel, stored: Stored) -> None:
    """Take down the new messages of a batch, by what is in their bodies."""
    base, blobs, at = batch.header.base_sequence, bytes(batch.blobs), 0
    lengths = zip(batch.meta_len.tolist(), batch.body_len.tolist(), strict=True)
    for sequence, (meta_len, body_len) in enumerate(lengths, base):
        end = at + meta_len + body_len
        if sequence in model.messages:
            serial = serial_of(blobs[at + meta_len : end])
            epoch = model.epoch_of(sequence)
            stored.messages[sequence] = Kept(serial, epoch, model.messages[sequence])
        at = end
