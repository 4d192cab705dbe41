"""`hourwheel describe --topic ... --key ...` and `pending list --key`: messages by their key."""

from typing import Any, NamedTuple

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import DueRange, instants_of, run_with_admin
from hourwheel.cli.output import Output, format_instant, page_size
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.lookup import History, KeyMessage, MessageEvent
from hourwheel.outcomes import EventKind


class ByKey(NamedTuple):
    """Which messages are shown."""

    topic: str
    key: str
    due: DueRange = DueRange()


def list_by_key(output: Output, server: str, of: ByKey, limit: int, *, pending_only: bool) -> None:
    """Show so many of the messages that have a key (0: all); exit code 1 where there is none."""

    async def command(admin: AsyncAdmin) -> ExitCode:
        from_ms, to_ms = await instants_of(admin, *of.due)
        found = admin.list_by_key(
            of.topic,
            of.key,
            pending_only=pending_only,
            from_ms=from_ms,
            to_ms=to_ms,
            page_size=page_size(limit),
        )
        shown = await output.listing(found, limit, facts=_facts_with_key, line=_line_with_key)
        if not shown:
            output.line(f"nothing with the key {of.key} is {'pending' * pending_only or 'known'}")
        return ExitCode.OK if shown or pending_only else ExitCode.PARTLY

    run_with_admin(output, server, command)


def _facts_with_key(one: KeyMessage) -> dict[str, Any]:
    return {"message_id": str(one.message_id), "state": one.state.name, "due_ms": one.due_ms}


def _line_with_key(one: KeyMessage) -> str:
    return f"{format_instant(one.due_ms)}  {one.message_id}  {one.state.name}"


def history_facts(output: Output, history: History) -> Any:
    """A history, for scripts or as lines for people."""
    if output.is_json:
        events = [one._asdict() | {"kind": one.kind.name} for one in history.events]
        return {"events": events, "is_complete": history.is_complete}
    lines = [_line(one) for one in history.events]
    return "\n".join([*lines, *["the log does not have all of it"] * (not history.is_complete)])


def _line(event: MessageEvent) -> str:
    parts = [format_instant(event.at_ms) if event.at_ms else "at some time", event.kind.name]
    parts += [
        f"{name} {text}" for name, text in (("topic", event.topic), ("group", event.group)) if text
    ]
    if event.priority:
        parts.append(f"priority {event.priority}")
    if event.attempt and event.group:
        parts.append(f"attempt {event.attempt}")
    if event.kind in _WAITING:
        parts.append(f"due {format_instant(event.due_ms)}")
    return "  ".join(parts)


_WAITING = frozenset(
    {EventKind.PUBLISHED, EventKind.RESCHEDULED, EventKind.RETRIED, EventKind.REDRIVEN}
)
"""Kinds of events after which a message waits until it is due."""
