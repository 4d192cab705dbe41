"""`hourwheel consume`."""

import base64
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hourwheel.cli.access import access_options
from hourwheel.cli.options import (
    ClientCheck,
    Json,
    Server,
    SqlFilter,
    TagFilter,
    duration_option,
    filter_option,
)
from hourwheel.cli.output import Output, format_bytes, format_duration, format_instant, run
from hourwheel.client.consumer import POLL_WAIT_MS, AsyncConsumer
from hourwheel.client.groups.membership import Broadcast
from hourwheel.client.message import ReceivedMessage
from hourwheel.transport.channel import SERVER_DEFAULT

_AT_ONCE = 256
"""How many messages to receive, show and acknowledge at once."""


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    group: Annotated[str, typer.Option("--group", "-g", help="The consumer group.")],
    max_messages: Annotated[
        int, typer.Option("--max", "-n", min=0, help="End after so many messages; 0: never.")
    ] = 0,
    wait_ms: Annotated[
        int | None,
        typer.Option(
            "--wait",
            parser=duration_option,
            metavar="DURATION",
            help="End when none came for so long, such as 5s; 0s takes what is there.",
            show_default="for ever",
        ),
    ] = None,
    invisible_ms: Annotated[
        int,
        typer.Option(
            "--invisible",
            parser=duration_option,
            metavar="DURATION",
            help="How long to lease messages.",
            show_default="as the group is set up",
        ),
    ] = "0s",  # type: ignore[assignment]  # typer parses defaults, too
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    *,
    is_broadcast: Annotated[
        bool,
        typer.Option(
            "--broadcast",
            help="Join the group's broadcast: get every message from now on.",
        ),
    ] = False,
    member: Annotated[
        str,
        typer.Option(help="With --broadcast: a name, to go on later where this command ended."),
    ] = "",
    is_checked_here: ClientCheck = False,
    is_acked: Annotated[
        bool,
        typer.Option("--ack/--no-ack", help="Acknowledge what was shown, or let it come again."),
    ] = True,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show the messages of a topic as they fall due, and acknowledge them."""
    wanted = filter_option(tag_filter, sql, is_checked_here=is_checked_here)
    output = Output(is_json=is_json, wanted=wanted)
    if member and not is_broadcast:
        raise typer.BadParameter("a member is one of a broadcast: add --broadcast")

    def make_consumer() -> AsyncConsumer:
        return AsyncConsumer(
            server,
            group=group,
            topic=topic,
            filter=wanted,
            invisible_ms=invisible_ms,
            prefetch_messages=0,
            broadcast=Broadcast(member=member) if is_broadcast else False,
            unavailable_ms_max=0.0,  # somebody looks on: what is wrong is to be said at once
            **access_options(),
        )

    run(output, _consume(output, make_consumer, max_messages, wait_ms, is_acked=is_acked))


async def _consume(
    output: Output,
    make_consumer: Callable[[], AsyncConsumer],
    max_messages: int,
    wait_ms: int | None,
    *,
    is_acked: bool,
) -> None:
    shown = 0
    consumer = make_consumer()  # where it can say what is wrong with the filter
    async with consumer:
        while not max_messages or shown < max_messages:
            count = min(_AT_ONCE, max_messages - shown) if max_messages else _AT_ONCE
            received = await consumer.receive(count, POLL_WAIT_MS if wait_ms is None else wait_ms)
            if not received and wait_ms is not None:
                break
            for message in received:
                _show(output, message)
            sys.stdout.flush()  # before they are acknowledged: unseen messages must come again
            if received and is_acked:
                await consumer.ack(received)
            shown += len(received)


def _show(output: Output, message: ReceivedMessage) -> None:
    if output.is_json:
        output.json(_fields(message))
        return
    late = format_duration(message.receive_ms - message.due_ms)
    attempt = "" if message.attempt == 1 else f" attempt {message.attempt}"
    output.line(
        f"{format_instant(message.due_ms)} +{late}{attempt} {message.message_id} "
        f"{format_bytes(message.body)}"
    )


def _fields(message: ReceivedMessage) -> dict[str, Any]:
    """The message for scripts: `body` where it is a text, else `body_base64`."""
    body: dict[str, str]
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    meta = message.meta
    return {
        "message_id": str(message.message_id),
        **body,
        "topic": message.topic,
        "due_ms": message.due_ms,
        "store_ms": message.store_ms,
        "receive_ms": message.receive_ms,
        "attempt": message.attempt,
        "tags": list(meta.tags),
        "keys": list(meta.keys),
        "properties": dict(meta.properties),
        "client_message_id": meta.client_message_id,
        "content_type": meta.content_type,
        "ordering_key": meta.ordering_key,
        "priority": meta.priority,
    }
