"""A report as text."""

from rich.console import Console

from node.tools.inspect.report import Report
from node.tools.inspect.text import texts_of


def said(report: Report) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        for text in texts_of(report):
            console.print(text)
    return captured.get()


def test_tables_remarks_and_damage_are_told() -> None:
    report = Report()
    report.add("runs", "wheel", [{"run": 1, "file": "a"}, {"run": 2, "file": None}])
    report.add("queues", "queues", [])
    report.remark("a torn tail")
    report.damaged("b", 7, "bad")
    text = said(report)
    assert "runs  wheel  2" in text
    assert "queues  queues  none" in text
    assert "note: a torn tail" in text
    assert "DAMAGE: b, byte 7: bad" in text
    assert "None" not in text


def test_table_says_that_rows_were_left_out() -> None:
    report = Report()
    report.add("runs", "wheel", ({"run": number} for number in range(9)), limit=3)
    assert "runs  wheel  3, and more (--limit)" in said(report)


def test_single_row_of_many_columns_is_shown_upright() -> None:
    report = Report()
    report.add("segment", "s", [{f"column_{number}": number for number in range(9)}])
    assert all(f"column_{number} " in said(report) for number in range(9))
    assert len(said(report).splitlines()) > 9


def test_names_in_brackets_are_no_markup() -> None:
    report = Report()
    report.add("t", "[bold]f", [{"a": "[red]x"}])
    assert "[bold]f" in said(report)
    assert "[red]x" in said(report)
