"""Programs that tests need and that requirements/ does not lock: a machine has them, or has not.

Compilers and runtimes of other languages, with which a client is made as docs/CLIENT.md says; and
what reads or makes the files that packaging/ is about. Helm is locked, but for one platform only.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TOOLS: Final = {"go": ("go",), "node": ("node", "npm")}
"""Languages, and the commands that each needs."""

PACKAGING: Final = {"systemd": ("systemd-analyze",), "openssl": ("openssl",)}
"""Parts of packaging/, and the commands that trying each out needs."""

HELM: Final = Path(sys.executable).parent / "helm"
"""Of the package helm-binary."""


MONITORING: Final = {
    "promtool": ("promtool",),
    "prometheus": ("prometheus", "prometheus-alertmanager"),
}
"""Parts of helm/monitoring and tests/ops, and the commands that trying each out needs."""


def monitoring_missing() -> dict[str, str]:
    """Parts that cannot be tried on this machine, and why."""
    return _missing(MONITORING)


def monitoring_required() -> list[str]:
    """Parts that must be tried: MONITORING_REQUIRED="promtool prometheus"."""
    return os.environ.get("MONITORING_REQUIRED", "").split()


def packaging_missing() -> dict[str, str]:
    """What is shipped and cannot be tried on this machine, and why."""
    helm = {} if HELM.exists() else {"helm": "helm-binary, which this platform has not"}
    return {**_missing(PACKAGING), **helm}


def packaging_required() -> list[str]:
    """What must be tried: PACKAGING_REQUIRED="systemd openssl helm"."""
    return os.environ.get("PACKAGING_REQUIRED", "").split()


def missing() -> dict[str, str]:
    """Languages that cannot be tried on this machine, and why."""
    return _missing(TOOLS)


def required() -> list[str]:
    """Languages that must be tried, as the environment says: CLIENTS_REQUIRED="go node"."""
    return os.environ.get("CLIENTS_REQUIRED", "").split()


def _missing(programs: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    why = {
        part: [tool for tool in tools if shutil.which(tool) is None]
        for part, tools in programs.items()
    }
    return {part: f"missing {' and '.join(tools)}" for part, tools in why.items() if tools}
