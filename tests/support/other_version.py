"""A node of another version of Hourwheel: the child's side.

python -m tests.support.other_version protocol --config ...
"""

import sys
from typing import Final

import node.cluster.data_plane
import node.shard.views
import replication.rules.follower
import replication.rules.master
from hourwheel import program
from node.process.command import main

FORMER_LEVEL: Final = node.shard.views.CONTROL_LEVEL - 1
LEVEL: Final = node.shard.views.FEATURE_LEVEL + 1
PROTOCOL: Final = replication.rules.master.PROTOCOL + 1


def know(level: int) -> None:
    """Of a version whose newest feature level this is."""
    for name, module in list(sys.modules.items()):
        if name.startswith("node.") and "FEATURE_LEVEL" in vars(module):
            vars(module)["FEATURE_LEVEL"] = level


def next_level() -> None:
    """Of a later version that knows one more kind of record."""
    know(LEVEL)


def former_level() -> None:
    """Of the version whose topics and groups were the log's own."""
    know(FORMER_LEVEL)


def next_protocol() -> None:
    """Of a version that talks to its peers in another way."""
    for module in (replication.rules.master, replication.rules.follower):
        vars(module)["PROTOCOL"] = PROTOCOL


VERSIONS: Final = {"level": next_level, "former": former_level, "protocol": next_protocol}

if __name__ == "__main__":
    VERSIONS[sys.argv.pop(1)]()
    program.run(lambda: main)
