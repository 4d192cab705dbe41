"""What a reader of logs may ask for: the options of the data source, checked. No Spark here.

path             directories of nodes or folders above them; several: a JSON list, or commas
rows             which table: see `spark_jobs.logs.columns`; default `messages`
columns          commas: only these, in this order; default all but those of bodies
bodies           `true`: also metadata and bodies of messages
partition_bytes  so much log goes into one partition, about
verify           `full` (default), or `headers`: do not look at the bodies' CRC
until            `end` (default): all whole batches; `committed`: below the high watermark
nodes            commas: only these nodes
starting         of streams: `earliest` (default) or `latest`
fail_on_loss     of streams: `true` (default): stop if the log was cut off before it was read
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hourwheel import errors
from spark_jobs.logs.columns import BODY_COLUMNS, MESSAGES, TABLES
from spark_jobs.logs.ranges import PARTITION_BYTES
from spark_jobs.logs.segment_reader import FULL, VERIFY

COMMITTED: Final = "committed"
END: Final = "end"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_PARTITION_BYTES_MIN: Final = 4_096
_BOOLEANS: Final = {"true": True, "false": False}
_KNOWN: Final = (
    *("path", "paths", "rows", "columns", "bodies", "partition_bytes", "verify", "until", "nodes"),
    *("starting", "fail_on_loss"),
)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Checked options. Picklable."""

    paths: tuple[str, ...]
    rows: str = MESSAGES
    columns: tuple[str, ...] = ()
    """Never empty: see `parse_options`."""
    partition_bytes: int = PARTITION_BYTES
    verify: str = FULL
    until: str = END
    nodes: tuple[str, ...] = ()
    """Empty: all."""
    starting: str = EARLIEST
    fail_on_loss: bool = True

    @property
    def ddl(self) -> str:
        """The table's schema for Spark."""
        table = TABLES[self.rows]
        return ", ".join(f"`{name}` {table[name].ddl}" for name in self.columns)

    def wants(self, *names: str) -> bool:
        """Whether one of these columns is asked for."""
        return not set(names).isdisjoint(self.columns)


def parse_options(options: Mapping[str, str]) -> LogOptions:
    """Check what was asked for.

    Raises:
        ConfigError: an unknown option, table or column, or a value that does not fit.
    """
    unknown = [name for name in options if name.lower() not in _KNOWN]
    if unknown:
        raise errors.ConfigError(f"unknown option {unknown[0]!r}; there are {', '.join(_KNOWN)}")
    given = {name.lower(): value.strip() for name, value in options.items()}
    rows = _choice(given, "rows", tuple(TABLES))
    return LogOptions(
        paths=_paths(given),
        rows=rows,
        columns=_columns(given, rows),
        partition_bytes=_number(given, "partition_bytes", PARTITION_BYTES, _PARTITION_BYTES_MIN),
        verify=_choice(given, "verify", VERIFY),
        until=_choice(given, "until", (END, COMMITTED)),
        nodes=_words(given.get("nodes", "")),
        starting=_choice(given, "starting", (EARLIEST, LATEST)),
        fail_on_loss=_boolean(given, "fail_on_loss", default=True),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("paths") or given.get("path") or ""
    if text.startswith("["):
        try:
            found: Any = json.loads(text)
        except ValueError:
            raise errors.ConfigError(f"option path is no JSON list: {text}") from None
        paths = tuple(str(one) for one in found)
    else:
        paths = _words(text)
    if not paths:
        raise errors.ConfigError("option path is missing: the directories of the nodes")
    return paths


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).lower()
    if value not in allowed:
        raise errors.ConfigError(f"option {name} is one of {', '.join(allowed)}, not {value!r}")
    return value


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _BOOLEANS[_choice({name: str(default), **given}, name, tuple(_BOOLEANS))]


def _number(given: Mapping[str, str], name: str, default: int, low: int) -> int:
    text = given.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < low:
        raise errors.ConfigError(f"option {name} is a number of at least {low}, not {text!r}")
    return int(text)


def _columns(given: Mapping[str, str], rows: str) -> tuple[str, ...]:
    table, requested = TABLES[rows], _words(given.get("columns", ""))
    unknown = [name for name in requested if name not in table]
    if unknown:
        raise errors.ConfigError(
            f"rows {rows} have no column {unknown[0]!r}; they have {', '.join(table)}"
        )
    has_bodies = _boolean(given, "bodies", default=False)
    return requested or tuple(name for name in table if has_bodies or name not in BODY_COLUMNS)
