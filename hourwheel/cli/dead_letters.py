"""`hourwheel dead list`, `show` and `redrive`: a group's dead letters."""

from typing import Annotated, Any

import typer

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import (
    Json,
    Server,
    SqlFilter,
    TagFilter,
    Yes,
    filter_option,
    run_with_admin,
)
from hourwheel.cli.output import Output, format_instant, page_size
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.groups.dead_letters import DeadLetterMessage, Redriven
from hourwheel.outcomes import DeadLetterReason
from hourwheel.transport.channel import SERVER_DEFAULT

dead = typer.Typer(
    help="Messages that a group has given up: look through them, give them to it again.",
    no_args_is_help=True,
)
_Group = Annotated[str, typer.Argument(help="The consumer group.")]
_Topic = Annotated[str, typer.Option("--topic", help="Only those published to this topic.")]
_REASONS = {
    DeadLetterReason.ATTEMPTS_USED_UP: "its attempts are used up",
    DeadLetterReason.EXPIRED: "it expired before the group got it",
    DeadLetterReason.UNKNOWN: "rejected, or given up before its attempts were used up, as they are"
    " set now",
}


@dead.command("list")
def list_dead_letters(
    group: _Group,
    topic: _Topic = "",
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    limit: Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")] = 100,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List a group's dead letters with their origin, oldest first."""
    wanted = filter_option(tag_filter, sql)
    output = Output(is_json=is_json, wanted=wanted)

    async def command(admin: AsyncAdmin) -> None:
        found = admin.list_dead_letters(group, wanted, topic=topic, page_size=page_size(limit))
        if not await output.listing(found, limit, facts=_facts, line=_line):
            output.line(f"{group} has no dead letters" + (" that match" if wanted else ""))

    run_with_admin(output, server, command)


@dead.command("show")
def show_dead_letter(
    group: _Group,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Its message id.")],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show one dead letter with its metadata and body; exit code 1 if it is none of the group."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> ExitCode:
        found = admin.list_dead_letters(group, ids=[message_id], with_bodies=True)
        async for one in found:
            facts = _facts(one)
            facts["body"] = one.body.decode(errors="backslashreplace")
            if not is_json:
                facts["due"] = format_instant(facts.pop("due_ms"))
                facts["last_due"] = format_instant(facts.pop("last_due_ms"))
                facts["reason"] = _REASONS[one.reason]
            output.facts(f"dead letter of {group}", facts)
            return ExitCode.OK
        output.line(f"{message_id} is no dead letter of {group}")
        return ExitCode.PARTLY

    run_with_admin(output, server, command)


@dead.command("redrive")
def redrive(
    group: _Group,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Which.")] = None,
    topic: _Topic = "",
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Give dead letters to their group again, each once; --filter '*' for all.

    They come back as retries of the topics that they were published to, for this group alone. It
    is safe to give the command again, also where it was interrupted.
    """
    wanted = filter_option(tag_filter, sql)
    if (wanted is None) == (not ids):
        raise typer.BadParameter("give message ids, or --filter or --sql; --filter '*' for all")
    if not is_sure:
        what = f"{len(ids or ()):,} messages" if wanted is None else f"what matches {wanted.text!r}"
        typer.confirm(f"Give {what} to group {group} again?", abort=True)
    output = Output(is_json=is_json, wanted=wanted)

    async def command(admin: AsyncAdmin) -> ExitCode:
        with output.errors.status("looking") as status:

            def tell(done: Redriven) -> None:
                status.update(f"{done.scanned_count:,} looked at, {done.redriven_count:,} redriven")

            done = await admin.redrive(
                group, wanted, topic=topic, ids=ids or None, on_progress=tell
            )
        facts = {
            "redriven": done.redriven_count,
            "group_reads_their_topic_no_more": done.unsubscribed_count,
            "damaged": done.corrupt_count,
            "looked_at": done.scanned_count,
        }
        output.facts(f"redriven to {group}", facts)
        is_partly = done.unsubscribed_count + done.corrupt_count > 0
        is_partly |= done.redriven_count < len(set(ids or ()))
        return ExitCode.PARTLY if is_partly else ExitCode.OK

    run_with_admin(output, server, command)


def _facts(one: DeadLetterMessage) -> dict[str, Any]:
    """A dead letter for scripts."""
    return {
        "message_id": str(one.message_id),
        "topic": one.topic,
        "due_ms": one.due_ms,
        "last_due_ms": one.last_due_ms,
        "attempts": one.attempts,
        "reason": one.reason.name,
        "rejected_because": one.rejected_because,
        "tags": list(one.meta.tags),
        "keys": list(one.meta.keys),
        "properties": dict(one.meta.properties),
        "client_message_id": one.meta.client_message_id,
        "content_type": one.meta.content_type,
        "ordering_key": one.meta.ordering_key,
        "priority": one.meta.priority,
        "body_bytes": one.body_bytes,
        "is_corrupt": one.is_corrupt,
    }


def _why(one: DeadLetterMessage) -> str:
    if one.rejected_because:
        return f"rejected: {' '.join(one.rejected_because.split())}"
    return "" if one.reason is DeadLetterReason.ATTEMPTS_USED_UP else _REASONS[one.reason]


def _line(one: DeadLetterMessage) -> str:
    """A dead letter for people: on one line, for an id that is broken cannot be copied."""
    parts = (
        *(format_instant(one.due_ms), str(one.message_id), f"topic: {one.topic or '(deleted)'}"),
        f"attempts: {one.attempts}",
        f"last: {format_instant(one.last_due_ms)}",
        f"{one.body_bytes:,} B",
        f"keys: {', '.join(one.meta.keys)}" if one.meta.keys else "",
        "(damaged)" if one.is_corrupt else "",
        _why(one),
    )
    return "  ".join(part for part in parts if part)
