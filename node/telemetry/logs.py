"""Logs: one event a line with its facts as fields, JSON for machines, aligned text for people.

An event is a short stable key, such as `node_started`; docs/LOGS.md lists all of them.

Everything goes to standard error, also what libraries log through `logging`. Bodies, properties and
receipts are never logged; a field whose name says that it is a secret is blacked out.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from hourwheel.types import NO_NODE, NodeId

_SECRETS: Final = ("password", "secret", "token", "authorization", "cookie", "private_key")
_HIDDEN: Final = "***"
_tracebacks: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
"""Tracebacks as data, without the values of variables: those are bodies and receipts."""

Format = Literal["auto", "json", "console"]


def _hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name in event:
        if any(secret in name.lower() for secret in _SECRETS):
            event[name] = _HIDDEN
    return event


_SHARED: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.PositionalArgumentsFormatter(),
    _hide_secrets,
)


def _stamp(node_id: NodeId) -> Processor:
    """Put the node's id on each line: those of several nodes are read together."""

    def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("node_id", node_id)
        return event

    return stamp


def configure(
    level: str, log_format: Format, stream: TextIO | None = None, *, node_id: NodeId = NO_NODE
) -> None:
    """Set up logging of this process. A program with a node inside it sets up `logging` itself.

    Args:
        level: least level that is written: debug, info, warning or error.
        log_format: `auto` is console on a terminal, else json.
        stream: where to; standard error by default.
        node_id: on each line for machines; empty: on none.
    """
    out = sys.stderr if stream is None else stream
    as_console = log_format == "console" or (log_format == "auto" and out.isatty())
    last: list[Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if as_console
        else [_tracebacks, structlog.processors.JSONRenderer(default=str)]
    )
    if node_id and not as_console:
        last.insert(0, _stamp(node_id))
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.ExtraAdder(),  # fields of `replication`: plain logging
                *_SHARED,
                structlog.stdlib.add_logger_name,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.getLevelNamesMapping()[level.upper()])


def get(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module: `_log = logs.get(__name__)`. Events and fields go to `logging`."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Add `fields` to everything that is logged inside, in this task and those it starts."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def flush() -> None:
    """Write out what is buffered, as far as its disk has room; before the process ends at once."""
    for handler in logging.getLogger().handlers:
        with suppress(OSError):
            handler.flush()


def fields_of(error: BaseException) -> dict[str, Any]:
    """An error's facts as fields of a log line."""
    found: dict[str, Any] = {"error": str(error), "error_type": type(error).__name__}
    params = getattr(error, "params", None)
    if isinstance(params, dict):
        found.update(params)
    return found
