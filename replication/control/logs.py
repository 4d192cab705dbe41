"""The control process's lines in the log that it shares with its broker: one event a line.

As the broker's own (`node.telemetry.logs`) they are JSON for machines and text for people; without
a library, since this process is started again and again and should be there at once.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from hourwheel.types import NO_NODE, NodeId

_TEXT: Final = "%(asctime)s control %(levelname)s %(name)s: %(message)s"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What each record has; what is beside it came as `extra`: the fields of an event."""


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class TextLines(logging.Formatter):
    """The event, then its fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        head, *rest = super().format(record).split("\n", 1)  # a traceback comes behind the fields
        fields = [f" {name}={value!r}" for name, value in _fields(record).items()]
        return "\n".join(["".join([head, *fields]), *rest])


class JsonLines(logging.Formatter):
    """One JSON object an event, with the broker's names of fields."""

    def __init__(self, node_id: NodeId = NO_NODE) -> None:
        """`node_id`: on each line; empty: on none."""
        super().__init__()
        self._common = {"process": "control", "node_id": node_id}
        if not node_id:
            del self._common["node_id"]

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        fields = {
            "event": record.getMessage(),
            **self._common,
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
            **_fields(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _timestamp(created_s: float) -> str:
    """As the broker writes it: in UTC, with a Z."""
    return f"{datetime.fromtimestamp(created_s, UTC).replace(tzinfo=None).isoformat()}Z"


def configure(
    log_format: str = "auto",
    log_level: str = "info",
    stream: TextIO | None = None,
    *,
    node_id: NodeId = NO_NODE,
) -> None:
    """Set up logging of this process.

    Args:
        log_format: `auto` is console on a terminal, else json.
        log_level: least level that is written: debug, info, warning or error.
        stream: where to; standard error by default.
        node_id: on each line for machines; empty: on none.
    """
    out = sys.stderr if stream is None else stream
    as_text = log_format == "console" or (log_format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextLines(_TEXT) if as_text else JsonLines(node_id))
    root = logging.getLogger()
    for old in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.getLevelNamesMapping()[log_level.upper()])
