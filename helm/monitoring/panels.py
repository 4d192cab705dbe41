"""Panels and dashboards as Grafana reads them (schema 39, Grafana 10 and newer). Pure.

A dashboard is rows of panels; places and ids follow from their order, so that none overlap. Each
query is asked of `$datasource`, and of the clusters and nodes that the page's variables choose.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parents[1] / "hourwheel" / "files" / "dashboards"
CHOSEN: Final = 'namespace=~"$namespace",job=~"$job",instance=~"$instance"'
"""Labels that the variables choose; `%s` in a query stands for them."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_OF_PROGRAMS: Final = "hourwheel_(http_connections|push_subscriptions|worker_processes)"
"""Metrics of which each program beside the nodes has one."""
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_TAG: Final = "hourwheel"


class Query(NamedTuple):
    """One question to Prometheus."""

    expr: str
    legend: str = ""
    """With labels in double braces; empty: all labels."""


class Panel(NamedTuple):
    """One panel."""

    title: str
    unit: str
    """As Grafana names it: s, bytes, ops, percentunit, short, none ..."""
    queries: Sequence[Query]
    text: str
    """What it shows, and what is good."""
    kind: str = "timeseries"
    width: int = 8
    is_bad_above: float | None = None
    """From here on it is red."""
    is_stacked: bool = False


class Row(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


class Dashboard(NamedTuple):
    """One page."""

    name: str
    """Of the file, and at the end of the uid."""
    title: str
    text: str
    rows: Sequence[Row]
    span: str = "6h"
    """How far back it looks at first."""
    is_of_programs: bool = False
    """Of those beside the nodes: gateways, webhooks, workers."""


def ask(expr: str, legend: str = "") -> Query:
    """A query; `%s` in it is what the variables choose."""
    return Query(expr.replace("%s", CHOSEN), legend)


def by_instance(metric: str, function: str = "") -> Query:
    """One line for each node; `function` such as "rate" for counters."""
    if function:
        return ask(
            f"sum by (instance) ({function}({metric}{{%s}}[$__rate_interval]))", "{{instance}}"
        )
    return ask(f"max by (instance) ({metric}{{%s}})", "{{instance}}")


def quantiles(metric: str, by: str = "") -> list[Query]:
    """The median, the 99th and the 99.9th percentile of a histogram."""
    also = f", {by}" if by else ""
    prefix = f"{{{{{by}}}}} " if by else ""
    rate = f"sum by (le{also}) (rate({metric}_bucket{{%s}}[$__rate_interval]))"
    return [
        ask(f"histogram_quantile({share}, {rate})", f"{prefix}{name}")
        for share, name in (("0.5", "p50"), ("0.99", "p99"), ("0.999", "p99.9"))
    ]


def render(dashboard: Dashboard) -> str:
    """The file's text."""
    return json.dumps(_dashboard(dashboard), indent=1, ensure_ascii=True) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"hourwheel-{dashboard.name}",
        "title": f"Hourwheel / {dashboard.title}",
        "description": dashboard.text,
        "tags": [_TAG],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": f"now-{dashboard.span}", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Hourwheel",
                "tags": [_TAG],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {"list": [_takeovers()]},
        "templating": {"list": _variables(dashboard)},
        "panels": list(_placed(dashboard.rows)),
    }


def _takeovers() -> dict[str, Any]:
    """A mark on each panel where the master has changed."""
    return {
        "name": "Changes of master",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "orange",
        "expr": ask("increase(hourwheel_takeovers_total{%s}[1m]) > 0").expr,
        "step": "1m",
        "titleFormat": "{{instance}} is the master",
    }


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    metric, chosen, found = "hourwheel_build_info", "", [source]
    if dashboard.is_of_programs:
        metric, chosen = "", f'__name__=~"{_OF_PROGRAMS}"'
    for name in ("namespace", "job", "instance"):
        found.append(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": _SOURCE,
                "query": {
                    "query": f"label_values({metric}{{{chosen}}}, {name})",
                    "refId": name,
                },
                "definition": f"label_values({metric}{{{chosen}}}, {name})",
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",  # also where the label is missing
                "current": {"text": ["All"], "value": ["$__all"]},
                "hide": 0,
            }
        )
        chosen += f'{"," if chosen else ""}{name}=~"${name}"'
    return found


def _placed(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    number, x, y = 1, 0, 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        number, x, y = number + 1, 0, y + 1
        height = 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            height = 4 if panel.kind == "stat" else _HEIGHT
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            number, x = number + 1, x + panel.width
        y += height


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": [
            _target(query, ordinal, panel.kind) for ordinal, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _target(query: Query, ordinal: int, kind: str) -> dict[str, Any]:
    is_heatmap = kind == "heatmap"
    return {
        "refId": chr(ord("A") + ordinal),
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": "{{le}}" if is_heatmap else query.legend or "__auto",
        "format": "heatmap" if is_heatmap else "table" if kind == "table" else "time_series",
        "instant": kind in ("stat", "table", "bargauge"),
        "range": kind not in ("stat", "table", "bargauge"),
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.is_bad_above is not None:
        steps.append({"color": "red", "value": panel.is_bad_above})
    field: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        field["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.is_stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.is_bad_above is None else "line"},
        }
    if panel.unit in ("dateTimeFromNow", "none"):
        del field["min"]
    return field


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "textMode": "auto",
    },
    "bargauge": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "gradient",
        "orientation": "horizontal",
        "showUnfilled": True,
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "yAxis": {"unit": "s", "axisPlacement": "left"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "legend": {"show": True},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}
