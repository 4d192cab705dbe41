"""Logs of programs that run for long, `worker` with its children, `http` and `push`."""

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_FIELDS: Final = "hourwheel_"
"""Attributes of a record that begin so are fields of its line."""


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


def configure_logs(log_format: LogFormat) -> None:
    """Set up logging of this process: to standard error."""
    logging.basicConfig(level=logging.INFO, format=_TEXT)
    if log_format is LogFormat.JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())


class JsonLines(logging.Formatter):
    """One JSON object a line; fields of nodes' logs have the same names."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {name: one for name, one in vars(record).items() if name.startswith(_FIELDS)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
