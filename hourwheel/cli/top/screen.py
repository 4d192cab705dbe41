"""A reading for people: tables that follow the width of the terminal."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hourwheel.cli.cluster import format_bytes_count
from hourwheel.cli.output import format_duration, format_instant
from hourwheel.cli.top.reading import DueReading, NodeReading, Reading

_UNKNOWN: Final = "-"
_BAR: Final = 30
"""So many characters are the longest bar."""
_MS: Final = 1_000


def draw(reading: Reading) -> RenderableType:
    """All of a reading, what matters most first: a low terminal cuts off its end."""
    parts: list[RenderableType] = [_head(reading)]
    if reading.trouble:
        parts.append(Text(reading.trouble, style="bold red"))
    parts += [_node_table(reading), _flow(reading)]
    if reading.due:
        parts.append(_due_table(reading.due))
    if reading.group_count is not None:
        parts.append(_group_table(reading))
    return Group(*parts)


def _head(reading: Reading) -> Text:
    master = f"master {reading.master}" if reading.master else "NO MASTER"
    when = format_instant(reading.clock_ms) if reading.clock_ms else ""
    head = Text("hourwheel top", style="bold")
    head.append(
        f"  {reading.cluster_id}  {master}, epoch {reading.epoch}  {when}", style="not bold"
    )
    return head


def _node_table(reading: Reading) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True)
    for name in ("node", "address", "state", "in sync"):
        table.add_column(name, overflow="fold")
    for name in ("epoch", "lag", "disk"):
        table.add_column(name, justify="right")
    for node in reading.nodes:
        table.add_row(*_cells(node), style="" if node.state == "ready" else "yellow")
    return table


def _cells(node: NodeReading) -> tuple[Text, ...]:
    state = f"{node.state}, master" if node.is_master else node.state
    cells = (
        node.node_id,
        node.address,
        state,
        "yes" if node.is_in_sync else "no",
        str(node.epoch),
        _UNKNOWN if node.lag_bytes is None else format_bytes_count(node.lag_bytes),
        _UNKNOWN if node.disk_bytes is None else format_bytes_count(node.disk_bytes),
    )
    return tuple(map(Text, cells))


def _flow(reading: Reading) -> Text:
    """Rates and lateness, on two lines."""
    rates, lateness = reading.rates, reading.lateness
    line = late = "not known yet"
    if rates is not None:
        line = (
            f"{rates.published:,.0f} published, {rates.released:,.0f} released, "
            f"{rates.delivered:,.0f} delivered, {rates.acknowledged:,.0f} acknowledged"
        )
        late = "nothing was released"
    if lateness is not None:
        late = f"half within {_bound(lateness.p50_ms)}, 99 % within {_bound(lateness.p99_ms)}"
    overdue = reading.overdue_count
    pending = "not known" if reading.pending_count is None else f"{reading.pending_count:,}"
    behind = f", {overdue:,} of them overdue" if overdue else ""
    return Text(f"a second: {line}\nlateness: {late}\npending: {pending}{behind}")


def _bound(bound_ms: float | None) -> str:
    return "more than is counted" if bound_ms is None else f"{bound_ms:g} ms"


def _due_table(due: tuple[DueReading, ...]) -> Table:
    most = max(1, *(one.message_count for one in due))
    table = Table(box=SIMPLE_HEAD, expand=True)
    table.add_column("due within")
    table.add_column("pending", justify="right")
    table.add_column("", ratio=1, no_wrap=True)
    for one in due:
        within = "later" if one.within_s is None else format_duration(one.within_s * _MS)
        bar = "#" * -(-one.message_count * _BAR // most)
        table.add_row(within, f"{one.message_count:,}", bar)
    return table


def _group_table(reading: Reading) -> Table:
    read_count, count = reading.groups_read_count or 0, reading.group_count or 0
    part = f"{count:,} group{'s' * (count != 1)}"
    if read_count < count:
        part = f"{read_count:,} of {part} asked so far"
    table = Table(
        box=SIMPLE_HEAD, expand=True, title=f"most behind, of {part}", title_justify="left"
    )
    table.add_column("group", overflow="fold")
    table.add_column("topic", overflow="fold")
    table.add_column("still to do", justify="right")
    table.add_column("leased", justify="right")
    for one in reading.groups:
        table.add_row(
            Text(one.group),
            Text(one.topic),
            f"{one.unresolved_count:,}",
            f"{one.leased_count:,}",
        )
    return table
