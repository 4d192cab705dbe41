"""docs/METRICS.md, made of the tables: of the nodes, and of the programs beside them."""

from collections.abc import Sequence
from typing import Final

from hourwheel.gateway import metrics as gateway
from hourwheel.webhooks import metrics as webhooks
from hourwheel.workers import metrics as workers
from node.metrics.family import Family
from node.metrics.table import FAMILIES

PROGRAMS: Final = (
    ("`hourwheel http` (guides/http.md)", gateway.FAMILIES),
    ("`hourwheel push` (guides/webhooks.md)", webhooks.FAMILIES),
    ("`hourwheel worker` (guides/workers.md)", workers.FAMILIES),
)
"""Of programs beside the nodes: who, and what they tell."""


def markdown() -> str:
    """docs/METRICS.md."""
    lines = [_PAGE + _HEAD, *_rows(FAMILIES), "", _PROGRAMS]
    for title, families in PROGRAMS:
        name, page = title.split(" (")
        link = f"[{page.removeprefix('guides/').removesuffix('.md)')}]({page}"
        lines += ["", f"### {name}", "", f"See {link}.", "", _HEAD, *_rows(families)]
    return "\n".join(lines) + "\n"


def _rows(families: Sequence[Family | workers.Family]) -> list[str]:
    return [
        f"| `{family.name}` | {family.kind} | {', '.join(family.labels)} | {family.text} |"
        for family in families
    ]


_HEAD: Final = """\
| name | kind | labels | meaning |
|---|---|---|---|"""
_PROGRAMS: Final = """\
## Gateways, webhooks and workers

These serve theirs where `--health HOST:PORT` says, at `/metrics`; without it they serve none."""
_PAGE: Final = """\
# Metrics

A node serves these on `node.metrics_listen` at `/metrics`, for Prometheus; also the usual
`process_*` and `python_gc_*`. Values are in base units; counters begin at 0 with the process.
A node alone does not serve the metrics of a cluster.

This page is made by `python -m node metrics --markdown`.

"""
