"""`hourwheel groups limit` and `expired`: what a group's consumers get, and what they do not."""

from enum import StrEnum
from typing import Annotated

import typer

from hourwheel.cli.options import Json, Server, run_with_admin
from hourwheel.cli.output import Output
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.channel import SERVER_DEFAULT

_AS_IT_WAS = "as it was"


def limit(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    in_flight_max: Annotated[
        int | None,
        typer.Option(
            "--in-flight",
            min=0,
            help="Messages that its consumers may hold at a time, all together; 0: any number.",
            show_default=_AS_IT_WAS,
        ),
    ] = None,
    per_second_max: Annotated[
        int | None,
        typer.Option(
            "--per-second",
            min=0,
            help="Messages that they get in a second, all together; 0: any number.",
            show_default=_AS_IT_WAS,
        ),
    ] = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Limit how much a group's consumers get, all together; holds at once."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        changed = await admin.update_group(
            group, in_flight_max=in_flight_max, per_second_max=per_second_max
        )
        facts = {
            "name": changed.name,
            "in_flight_max": changed.in_flight_max,
            "per_second_max": changed.per_second_max,
        }
        output.facts("group", facts)

    run_with_admin(output, server, command)


class ExpiredChoice(StrEnum):
    """What becomes of what a group does not get in time."""

    KEEP = "keep"
    DROP = "drop"


def set_expired(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    choice: Annotated[
        ExpiredChoice,
        typer.Argument(help="keep: it becomes a dead letter of the group. drop: it is gone."),
    ],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Say what becomes of messages that expire before the group gets them."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        keeps = {ExpiredChoice.KEEP: True, ExpiredChoice.DROP: False}
        changed = await admin.update_group(group, keeps_expired=keeps[choice])
        output.facts("group", {"name": changed.name, "keeps_expired": changed.keeps_expired})

    run_with_admin(output, server, command)
