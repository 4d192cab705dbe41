"""`hourwheel recurring`: messages that are published again and again."""

import sys
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Final

import typer

from hourwheel.cli.options import (
    STANDARD_INPUT,
    Json,
    Server,
    duration_option,
    run_with_admin,
    when_option,
)
from hourwheel.cli.output import Output, format_instant
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Recurrence, Times
from hourwheel.due_time import When
from hourwheel.outcomes import Missed
from hourwheel.transport.channel import SERVER_DEFAULT

recurring = typer.Typer(help="Messages that are published again and again.", no_args_is_help=True)

_COLUMNS: Final = ("topic", "name", "times", "paused", "occurrences", "last_due")

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Where it publishes to.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the recurrence, in its topic.")]
_Cron = Annotated[
    str, typer.Option(metavar="EXPRESSION", help='Cron expression: "0 9 * * MON-FRI".')
]
_Zone = Annotated[
    str, typer.Option("--zone", metavar="ZONE", help="Its time zone: Europe/Berlin; UTC if none.")
]
_Every = Annotated[
    int | None,
    typer.Option(parser=duration_option, metavar="LENGTH", help="A fixed interval: 90s, 1h30m."),
]
_Start = Annotated[
    When | None,
    typer.Option(parser=when_option, metavar="WHEN", help="Not before; the first of an interval."),
]
_End = Annotated[When | None, typer.Option(parser=when_option, metavar="WHEN", help="Not after.")]
_Count = Annotated[int, typer.Option(min=0, help="So many occurrences; 0: any number.")]
_Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="DATE", help="Without occurrences: 2027-12-25; repeatable."),
]


def _times(
    cron: str,
    zone: str,
    every: int | None,
    start: When | None = None,
    end: When | None = None,
    count: int = 0,
    excluded: list[str] | None = None,
) -> Times:
    try:
        dates = [date.fromisoformat(one) for one in excluded or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return Times(
        cron=cron,
        time_zone=zone,
        every=None if every is None else timedelta(milliseconds=every),
        start=_instant(start),
        end=_instant(end),
        count=count,
        excluded_dates=dates,
    )


def _instant(when: When | None) -> datetime | None:
    if when is None:
        return None
    if when.due_ms is None:
        raise typer.BadParameter("an instant is needed, such as 2027-03-01T09:00:00Z")
    return datetime.fromtimestamp(when.due_ms / 1_000, UTC)


@recurring.command("put")
def put(
    topic: _Topic,
    name: _Name,
    body: Annotated[str, typer.Argument(help="Of each message; - for standard input.")] = "",
    *,
    cron: _Cron = "",
    zone: _Zone = "",
    every: _Every = None,
    start: _Start = None,
    end: _End = None,
    count: _Count = 0,
    excluded: _Excluded = None,
    missed: Annotated[
        str, typer.Option(help="Of an outage's occurrences: all, last, none.")
    ] = "all",
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Repeatable.")] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", help="Repeatable.")] = None,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Make a recurrence, or define it anew."""
    output = Output(is_json=is_json)
    if missed.upper() not in Missed.__members__:
        raise typer.BadParameter("--missed is all, last or none")
    times = _times(cron, zone, every, start, end, count, excluded)
    raw = sys.stdin.buffer.read() if body == STANDARD_INPUT else body.encode()
    message = Message(raw, tags=tags or (), keys=keys or ())

    async def command(admin: AsyncAdmin) -> None:
        policy = Missed[missed.upper()]
        version = await admin.put_recurrence(topic, name, message, times, missed=policy)
        next_ms = await admin.next_times(topic, name, 1)
        if output.is_json:
            output.json({"version": version, "next_ms": next_ms[0] if next_ms else None})
        else:
            output.line(f"next: {format_instant(next_ms[0]) if next_ms else 'never'}")

    run_with_admin(output, server, command)


@recurring.command("list")
def list_recurrences(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="All topics if none.")] = "",
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show the recurrences of a topic, or all."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.recurrences(topic)
        output.rows("recurrences", [_row(output, one) for one in found], _COLUMNS)

    run_with_admin(output, server, command)


@recurring.command("show")
def show(
    topic: _Topic, name: _Name, *, server: Server = SERVER_DEFAULT, is_json: Json = False
) -> None:
    """Show a recurrence."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        one = await admin.get_recurrence(topic, name)
        facts = _row(output, one) | {
            "missed": one.missed.name.lower(),
            "version": one.version,
            "last_message_id": one.last_message_id,
            "tags": ", ".join(one.meta.tags),
            "keys": ", ".join(one.meta.keys),
            "body_bytes": one.body_bytes,
        }
        if output.is_json:
            output.json(facts)
        else:
            output.facts(name, {key: str(value) for key, value in facts.items()})

    run_with_admin(output, server, command)


@recurring.command("next")
def next_times(
    topic: _Topic,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Without one: of the times in the options.")
    ] = "",
    *,
    cron: _Cron = "",
    zone: _Zone = "",
    every: _Every = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 10,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show the next times of a recurrence, or of times that the options give."""
    output = Output(is_json=is_json)
    of = name or _times(cron, zone, every)

    async def command(admin: AsyncAdmin) -> None:
        for due_ms in await admin.next_times(topic, of, count):
            if output.is_json:
                output.json({"due_ms": due_ms})
            else:
                output.line(format_instant(due_ms))

    run_with_admin(output, server, command)


@recurring.command("pause")
def pause(
    topic: _Topic, name: _Name, *, server: Server = SERVER_DEFAULT, is_json: Json = False
) -> None:
    """Pause a recurrence until it is resumed; its next occurrence is taken back."""

    async def command(admin: AsyncAdmin) -> None:
        await admin.pause_recurrence(topic, name)

    run_with_admin(Output(is_json=is_json), server, command)


@recurring.command("resume")
def resume(
    topic: _Topic, name: _Name, *, server: Server = SERVER_DEFAULT, is_json: Json = False
) -> None:
    """Resume a recurrence, from now on."""

    async def command(admin: AsyncAdmin) -> None:
        await admin.resume_recurrence(topic, name)

    run_with_admin(Output(is_json=is_json), server, command)


@recurring.command("delete")
def delete(
    topic: _Topic, name: _Name, *, server: Server = SERVER_DEFAULT, is_json: Json = False
) -> None:
    """Delete a recurrence; its next occurrence is taken back."""
    run_with_admin(Output(is_json=is_json), server, lambda to: to.delete_recurrence(topic, name))


def _row(output: Output, one: Recurrence) -> dict[str, object]:
    times = one.times
    shown = f"{times.cron} {times.time_zone}".strip() if times.cron else f"every {times.every}"
    due: object = one.last_due_ms if one.last_message_id else None
    if not output.is_json:
        due = format_instant(one.last_due_ms) if one.last_message_id else ""
    return {
        "topic": one.topic,
        "name": one.name,
        "times": shown,
        "paused": one.is_paused if output.is_json else ("yes" if one.is_paused else "no"),
        "occurrences": one.occurrence_count,
        "last_due": due,
    }
