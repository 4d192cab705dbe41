"""`hourwheel dispatch`: whether what is pending is released; paused by `hourwheel restore`."""

from typing import Annotated

import typer

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import (
    Json,
    Server,
    Yes,
    instants_of,
    run_with_admin,
    when_option,
)
from hourwheel.cli.output import Output
from hourwheel.client.admin import AsyncAdmin
from hourwheel.due_time import When
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.types import DISPATCH_TOPIC

dispatch = typer.Typer(
    help="Whether pending messages are released when they are due.", no_args_is_help=True
)


@dispatch.command("show")
def show(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Say whether it is paused."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        try:
            is_paused = (await admin.get_topic(DISPATCH_TOPIC)).is_paused
        except errors.UnknownTopic:
            is_paused = False
        output.facts("dispatch", {"paused": is_paused})

    run_with_admin(output, server, command)


@dispatch.command("pause")
def pause(*, is_sure: Yes = False, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Release nothing that is pending, retries neither, until it is resumed."""
    if not is_sure:
        typer.confirm("Have all pending messages wait, whenever they are due?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.update_topic(DISPATCH_TOPIC, is_paused=True)
        output.line("paused: hourwheel dispatch resume")

    run_with_admin(output, server, command)


@dispatch.command("resume")
def resume(
    discarded: Annotated[
        When | None,
        typer.Option(
            "--discard-before",
            parser=when_option,
            metavar="WHEN",
            help="Cancel what was due before that instant, in all topics, first.",
        ),
    ] = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Release what is pending again; what is overdue at once."""
    if not is_sure:
        what = "Release all" if discarded is None else "Cancel some, and release all other"
        typer.confirm(f"{what} that is overdue?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> ExitCode:
        cancelled = damaged = 0
        if discarded is not None:
            _, before_ms = await instants_of(admin, None, discarded)
            for topic in await admin.topics():
                done = await admin.cancel_pending(topic.name, "*", to_ms=before_ms)
                cancelled += done.cancelled_count
                damaged += done.corrupt_count
        await admin.update_topic(DISPATCH_TOPIC, is_paused=False)
        output.facts("dispatch", {"paused": False, "cancelled": cancelled, "damaged": damaged})
        return ExitCode.PARTLY if damaged else ExitCode.OK

    run_with_admin(output, server, command)
