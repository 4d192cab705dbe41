"""`hourwheel publish`."""

import asyncio
import base64
import binascii
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hourwheel.cli.access import access_options
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import (
    CALL_TIMEOUT_MS,
    STANDARD_INPUT,
    Json,
    Server,
    when_option,
)
from hourwheel.cli.output import Output, format_duration, format_instant, run
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer, PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.due_time import When, parse_when
from hourwheel.errors import HourwheelError, InvalidArgument
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import DedupOutcome, IfPending
from hourwheel.priorities import NO_PRIORITY, PRIORITY_MAX
from hourwheel.transport.channel import SERVER_DEFAULT

CHUNK_MESSAGES: Final = 1_000
CHUNKS_UNDER_WAY: Final = 8
FILE_TIMEOUT_MS: Final = 30_000.0
_FIELDS: Final = frozenset(
    ("body", "body_base64", "when", "tags", "keys", "properties", "client_message_id")
) | {"content_type", "ordering_key", "priority"}


class IfPendingChoice(StrEnum):
    """`--if-pending`."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"


class FileFormat(StrEnum):
    """How `--file` is read."""

    LINES = "lines"
    JSON = "json"


def publish(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    body: Annotated[
        str | None, typer.Argument(help="The body; - for what comes on standard input.")
    ] = None,
    when: Annotated[
        When,
        typer.Option(
            "--in",
            "--at",
            parser=when_option,
            metavar="WHEN",
            help="90s, 1h30m, 3d, level 3 (of RocketMQ's 18 delay levels), or an instant with its "
            "zone: 2027-03-01T09:00:00+01:00.",
            show_default="now",
        ),
    ] = "now",  # type: ignore[assignment]  # typer parses defaults, too
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key; may be repeated.")] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    content_type: Annotated[str, typer.Option(help="Such as application/json.")] = "",
    dedup_key: Annotated[
        str,
        typer.Option(metavar="KEY", help="At most one message of the topic has it pending."),
    ] = "",
    if_pending: Annotated[
        IfPendingChoice | None,
        typer.Option(
            help="What becomes of this message if one with its dedup key is pending: reject it, "
            "keep that one instead, or replace that one (debounce).",
        ),
    ] = None,
    ordering_key: Annotated[
        str,
        typer.Option("--ordering-key", help="Ordered groups get the messages of one key singly."),
    ] = "",
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Publish each line; - for standard input.")
    ] = None,
    file_format: Annotated[
        FileFormat,
        typer.Option(
            "--format",
            help="lines: a line is a body. json: an object with body or body_base64, and any of "
            "when, tags, keys, properties, client_message_id, content_type, ordering_key, "
            "priority.",
        ),
    ] = FileFormat.LINES,
    *,
    expires: Annotated[
        When | None,
        typer.Option(
            "--expires",
            parser=when_option,
            metavar="WHEN",
            help="No group gets it from then on: 90s, 1h30m, 3d after it is due, or an instant "
            "with its zone.",
            show_default="never",
        ),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            min=NO_PRIORITY,
            max=PRIORITY_MAX,
            help="Of what a group may be given, the highest comes first.",
        ),
    ] = NO_PRIORITY,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Publish a message, or a file of them, to be delivered when it is due."""
    output = Output(is_json=is_json)
    if (body is None) == (file is None):
        raise typer.BadParameter("give either a BODY or --file")
    template = Message(
        b"",
        delay_ms=when.delay_ms,
        due_ms=when.due_ms,
        tags=tag or (),
        keys=key or (),
        properties=dict(map(_property, prop or ())),
        content_type=content_type,
        dedup_key=dedup_key,
        if_pending=None if if_pending is None else IfPending[if_pending.upper()],
        ordering_key=ordering_key,
        expires_ms=None if expires is None else expires.due_ms,
        expire_after_ms=None if expires is None else expires.delay_ms,
        priority=priority,
    )
    if bool(dedup_key) != (if_pending is not None) or (dedup_key and file is not None):
        raise typer.BadParameter("--dedup-key and --if-pending go together, and with a BODY")
    if body is not None:
        raw = sys.stdin.buffer.read() if body == STANDARD_INPUT else body.encode()
        run(output, _publish_one(output, server, topic, _like(template, raw)))
    elif file is not None:
        run(output, _publish_file(output, server, topic, template, file, file_format))


def _property(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _like(template: Message, body: bytes) -> Message:
    return Message(
        body,
        delay_ms=template.delay_ms,
        due_ms=template.due_ms,
        tags=template.tags,
        keys=template.keys,
        properties=template.properties,
        content_type=template.content_type,
        dedup_key=template.dedup_key,
        if_pending=template.if_pending,
        ordering_key=template.ordering_key,
        expires_ms=template.expires_ms,
        expire_after_ms=template.expire_after_ms,
        priority=template.priority,
    )


async def _publish_one(
    output: Output, server: str, topic: str, message: Message
) -> ExitCode | None:
    options = access_options()
    async with AsyncProducer(server, delivery_timeout_ms=CALL_TIMEOUT_MS, **options) as producer:
        if message.dedup_key:
            answer = await producer.publish_unique(topic, message)
            return _show_unique(output, answer)
        message_id = await producer.publish(topic, message)
    _show(output, message_id)
    _tell_scheduled(output, message_id)
    return None


def _show_unique(output: Output, answer: DedupAnswer) -> ExitCode:
    """What became of a message with a dedup key; exit code 1 where it was rejected."""
    outcome, message_id, replaced_id = answer
    if output.is_json:
        output.json(
            {
                "outcome": outcome.name,
                "message_id": str(message_id),
                "due_ms": message_id.due_ms,
                "replaced_id": None if replaced_id is None else str(replaced_id),
            }
        )
    elif outcome in {DedupOutcome.REJECTED, DedupOutcome.KEPT}:
        output.line(f"{outcome.name.lower()}: {message_id} is pending")
    else:
        if replaced_id is not None:
            output.line(f"replaced {replaced_id}")
        _tell_scheduled(output, message_id)
    return ExitCode.PARTLY if outcome is DedupOutcome.REJECTED else ExitCode.OK


def _tell_scheduled(output: Output, message_id: MessageId) -> None:
    left_ms = message_id.due_ms - int(SystemClock().wall_ms())
    due = f"in {format_duration(left_ms)}" if left_ms > 0 else "now"
    output.line(f"scheduled {message_id}, due {format_instant(message_id.due_ms)} ({due})")


async def _publish_file(
    output: Output, server: str, topic: str, template: Message, file: str, file_format: FileFormat
) -> None:
    under_way: deque[asyncio.Task[PublishedIds]] = deque()
    published = 0
    progress = Progress(
        TextColumn("publishing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.errors,
        transient=True,
        disable=output.is_json or not output.errors.is_terminal,
    )

    async def finish_oldest() -> None:
        nonlocal published
        ids = await under_way.popleft()
        published += len(ids)
        progress.update(task, completed=published)
        if output.is_json:
            for message_id in ids:
                _show(output, message_id)

    with _open(file) as stream, progress:
        task = progress.add_task("publishing", total=None)
        messages = _messages(stream, template, file_format)
        own = access_options()
        async with AsyncProducer(server, delivery_timeout_ms=FILE_TIMEOUT_MS, **own) as producer:
            try:
                while chunk := list(islice(messages, CHUNK_MESSAGES)):
                    under_way.append(asyncio.create_task(producer.publish_many(topic, chunk)))
                    if len(under_way) >= CHUNKS_UNDER_WAY:
                        await finish_oldest()
                while under_way:
                    await finish_oldest()
            except HourwheelError:
                await asyncio.gather(*under_way, return_exceptions=True)
                output.line(f"published {published:,} messages before the failure")
                raise
    output.line(f"published {published:,} messages to {topic}")


def _open(file: str) -> BinaryIO:
    if file == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}") from None


def _messages(
    lines: Iterable[bytes], template: Message, file_format: FileFormat
) -> Iterator[Message]:
    for number, line in enumerate(lines, 1):
        body = line.rstrip(b"\r\n")
        if file_format is FileFormat.LINES:
            yield _like(template, body)
        elif body:
            try:
                yield _parse(template, json.loads(body))
            except (ValueError, TypeError, HourwheelError) as error:
                raise InvalidArgument(
                    f"line {number} is no message: {error}", line=number
                ) from None


def _parse(template: Message, fields: Any) -> Message:
    if not isinstance(fields, dict) or fields.keys() - _FIELDS:
        raise InvalidArgument(f"an object with some of {', '.join(sorted(_FIELDS))} is needed")
    if ("body" in fields) == ("body_base64" in fields):
        raise InvalidArgument("either body or body_base64 is needed")
    try:
        body = (
            fields["body"].encode()
            if "body" in fields
            else base64.b64decode(fields["body_base64"], validate=True)
        )
    except (AttributeError, binascii.Error):
        raise InvalidArgument("the body is not a text, or not in base64") from None
    message = _like(template, body)
    if "when" in fields:
        message.delay_ms, message.due_ms = parse_when(str(fields["when"]))
    for name in sorted(_FIELDS - {"body", "body_base64", "when"}):
        if name in fields:
            setattr(message, name, fields[name])
    return message


def _show(output: Output, message_id: MessageId) -> None:
    if output.is_json:
        output.json({"message_id": str(message_id), "due_ms": message_id.due_ms})
