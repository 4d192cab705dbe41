"""The configuration of a node for one program: a data directory, and free ports of the loopback."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from node.config.model import NodeConfig

_ON_FREE_PORTS: Final = {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0"}


def config_for(directory: Path, values: Mapping[str, Any] | None = None) -> NodeConfig:
    """A configuration for `directory` on free ports, where `values` (as in TOML) does not say more.

    There is no console, either, unless they say where.

    Raises:
        ConfigError: see `NodeConfig.of`.
    """
    sections = dict(values or {})
    sections["node"] = {
        **_ON_FREE_PORTS,
        "data_directory": directory,
        **sections.get("node", {}),
    }
    sections["console"] = {"listen": "", **sections.get("console", {})}
    return NodeConfig.of(sections)
