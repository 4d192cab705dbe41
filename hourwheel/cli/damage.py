"""`hourwheel damaged list` and `discard`: messages that the master cannot read."""

from typing import Annotated, Any

import typer

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import Json, Server, Yes, run_with_admin
from hourwheel.cli.output import Output, format_instant
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.damage import DamagedMessage
from hourwheel.transport.channel import SERVER_DEFAULT

damaged = typer.Typer(
    help="Messages whose bytes the master cannot read: list them, give them up.",
    no_args_is_help=True,
)
_Topic = Annotated[str, typer.Option("--topic", help="Only those published to this topic.")]


@damaged.command("list")
def list_damaged(
    group: Annotated[str, typer.Option("--group", help="Only of this group.")] = "",
    topic: _Topic = "",
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List messages that the master cannot read and that no replica has intact.

    Without a group are those that no group should get yet: the scrubber found them. It takes a day
    and more where there is much; what a group should get is found when it is read.
    """
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.list_damaged(group, topic)
        _show(output, found)
        if not found:
            output.line("no damaged message is known")

    run_with_admin(output, server, command)


@damaged.command("discard")
def discard_damaged(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Which.")] = None,
    topic: _Topic = "",
    *,
    group: Annotated[str, typer.Option("--group", help="The group that shall not get them.")],
    is_all: Annotated[bool, typer.Option("--all", help="All that are listed.")] = False,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Give damaged messages up: they become dead letters of the group.

    Those that stand among its dead letters already are done with.
    """
    if is_all == bool(ids):
        raise typer.BadParameter("give message ids, or --all")
    if not is_sure:
        what = "all damaged messages" if is_all else f"{len(ids or ()):,} damaged messages"
        typer.confirm(f"Give up {what} of group {group}?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> ExitCode | None:
        gone = await admin.discard_damaged(group, ids, topic=topic)
        _show(output, gone)
        output.line(f"{len(gone):,} discarded")
        is_partly = ids and len({str(one.message_id) for one in gone}) < len(set(ids))
        return ExitCode.PARTLY if is_partly else ExitCode.OK

    run_with_admin(output, server, command)


def _show(output: Output, found: list[DamagedMessage]) -> None:
    """One line a message: an id that is broken over two cannot be copied."""
    for one in found:
        if output.is_json:
            output.json(_facts(one))
            continue
        parts = (
            *(format_instant(one.due_ms), str(one.message_id), f"{one.body_bytes:,} B"),
            f"group: {one.group}" if one.group else "no group needs it yet",
            f"topic: {one.topic}",
            f"in: {one.stands_in}" if one.stands_in != one.topic else "",
            *(f"tries: {one.tries:,}", one.place),
        )
        output.line("  ".join(part for part in parts if part))


def _facts(one: DamagedMessage) -> dict[str, Any]:
    return {
        "message_id": str(one.message_id),
        "group": one.group,
        "topic": one.topic,
        "stands_in": one.stands_in,
        "due_ms": one.due_ms,
        "attempt": one.attempt,
        "body_bytes": one.body_bytes,
        "place": one.place,
        "found_ms": one.found_ms,
        "tries": one.tries,
    }
