"""How results and errors are shown: as tables for people, as JSON lines for scripts."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hourwheel.cli.exit_codes import ExitCode, exit_code_of
from hourwheel.errors import HourwheelError, InvalidFilter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.workers.logs import LogFormat

T = TypeVar("T")

_INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The last instant that `datetime` knows: the end of the year 9999."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))
_UNITS_SHOWN: Final = 2
_PAGE_SIZE: Final = 500
"""A person looks at a page: small enough to come at once."""
_AROUND: Final = 40
"""So many characters of a filter are shown before what is wrong in it, and behind."""
_CUT: Final = "..."


class Output:
    """Where a command writes to."""

    def __init__(self, *, is_json: bool, wanted: FilterExpression | None = None) -> None:
        """`is_json`: for scripts; `wanted`: the filter of this command, to show what is wrong."""
        self.is_json = is_json
        self._wanted = wanted
        self.console = Console()
        self.errors = Console(stderr=True)

    def rows(self, title: str, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
        """Show rows that have the same keys: a table, or one JSON object a line."""
        if self.is_json:
            for row in rows:
                self.json(row)
            return
        table = Table(title=title, title_justify="left")
        for column in columns:
            words = column.split("_")
            table.add_column(" ".join(words), overflow="fold", min_width=max(map(len, words)))
        for row in rows:
            table.add_row(*(Text(_cell(value)) for value in row.values()))
        self.console.print(table)

    def facts(self, title: str, facts: Mapping[str, Any]) -> None:
        """Show one thing with its properties."""
        if self.is_json:
            self.json(facts)
            return
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in facts.items():
            table.add_row(name.replace("_", " "), Text(_cell(value)))
        self.console.print(table)

    def line(self, text: str) -> None:
        """Show one line as it is; nothing for scripts."""
        if not self.is_json:
            self.console.print(Text(text), soft_wrap=True)

    async def listing(
        self,
        items: AsyncIterable[T],
        limit: int,
        *,
        facts: Callable[[T], Mapping[str, Any]],
        line: Callable[[T], str],
    ) -> bool:
        """Show one by one, however many there are, at most `limit`; 0: all. False: there is none.

        `items` come in pages of `page_size(limit)`.
        """
        shown = 0
        async for item in items:
            if limit and shown == limit:
                self.line(f"the first {limit:,}; --limit 0 for all")
                break
            shown += 1
            if self.is_json:
                self.json(facts(item))
            else:
                self.line(line(item))
        return bool(shown)

    def json(self, value: Mapping[str, Any]) -> None:
        """Write one JSON object on a line of its own."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")

    def error(self, error: HourwheelError) -> None:
        """Say on standard error what went wrong."""
        if self.is_json:
            facts = {"reason": error.reason, "message": error.message, "params": error.params}
            sys.stderr.write(json.dumps({"error": facts}, ensure_ascii=False) + "\n")
        else:
            kind = Text(f"{type(error).__name__}: ", style="bold red")
            self.errors.print(kind + Text(error.message), soft_wrap=True)
            if isinstance(error, InvalidFilter) and self._wanted is not None:
                for line in point_at(self._wanted.text, error.params.get("position", "")):
                    self.errors.print(Text(line), soft_wrap=True)


def page_size(limit: int) -> int:
    """How many to get at once where at most `limit` are shown; 0: all.

    One more than is shown tells whether there are more.
    """
    return min(limit + 1, _PAGE_SIZE) if limit else _PAGE_SIZE


def run(output: Output, command: Coroutine[Any, Any, ExitCode | None]) -> None:
    """Run one command's coroutine, and exit with its code.

    Raises:
        Exit: always, unless all is well.
    """
    try:
        code = asyncio.run(command)
        sys.stdout.flush()
    except HourwheelError as error:
        output.error(error)
        code = exit_code_of(error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # who reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    if code:
        raise typer.Exit(code)


def point_at(text: str, position: str) -> list[str]:
    """Two lines: a part of `text`, and below it a caret under the character at `position`.

    None where there is no such position. A long text is cut to what lies around the position.
    """
    if not (position.isascii() and position.isdecimal() and int(position) <= len(text)):
        return []
    at = int(position)
    first, end = max(0, at - _AROUND), at + _AROUND
    shown = "".join(one if one.isprintable() else " " for one in text[first:end])
    lead = _CUT if first else ""
    tail = _CUT if end < len(text) else ""
    indent = cell_len(lead + shown[: at - first])
    return [f"  {lead}{shown}{tail}", f"  {' ' * indent}^"]


def format_instant(instant_ms: int) -> str:
    """An instant as people read it, in UTC; the number itself where there is no such date."""
    if not 0 <= instant_ms <= _INSTANT_MS_MAX:
        return str(instant_ms)
    seconds, milliseconds = divmod(instant_ms, 1_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds:03d}Z"


def format_duration(duration_ms: int) -> str:
    """A length of time in its two largest units, as `parse_when` reads it."""
    sign, left, parts = "-" if duration_ms < 0 else "", abs(duration_ms), []
    for size_ms, unit in _UNITS:
        count, left = divmod(left, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts[:_UNITS_SHOWN]) if parts else "0s"


def format_bytes(raw: bytes) -> str:
    """A body on one line: as text where it is one, else in hexadecimal."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"
    return text if text.isprintable() else repr(text)[1:-1]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# --- logs ----------------------------------------------------------------------------------------


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="json: an object a line, for machines.")
]
