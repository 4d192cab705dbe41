"""What an inspection found: tables of plain values, damage by file and byte, and remarks.

Every row is a flat dict, so that `--json` and a table say the same.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from hourwheel.errors import HourwheelError

Row: TypeAlias = dict[str, int | str | None]

READ_ERRORS: Final = (
    HourwheelError,
    OSError,
    DecodeError,
    struct.error,
    ValueError,
    LookupError,
    OverflowError,
)
"""All that reading damaged bytes may raise. The inspection catches and reports them."""

_INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def instant(ms: int) -> str:
    """An instant as people write it, UTC; as a number where no calendar reaches."""
    if not 0 <= ms <= _INSTANT_MS_MAX:
        return str(ms)
    return f"{np.datetime64(ms, 'ms')}Z"


class Damage(NamedTuple):
    """Bytes that are not what they should be."""

    file: str
    offset: int | None
    """Byte in the file; None where the whole file is meant."""
    why: str

    def __str__(self) -> str:
        """For people."""
        at = "" if self.offset is None else f", byte {self.offset}"
        return f"{self.file}{at}: {self.why}"


@dataclass
class Table:
    """One part of what was found."""

    title: str
    """What the rows are."""
    file: str
    """Where they are from: a file, or a folder."""
    rows: list[Row]
    has_more: bool = False
    """Rows were left out: see `--limit`."""


@dataclass
class Report:
    """Everything that was found."""

    tables: list[Table] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What is worth knowing and no damage: a torn tail, a file that no manifest names."""

    @property
    def is_good(self) -> bool:
        """Nothing is damaged."""
        return not self.damage

    def add(self, title: str, file: str, rows: Iterable[Row], limit: int | None = None) -> None:
        """Add a table of at most `limit` rows; one that fails half-way shows what came before."""
        table = Table(title, file, [])
        self.tables.append(table)
        rows = iter(rows)
        try:
            for row in rows if limit is None else islice(rows, limit):
                table.rows.append(row)
            table.has_more = limit is not None and next(rows, None) is not None
        except READ_ERRORS as error:
            self.caught(error, file)

    def damaged(self, file: str, position: int | None, why: str) -> None:
        """Note damage, of one place once."""
        found = Damage(file, position, why)
        is_known = any(
            one == found or (one.file, one.offset) == (file, position) != (file, None)
            for one in self.damage
        )
        if not is_known:
            self.damage.append(found)

    def remark(self, text: str) -> None:
        """Note what is worth knowing, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def caught(self, error: Exception, file: str) -> None:
        """Note what reading `file` raised; errors of ours know the place better."""
        params = getattr(error, "params", {})
        where = params.get("position", params.get("offset"))
        why = error.message if isinstance(error, HourwheelError) else _in_words(error)
        file = params.get("file", file)
        why = why.removeprefix(file).removeprefix(":").strip()
        self.damaged(file, None if where is None else int(where), why)

    def take(self, other: "Report") -> None:
        """Add all that another report has."""
        self.tables += other.tables
        for text in other.remarks:
            self.remark(text)
        for one in other.damage:
            self.damaged(*one)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "good": self.is_good,
            "damage": [one._asdict() for one in self.damage],
            "remarks": self.remarks,
            "tables": [
                {
                    "title": table.title,
                    "file": table.file,
                    "has_more": table.has_more,
                    "rows": table.rows,
                }
                for table in self.tables
            ],
        }


def _in_words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    return f"cannot be understood: {error!r}"
