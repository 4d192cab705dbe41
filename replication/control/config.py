"""What a control process gets when it starts: options of its command, or a dataclass.

The shared secret is never an option (anybody sees a process's options): it comes from a file.
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hourwheel import errors
from hourwheel.event_loops import KINDS
from hourwheel.types import NodeId
from replication.raft.raft_node import RaftTimings
from replication.raft.security import (
    Security,
    split_address,
    with_certificates,
    with_secret,
)

NODE_ID_CHARS_MAX = 127
EXIT_CANNOT_START = 2
"""Exit code of the process."""
EXIT_NO_ROOM = 74
"""Exit code where the disk is too full to begin."""
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ControlConfig:
    """All of it."""

    node_id: NodeId
    cluster_id: str
    """32 hexadecimal digits."""
    directory: str
    """Where the journal lies; of this process alone."""
    socket_path: str
    """Of the Unix-domain socket for the broker, in a folder that only its user may enter."""
    listen: str
    """host:port for the other control processes."""
    peers: dict[NodeId, str]
    """Node id -> host:port of the other control processes. Of generation 0; later ones say it
    themselves."""
    address: str = ""
    """host:port at which peers reach this process; empty: `listen`."""
    joins: bool = False
    """It waits, before it votes for the first time, to hear of a cluster that exists."""
    secret_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    authority_file: str = ""
    min_in_sync: int = 2
    shard_count: int = 1
    broker_timeout_ms: float = 1_000.0
    """A broker that is silent for so long is reported dead."""
    report_interval_ms: float = 200.0
    report_timeout_ms: float = 1_000.0
    """A master of which nothing was heard for so long is deposed."""
    linger_ms: float = 30_000.0
    """How long the process waits for a new broker."""
    farewell_ms: float = 500.0
    """How long it still works when its parent has died: others have to hear of it."""
    raft_s_min: float = 0.5
    raft_s_max: float = 1.0
    compaction_entries: int = 4_000
    allow_faults: bool = False
    """Tests only: the broker may ask to be partitioned."""
    event_loop: str = "auto"
    """See hourwheel/event_loops.py."""
    log_level: str = "info"
    log_format: str = "auto"
    """`json`, `console`, or `auto`: console on a terminal, else json."""
    watch_parent: bool = False
    """Standard input is a pipe of the parent: its end is the parent's."""

    @property
    def node_ids(self) -> list[NodeId]:
        """All nodes of the cluster, sorted."""
        return sorted({self.node_id, *self.peers})

    @property
    def timings(self) -> RaftTimings:
        """For Raft."""
        return RaftTimings(
            raft_s_min=self.raft_s_min,
            raft_s_max=self.raft_s_max,
            cut_s=min(0.15, self.raft_s_min * 0.3),
            append_s=min(0.1, self.raft_s_min / 5),
            tick_s=min(0.2, self.raft_s_min * 0.4),
            compaction_entries=self.compaction_entries,
        )

    def check(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ConfigError: naming what.
        """
        for node_id in self.node_ids:
            if not _NODE_ID.fullmatch(node_id) or len(node_id) > NODE_ID_CHARS_MAX:
                raise errors.ConfigError(
                    f"{node_id!r} is no node id: letters, digits, '.', '_', '-'"
                )
        if self.node_id in self.peers:
            raise errors.ConfigError(f"{self.node_id} is a peer of itself")
        if not re.fullmatch(r"[0-9a-f]{32}", self.cluster_id):
            raise errors.ConfigError("a cluster id has 32 hexadecimal digits")
        if not 1 <= self.min_in_sync <= len(self.node_ids):
            raise errors.ConfigError("min_in_sync is between 1 and the number of nodes")
        for address in (self.listen, *self.peers.values()):
            split_address(address)
        if self.event_loop not in KINDS:
            raise errors.ConfigError(f"event_loop is one of {', '.join(KINDS)}")
        if not 0 < self.raft_s_min < self.raft_s_max:
            raise errors.ConfigError("raft_s_min is less than raft_s_max")

    def security(self, addresses: Iterable[str]) -> Security:
        """How peers are trusted; `addresses` are theirs.

        Raises:
            ConfigError: neither certificates nor a secret, or a secret beyond loopback.
        """
        if self.certificate_file or self.key_file or self.authority_file:
            return with_certificates(
                Path(self.certificate_file),
                Path(self.key_file),
                Path(self.authority_file),
                self.node_id,
            )
        if not self.secret_file:
            raise errors.ConfigError("control processes need certificates, or a secret_file")
        try:
            secret = Path(self.secret_file).read_bytes().strip()
        except OSError as error:
            raise errors.ConfigError(f"{self.secret_file} cannot be read: {error}") from error
        return with_secret(secret, [self.listen, *addresses])

    def arguments(self) -> list[str]:
        """The options of a command that starts a process with this configuration."""
        return ["--config", json.dumps(asdict(self), sort_keys=True)]


def parse(arguments: Sequence[str]) -> ControlConfig:
    """The configuration of a command's options.

    Raises:
        ConfigError: unknown or missing keys, wrong types, values that do not fit together.
    """
    parser = argparse.ArgumentParser(prog="python -m replication.control")
    parser.add_argument("--config", required=True, help="JSON object, or @file: see ControlConfig")
    text = parser.parse_args(arguments).config
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    try:
        values: Any = json.loads(text)
        config = ControlConfig(**values)
    except (ValueError, TypeError) as error:
        raise errors.ConfigError(f"the control process's configuration: {error}") from error
    for name, annotated in ControlConfig.__annotations__.items():
        value = getattr(config, name)
        kind = getattr(annotated, "__supertype__", annotated)  # what a NewType is at run time
        types: Any = (int, float) if kind is float else getattr(kind, "__origin__", kind)
        if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
            raise errors.ConfigError(f"{name} is of the wrong type: {value!r}")
    config.check()
    return config
