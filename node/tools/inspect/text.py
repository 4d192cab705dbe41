"""A report as people read it: tables, remarks, damage."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from node.tools.inspect.report import Report, Row, Table

_UPRIGHT_COLUMNS: Final = 5
"""A single row of more columns is shown as lines, one a field."""


def texts_of(report: Report) -> Iterator[RenderableType]:
    """What to print, one below the other."""
    for table in report.tables:
        yield _heading(table)
        if table.rows:
            yield _rich(table)
    for remark in report.remarks:
        yield Text(f"note: {remark}", style="yellow")
    for damage in report.damage:
        yield Text(f"DAMAGE: {damage}", style="bold red")


def _heading(table: Table) -> Text:
    more = ", and more (--limit)" if table.has_more else ""
    count = "none" if not table.rows else f"{len(table.rows):,}"
    return Text.assemble(
        ("\n" + table.title, "bold"), (f"  {table.file}", "dim"), f"  {count}{more}"
    )


def _rich(table: Table) -> RichTable:
    columns = list(dict.fromkeys(chain.from_iterable(table.rows)))
    if len(table.rows) == 1 and len(columns) > _UPRIGHT_COLUMNS:
        return _upright(table.rows[0])
    shown = RichTable()
    for name in columns:
        is_number = any(isinstance(row.get(name), int) for row in table.rows)
        shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(_cell(row.get(name)) for name in columns))
    return shown


def _upright(row: Row) -> RichTable:
    shown = RichTable(show_header=False)
    shown.add_column()
    shown.add_column(overflow="fold")
    for name, value in row.items():
        shown.add_row(name, _cell(value))
    return shown


def _cell(value: int | str | None) -> Text:
    """As it is: numbers are offsets and ids, to be copied and searched for."""
    return Text("" if value is None else str(value))
