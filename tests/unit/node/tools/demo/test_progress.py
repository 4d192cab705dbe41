"""How the demo's progress looks."""

import pytest
from rich.console import Console

from node.tools.demo.ledger import Arrival, Lateness, Ledger
from node.tools.demo.progress import bars, lateness_text, live_view, plain_line, progress_of
from node.tools.demo.trace import build_trace, generate_orders


def ledger() -> Ledger:
    books = Ledger(build_trace(generate_orders(30, 1), 10), 1_000_000)
    for index in range(40):
        books.note_published(index, f"id-{index}")
    due_ms = books.due_ms(0)
    books.note_arrived([Arrival("id-0", books.bodies[0], due_ms, 1, due_ms + 1.5)])
    return books


def test_line_tells_everything_so_far() -> None:
    line = plain_line(progress_of(ledger(), 3_000))
    for part in ("3.0 s", "scheduled 40", "pending 39", "delivered 1", "p50 1.5 ms"):
        assert part in line
    assert "\n" not in line


def test_line_has_no_lateness_when_nothing_has_arrived() -> None:
    books = Ledger(build_trace(generate_orders(30, 1), 10), 1_000_000)
    assert "late" not in plain_line(progress_of(books, -250))
    assert lateness_text(None) == "nothing has arrived yet"


@pytest.mark.parametrize("elapsed_ms", [-250.0, 0.0, 5_000.0, 1e9])
def test_live_view_fits_a_narrow_terminal(elapsed_ms: float) -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(live_view(progress_of(ledger(), elapsed_ms)))
    lines = captured.get().splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    assert "delivered" in lines[2]


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([], ""),
        ([0, 0], "  "),
        ([0, 1, 8], " ▁█"),
        ([1, 100, 50], "▁█▄"),
        ([9, *range(1, 9)], "▁▂▃▄▅▆▇█"),
    ],
)
def test_bars_show_the_latest_counts_and_only_zero_is_blank(counts: list[int], shown: str) -> None:
    assert bars(counts, 8) == shown


def test_lateness_is_told_in_milliseconds() -> None:
    assert lateness_text(Lateness(1.24, 3.456, 1_234.5)) == (
        "p50 1.2 ms   p99 3.5 ms   max 1,234.5 ms"
    )
