"""`hourwheel groups start`, `skip`, `order` and `unblock`: where and how a group goes on."""

from enum import StrEnum
from typing import Annotated

import typer

from hourwheel.cli.options import Json, Server, Yes, run_with_admin, when_option
from hourwheel.cli.output import Output
from hourwheel.client.admin import AsyncAdmin
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
        list[str], typer.Argument(help="Ids of messages that block their keys.", metavar="ID...")
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


def _instant_ms(when: When) -> int:
    if when.due_ms is None:
        raise typer.BadParameter("give an instant with its zone: 2027-03-01T09:00:00+01:00")
    return when.due_ms
