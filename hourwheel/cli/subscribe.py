"""`hourwheel groups subscribe`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hourwheel.cli.options import (
    ClientCheck,
    Json,
    Server,
    SqlFilter,
    TagFilter,
    filter_option,
    run_with_admin,
)
from hourwheel.cli.output import Output
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.catalog import Subscription
from hourwheel.transport.channel import SERVER_DEFAULT


def subscribe(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    topic: Annotated[str, typer.Argument(help="The topic.")],
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    *,
    is_checked_here: ClientCheck = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Set a group's filter on a topic from now on; without one the group gets everything."""
    wanted = filter_option(tag_filter, sql, is_checked_here=is_checked_here)
    output = Output(is_json=is_json, wanted=wanted)

    async def command(admin: AsyncAdmin) -> None:
        made = await admin.put_subscription(group, topic, wanted)
        if is_json:
            output.json({"group": group, **asdict(made)})
        else:
            output.facts("subscription", {"group": group, **subscription_row(made)})

    run_with_admin(output, server, command)


def subscription_row(subscription: Subscription) -> dict[str, Any]:
    """A subscription on one line, for people."""
    wanted = subscription.filter
    where = "client" if wanted.check_at_client else "node"
    return {
        "topic": subscription.topic,
        "kind": wanted.kind.value,
        "filter": wanted.text,
        "checked_by": where,
    }
