"""What the data directory of a node that does not run holds, read in this process from copies.

Opening is recovery: it cuts, rebuilds and writes. So a directory is copied first, and what a test
looks at afterwards is as the node left it.
"""

from pathlib import Path

from chaos.history import Stored
from chaos.stored import read_stored as stored_of_log
from node.config.model import NodeConfig
from node.process.loopback_config import config_for
from node.tools.inspect.digest import SHARD, Digests, digests_of, opened_copy
from tests.support.shard_views import check_views

__all__ = ["SHARD", "Digests", "config_of", "digests_of", "opened_copy", "read_stored"]


def config_of(directory: Path) -> NodeConfig:
    """The configuration by which copies of a node's directory are opened."""
    return config_for(directory)


def read_stored(directory: Path) -> Stored:
    """Read everything, from the log by the naive model, and hold the views against that."""
    with opened_copy(directory) as opened:
        log, views = opened.shard.log, opened.shard.views
        model, stored = stored_of_log(log, log.flushed_end_offset)
        check_views(views, model)
    return stored
