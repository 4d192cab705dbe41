"""`hourwheel groups start`, `skip`, `reset`, `order`, `unblock`: where and how a group goes on."""

from enum import StrEnum
from typing import Annotated

import typer

from hourwheel.cli.options import Json, Server, Yes, run_with_admin, when_option
from hourwheel.cli.output import Output
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.groups.positions import GroupReset
from hourwheel.due_time import When
from hourwheel.formats import message_id
from hourwheel.transport.channel import SERVER_DEFAULT

_Group = Annotated[str, typer.Argument(help="The consumer group.")]


def set_start(
    group: _Group,
    start: Annotated[
        str, typer.Argument(metavar="START", help="first, now, or an instant with its zone.")
    ],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Say where the group's subscriptions begin that are made from now on."""
    output = Output(is_json=is_json)
    chosen: str | int = start
    if start not in {"first", "now"}:
        chosen = _instant_ms(when_option(start))

    async def command(admin: AsyncAdmin) -> None:
        changed = await admin.update_group(group, start=chosen)
        output.facts("group", {"name": changed.name, "start": changed.start})

    run_with_admin(output, server, command)


class Order(StrEnum):
    """In which order a group gets messages of one ordering key."""

    NONE = "none"
    BLOCK = "block"
    DEAD_LETTER = "dead-letter"


def set_order(
    group: _Group,
    order: Annotated[
        Order,
        typer.Argument(help="What becomes of a message of a key that has used up its attempts."),
    ],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Let the group get messages of one ordering key one by one. Before it reads a topic."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        changed = await admin.update_group(group, order=order.value)
        output.facts("group", {"name": changed.name, "order": changed.order})

    run_with_admin(output, server, command)


class Action(StrEnum):
    """What becomes of a message that blocks its key."""

    RETRY = "retry"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


def unblock(
    group: _Group,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    action: Annotated[Action, typer.Argument(help="What is to become of them.")],
    message: Annotated[
        list[str], typer.Argument(help="Ids of messages that block their keys.", metavar="ID")
    ],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Let an ordered group go on with the keys of messages that have used up their attempts."""
    output = Output(is_json=is_json)
    ids = [message_id.parse(one) for one in message]

    async def command(admin: AsyncAdmin) -> None:
        count = await admin.unblock(group, topic, ids, action.value)
        output.facts(f"{group} in {topic}", {"unblocked": count})

    run_with_admin(output, server, command)


def skip(
    group: _Group,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    before: Annotated[
        When | None,
        typer.Option(
            parser=when_option,
            metavar="INSTANT",
            help="What was released before it.",
            show_default="now",
        ),
    ] = None,
    position: Annotated[
        list[int] | None,
        typer.Option(help="Where to go on; once for each queue of the topic, in order."),
    ] = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Let a group go on behind some of a topic's messages: it does not get them, for good."""
    before_ms = None if before is None else _instant_ms(before)
    if before_ms is not None and position:
        raise typer.BadParameter("give --before or --position")
    if not is_sure:
        typer.confirm(f"Let group {group} skip messages of {topic} that it has to do?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        done = await admin.skip(group, topic, before_ms, positions=position or ())
        facts = {"skipped": done.skipped_count, "goes_on_at": list(done.positions)}
        output.facts(f"{group} in {topic}", facts)

    run_with_admin(output, server, command)


def reset(
    group: _Group,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="first, now, an instant with its zone, or a message's id."
        ),
    ] = None,
    position: Annotated[
        list[int] | None,
        typer.Option(help="Where to begin; once for each queue of the topic, in order."),
    ] = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Let a group begin anew in a topic, further back or further on, while it runs.

    It gets all that was released there and later, again or for the first time, and nothing of
    before. Its retries of the topic are dropped; dead letters stay.
    """
    if (to is None) == (not position):
        raise typer.BadParameter("give --to or --position")
    chosen: str | int | None = to
    if to is not None and to not in {"first", "now"}:
        is_id = len(to) == message_id.ID_CHARS
        chosen = message_id.parse(to).due_ms if is_id else _instant_ms(when_option(to))
    output = Output(is_json=is_json)
    positions = position or ()

    counts: list[GroupReset] = []

    async def count(admin: AsyncAdmin) -> None:
        counts.append(
            await admin.reset_group(group, topic, chosen, positions=positions, count_only=True)
        )

    async def command(admin: AsyncAdmin) -> None:
        done = await admin.reset_group(group, topic, chosen, positions=positions)
        facts = {
            "again": done.again_count,
            "to_do": done.unresolved_count,
            "skipped": done.skipped_count,
            "retries_dropped": done.retries_dropped_count,
            "begins_at": list(done.positions),
        }
        output.facts(f"{group} in {topic}", facts)

    if not is_sure:
        run_with_admin(output, server, count)
        (would,) = counts
        typer.confirm(
            f"Reset group {group} in {topic}? It gets {would.again_count:,} messages again, has"
            f" {would.unresolved_count:,} to do, does not get {would.skipped_count:,}, and loses"
            f" its retries: {would.retries_dropped_count:,} that are due and all that are not",
            abort=True,
        )
    run_with_admin(output, server, command)


def _instant_ms(when: When) -> int:
    if when.due_ms is None:
        raise typer.BadParameter("give an instant with its zone: 2027-03-01T09:00:00+01:00")
    return when.due_ms
