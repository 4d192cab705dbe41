"""`hourwheel dispatch`: whether what is pending is released; paused by `hourwheel restore`."""

from enum import StrEnum
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
from hourwheel.client.recurring.recurrences import Recurrence
from hourwheel.due_time import When
from hourwheel.outcomes import Missed
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.types import DISPATCH_TOPIC

dispatch = typer.Typer(
    help="Whether pending messages are released when they are due.", no_args_is_help=True
)


class Recurring(StrEnum):
    """What becomes of occurrences that recurrences have missed."""

    NOW = "now"
    """None is published: each recurrence goes on from now."""
    ALL = "all"
    """Each recurrence does with them as it says."""


@dispatch.command("show")
def show(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Say whether dispatching is paused."""
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
    """Pause dispatching: no pending message and no retry is released until it is resumed."""
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
    recurring: Annotated[
        Recurring | None,
        typer.Option(
            "--recurring",
            help="With --discard-before, and needed where recurrences are behind that instant. now:"
            " they go on from now, and publish nothing that they missed up to now. all: they"
            " publish what they missed, late.",
        ),
    ] = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Release what is pending again; what is overdue at once."""
    if recurring is not None and discarded is None:
        raise typer.BadParameter("it goes with --discard-before", param_hint="--recurring")
    if not is_sure:
        what = "Release all" if discarded is None else "Cancel some, and release all other"
        typer.confirm(f"{what} that is overdue?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> ExitCode:
        cancelled = damaged = 0
        facts: dict[str, object] = {}
        if discarded is not None:
            _, before_ms = await instants_of(admin, None, discarded)
            behind = await _find_behind(admin, before_ms, recurring)
            for topic in await admin.topics():
                done = await admin.cancel_pending(topic.name, "*", to_ms=before_ms)
                cancelled += done.cancelled_count
                damaged += done.corrupt_count
            for one in behind:
                await _go_on_from_now(output, admin, one)
            facts["recurrences"] = len(behind)
        await admin.update_topic(DISPATCH_TOPIC, is_paused=False)
        facts = {"paused": False, "cancelled": cancelled, "damaged": damaged, **facts}
        output.facts("dispatch", facts)
        return ExitCode.PARTLY if damaged else ExitCode.OK

    run_with_admin(output, server, command)


async def _find_behind(
    admin: AsyncAdmin, before_ms: int, recurring: Recurring | None
) -> list[Recurrence]:
    """Recurrences that are to go on from now, because what they publish next was due before.

    Raises:
        FailedPrecondition: there are some, and nothing was said of them.
    """
    if recurring is Recurring.ALL:
        return []
    open_topics = {one.name for one in await admin.topics() if not one.is_paused}
    behind = [
        one
        for one in await admin.recurrences()
        if one.topic in open_topics
        and not one.is_paused
        and one.missed is not Missed.NONE
        and one.last_message_id
        and one.last_due_ms < before_ms
    ]
    if behind and recurring is not Recurring.NOW:
        raise errors.FailedPrecondition(
            f"{len(behind):,} recurrences are behind that instant, {behind[0].name!r} of topic"
            f" {behind[0].topic!r} is one: --recurring now has them go on from now, without"
            " anything that they missed; --recurring all has them publish what they missed, late"
        )
    return behind


async def _go_on_from_now(output: Output, admin: AsyncAdmin, one: Recurrence) -> None:
    await admin.pause_recurrence(one.topic, one.name)
    try:
        await admin.resume_recurrence(one.topic, one.name)
    except errors.HourwheelError:
        output.errors.print(
            f"recurrence {one.name!r} of topic {one.topic!r} stays paused: hourwheel recurring"
            " resume",
            markup=False,
        )
        raise
