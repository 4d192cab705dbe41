"""How far the demo is: a live display for a terminal, single lines for everything else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from node.tools.demo.ledger import Lateness, Ledger

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 40
_SECOND_MS: Final = 1_000


@dataclass(frozen=True)
class Progress:
    """One moment of a demo."""

    elapsed_ms: float
    end_ms: int
    """When the last thing happens, by the trace."""
    date: str
    """The day of the calendar that is played."""
    scheduled: int
    cancelled: int
    pending: int
    delivered: int
    lateness: Lateness | None
    by_second: list[int]
    """How many arrived in each second so far."""


def progress_of(ledger: Ledger, elapsed_ms: float) -> Progress:
    """How a run stands."""
    elapsed_ms = min(max(elapsed_ms, 0.0), float(ledger.trace.end_ms))
    return Progress(
        elapsed_ms=elapsed_ms,
        end_ms=ledger.trace.end_ms,
        date=ledger.trace.date_at(elapsed_ms),
        scheduled=ledger.scheduled,
        cancelled=ledger.cancelled,
        pending=ledger.pending,
        delivered=ledger.delivered,
        lateness=ledger.lateness(),
        by_second=_by_second(ledger.delivered_by_second, int(elapsed_ms // _SECOND_MS)),
    )


def _by_second(counts: Mapping[int, int], last: int) -> list[int]:
    return [counts.get(second, 0) for second in range(max([last, *counts]) + 1)]


def bars(counts: Sequence[int], width: int) -> str:
    """The last `width` of some counts as a row of small bars."""
    shown = list(counts[-width:])
    top = max(shown, default=0)
    if not top:
        return " " * len(shown)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-count * last // top)] for count in shown)


def lateness_text(lateness: Lateness | None) -> str:
    """The three numbers, or that there are none."""
    if lateness is None:
        return "nothing has arrived yet"
    p50_ms, p99_ms, max_ms = lateness
    return f"p50 {p50_ms:,.1f} ms   p99 {p99_ms:,.1f} ms   max {max_ms:,.1f} ms"


def plain_line(now: Progress) -> str:
    """One line for a log."""
    lateness = "" if now.lateness is None else f"   late {lateness_text(now.lateness)}"
    return (
        f"{now.elapsed_ms / _SECOND_MS:5.1f} s  {now.date}   scheduled {now.scheduled:,}"
        f"   cancelled {now.cancelled:,}   pending {now.pending:,}"
        f"   delivered {now.delivered:,}{lateness}"
    )


def live_view(now: Progress) -> RenderableType:
    """What a terminal shows, some lines high."""
    bar = ProgressBar(total=max(now.end_ms, 1), completed=now.elapsed_ms, width=_BAR_WIDTH)
    top = Table.grid(padding=(0, 2))
    seconds = f"{now.elapsed_ms / _SECOND_MS:.0f} of {now.end_ms / _SECOND_MS:.0f} s"
    top.add_row(Text(f"  {now.date}", style="bold"), bar, Text(seconds, style="dim"))

    numbers = Table.grid(padding=(0, 3))
    counts = (
        ("scheduled", now.scheduled, "cyan"),
        ("cancelled", now.cancelled, "yellow"),
        ("pending", now.pending, "magenta"),
        ("delivered", now.delivered, "green"),
    )
    numbers.add_row(
        *(
            Text.assemble((f"  {name} ", "dim"), (f"{count:>6,}", f"bold {style}"))
            for name, count, style in counts
        )
    )
    late = Text.assemble(("  lateness  ", "dim"), lateness_text(now.lateness))
    done = now.by_second[: int(now.elapsed_ms // _SECOND_MS)]
    chart = Text.assemble(
        ("  each second  ", "dim"),
        (bars(done, _BAR_WIDTH), "green"),
        (f"  {done[-1] if done else 0:,} a second", "dim"),
    )
    return Group(Text(), top, numbers, late, chart)
