"""The rule file, read; and what an expression of PromQL asks for."""

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from helm.monitoring.panels import Dashboard, render
from tests.tidy.tree import ROOT

ALERTS_FILE: Final[Path] = ROOT / "helm/hourwheel/files/alerts.yaml"
_NAME: Final = re.compile(
    r"\b(?:hourwheel[a-z_]*:[a-z0-9_:]+|(?:hourwheel|process|python)_\w+|up)\b"
)
_QUOTED: Final = re.compile(r'"[^"]*"')


def alerts() -> list[dict[str, Any]]:
    """All alerts, without recording rules."""
    groups = yaml.safe_load(ALERTS_FILE.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def metrics_of(expr: str) -> set[str]:
    """Names of the metrics that an expression reads."""
    return set(_NAME.findall(_QUOTED.sub("", expr)))


def recorded() -> set[str]:
    """Names that recording rules make."""
    groups = yaml.safe_load(ALERTS_FILE.read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def queries_of(dashboard: Dashboard) -> list[str]:
    """What the panels of a dashboard ask."""
    panels = json.loads(render(dashboard))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]
