"""A reading for people."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from hourwheel.cli.top.reading import (
    DueReading,
    GroupReading,
    Lateness,
    NodeReading,
    Rates,
    Reading,
)
from hourwheel.cli.top.screen import draw

NODE = NodeReading("n1", "10.0.0.1:7400", "ready", True, True, 4, None, 5 * 1024 * 1024)
READING = Reading(
    cluster_id="c0ffee",
    clock_ms=1_700_000_000_000,
    master="n1",
    epoch=4,
    trouble="",
    nodes=(
        NODE,
        replace(NODE, node_id="n2", is_master=False, lag_bytes=2_048),
        replace(
            NODE,
            node_id="n3",
            state="does not answer",
            is_master=False,
            is_in_sync=False,
            disk_bytes=None,
        ),
    ),
    pending_count=1_234_567,
    overdue_count=3,
    due=(DueReading(60, 10), DueReading(600, 0), DueReading(None, 5)),
    rates=Rates(1_000.0, 900.4, 800.0, 0.0),
    lateness=Lateness(900, 2.5, None),
    group_count=9_000,
    groups_read_count=64,
    groups=(GroupReading("billing [bold]", "orders", 7_000, 12),),
)


def shown(reading: Reading, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw(reading))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_reading_is_shown_whole() -> None:
    text = shown(READING)
    for part in (
        *("c0ffee", "master n1, epoch 4", "2023-11-14 22:13:20", "ready, master", "10.0.0.1:7400"),
        *("does not answer", "2.0 KiB", "5.0 MiB", "1,000 published", "900 released"),
        *("half within 2.5 ms, 99 % within more than is counted", "1,234,567, 3 of them overdue"),
        *("1m", "10m", "later", "#" * 30, "most behind, of 64 of 9,000 groups asked so far"),
        *("billing [bold]", "7,000", "12"),
    ):
        assert part in text, part


def test_what_is_not_known_is_not_made_up() -> None:
    nothing = replace(
        READING,
        master="",
        trouble="no majority",
        pending_count=None,
        overdue_count=None,
        due=(),
        rates=None,
        lateness=None,
        group_count=None,
    )
    text = shown(nothing)
    assert "NO MASTER" in text
    assert "no majority" in text
    assert "pending: not known" in text
    assert "a second: not known yet" in text
    assert "most behind" not in text


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_lines_fit_the_terminal(width: int) -> None:
    assert max(map(len, shown(READING, width).splitlines())) <= width
