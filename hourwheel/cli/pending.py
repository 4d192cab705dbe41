"""`hourwheel pending list`, `count`, `cancel` and `reschedule`: what is scheduled."""

from typing import Annotated, Any, NamedTuple

import typer

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.lookup import ByKey, list_by_key
from hourwheel.cli.options import (
    FromDue,
    Json,
    NewTime,
    Server,
    SqlFilter,
    TagFilter,
    ToDue,
    Yes,
    filter_option,
    instants_of,
    run_with_admin,
)
from hourwheel.cli.output import Output, format_instant, page_size
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.pending import (
    PendingCancelled,
    PendingCount,
    PendingMessage,
    PendingRescheduled,
)
from hourwheel.due_time import When
from hourwheel.filter_language.text import FilterExpression
from hourwheel.transport.channel import SERVER_DEFAULT

pending = typer.Typer(no_args_is_help=True)


@pending.callback()
def options(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """List, count, cancel and move what is scheduled."""


_Topic = Annotated[str, typer.Argument(help="The topic.")]
_Key = Annotated[
    str, typer.Option("--key", help="Only messages with this key; without a filter and a range.")
]
_KeyPrefix = Annotated[
    str,
    typer.Option("--key-prefix", help="Only messages with a key that begins so; without a filter."),
]


@pending.command("list")
def list_pending(
    topic: _Topic,
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    from_: FromDue = None,
    to: ToDue = None,
    limit: Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")] = 100,
    *,
    key: _Key = "",
    key_prefix: _KeyPrefix = "",
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List pending messages by due time; with --key those that were published last first."""
    wanted = _wanted(tag_filter, sql, key_prefix)
    output = Output(is_json=is_json, wanted=wanted)
    if key:
        _refuse_range(wanted, from_, to)
        _refuse_prefix(key_prefix)
        list_by_key(output, server, ByKey(topic, key), limit, pending_only=True)
        return

    async def command(admin: AsyncAdmin) -> None:
        from_ms, to_ms = await instants_of(admin, from_, to)
        found = admin.list_pending(
            topic,
            wanted,
            from_ms=from_ms,
            to_ms=to_ms,
            key_prefix=key_prefix,
            page_size=page_size(limit),
        )
        if not await output.listing(found, limit, facts=_facts, line=_line):
            is_chosen = wanted is not None or key_prefix
            output.line(f"nothing is pending in {topic}" + (" that matches" if is_chosen else ""))

    run_with_admin(output, server, command)


@pending.command("count")
def count_pending(
    topic: _Topic,
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    from_: FromDue = None,
    to: ToDue = None,
    *,
    key: _Key = "",
    key_prefix: _KeyPrefix = "",
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Count pending messages."""
    wanted = _wanted(tag_filter, sql, key_prefix)
    output = Output(is_json=is_json, wanted=wanted)
    if key:
        _refuse_range(wanted, from_, to)
        _refuse_prefix(key_prefix)

    async def command(admin: AsyncAdmin) -> None:
        if key:
            count = await admin.count_by_key(topic, key, pending_only=True)
            output.facts(f"pending in {topic}", {"key": key, "matching": count})
            return
        await _show_count(output, admin, _Chosen(topic, wanted, key_prefix), from_, to)

    run_with_admin(output, server, command)


@pending.command("cancel")
def cancel_pending(
    topic: _Topic,
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    from_: FromDue = None,
    to: ToDue = None,
    *,
    key_prefix: _KeyPrefix = "",
    is_rehearsal: Annotated[
        bool, typer.Option("--dry-run", help="Count what matches, and cancel nothing.")
    ] = False,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Cancel pending messages that match; --filter '*' for all."""
    wanted = _wanted(tag_filter, sql, key_prefix)
    what = _what(wanted, key_prefix)
    if not (is_sure or is_rehearsal):
        typer.confirm(f"Cancel {what} in topic {topic}?", abort=True)
    output = Output(is_json=is_json, wanted=wanted)

    async def command(admin: AsyncAdmin) -> ExitCode | None:
        if is_rehearsal:
            await _show_count(output, admin, _Chosen(topic, wanted, key_prefix), from_, to)
            return None
        from_ms, to_ms = await instants_of(admin, from_, to)
        with output.errors.status("looking") as status:

            def tell(done: PendingCancelled) -> None:
                status.update(
                    f"{done.scanned_count:,} looked at, {done.cancelled_count:,} cancelled"
                )

            done = await admin.cancel_pending(
                topic,
                wanted,
                from_ms=from_ms,
                to_ms=to_ms,
                key_prefix=key_prefix,
                on_progress=tell,
            )
        output.facts(
            f"cancelled in {topic}",
            {
                "cancelled": done.cancelled_count,
                "already_released": done.already_released_count,
                "looked_at": done.scanned_count,
                "damaged": done.corrupt_count,
            },
        )
        is_partly = done.already_released_count or done.corrupt_count
        return ExitCode.PARTLY if is_partly else ExitCode.OK

    run_with_admin(output, server, command)


@pending.command("reschedule")
def reschedule_pending(
    topic: _Topic,
    tag_filter: TagFilter = None,
    sql: SqlFilter = None,
    *,
    when: NewTime,
    from_: FromDue = None,
    to: ToDue = None,
    key_prefix: _KeyPrefix = "",
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Move pending messages that match to one due time; --filter '*' for all. Counts them first.

    It is safe to give the command again, also where it was interrupted: with --from and --to as
    instants, for delays are counted from now.
    """
    chosen = _Chosen(topic, _wanted(tag_filter, sql, key_prefix), key_prefix)
    what = _what(chosen.wanted, key_prefix)
    output = Output(is_json=is_json, wanted=chosen.wanted)
    counts: list[int] = []

    async def count(admin: AsyncAdmin) -> None:
        found = await _count(admin, chosen, *(await instants_of(admin, from_, to)))
        counts.append(found.matched_count)

    async def command(admin: AsyncAdmin) -> ExitCode:
        due_ms, _ = await instants_of(admin, when, None)
        from_ms, to_ms = await instants_of(admin, from_, to)
        with output.errors.status("looking") as status:

            def tell(done: PendingRescheduled) -> None:
                status.update(f"{done.scanned_count:,} looked at, {done.rescheduled_count:,} moved")

            done = await admin.reschedule_pending(
                topic,
                chosen.wanted,
                due_ms=due_ms,
                from_ms=from_ms,
                to_ms=to_ms,
                key_prefix=key_prefix,
                on_progress=tell,
            )
        facts = {
            "rescheduled": done.rescheduled_count,
            "missed": done.missed_count,
            "looked_at": done.scanned_count,
            "damaged": done.corrupt_count,
            "due": due_ms if is_json else format_instant(due_ms),
        }
        output.facts(f"moved in {topic}", facts)
        return ExitCode.PARTLY if done.missed_count or done.corrupt_count else ExitCode.OK

    if not is_sure:
        run_with_admin(output, server, count)
        typer.confirm(f"Move {counts[0]:,} messages: {what} in topic {topic}?", abort=True)
    run_with_admin(output, server, command)


class _Chosen(NamedTuple):
    """Which messages, but for their due times."""

    topic: str
    wanted: FilterExpression | None
    key_prefix: str = ""


def _wanted(tag_filter: str | None, sql: str | None, key_prefix: str) -> FilterExpression | None:
    wanted = filter_option(tag_filter, sql)
    if wanted is not None and key_prefix:
        raise typer.BadParameter("--key-prefix stands without --filter and --sql")
    return wanted


def _what(wanted: FilterExpression | None, key_prefix: str) -> str:
    """For a question. Raises BadParameter: nothing is chosen."""
    if key_prefix:
        return f"what has a key that begins with {key_prefix!r}"
    if wanted is None:
        raise typer.BadParameter("give --filter, --sql or --key-prefix; --filter '*' for all")
    return f"what matches {wanted.text!r}"


def _refuse_prefix(key_prefix: str) -> None:
    if key_prefix:
        raise typer.BadParameter("give --key or --key-prefix")


def _refuse_range(wanted: FilterExpression | None, from_: When | None, to: When | None) -> None:
    if wanted is not None or from_ is not None or to is not None:
        raise typer.BadParameter("--key stands without --filter, --sql, --from and --to")


async def _count(admin: AsyncAdmin, of: _Chosen, from_ms: int, to_ms: int) -> PendingCount:
    return await admin.count_pending(
        of.topic, of.wanted, from_ms=from_ms, to_ms=to_ms, key_prefix=of.key_prefix
    )


async def _show_count(
    output: Output,
    admin: AsyncAdmin,
    of: _Chosen,
    from_: When | None,
    to: When | None,
) -> None:
    count = await _count(admin, of, *(await instants_of(admin, from_, to)))
    facts = {
        "matching": count.matched_count,
        "looked_at": count.scanned_count,
        "damaged": count.corrupt_count,
    }
    output.facts(f"pending in {of.topic}", facts)


def _facts(message: PendingMessage) -> dict[str, Any]:
    """A message for scripts."""
    meta = message.meta
    return {
        "message_id": str(message.message_id),
        "due_ms": message.due_ms,
        "store_ms": message.store_ms,
        "tags": list(meta.tags),
        "keys": list(meta.keys),
        "properties": dict(meta.properties),
        "client_message_id": meta.client_message_id,
        "content_type": meta.content_type,
        "ordering_key": meta.ordering_key,
        "priority": meta.priority,
        "body_bytes": message.body_bytes,
        "is_corrupt": message.is_corrupt,
    }


def _line(message: PendingMessage) -> str:
    """A message for people: on one line, for an id that is broken over two cannot be copied."""
    meta = message.meta
    parts = [format_instant(message.due_ms), str(message.message_id), f"{message.body_bytes:,} B"]
    if message.is_corrupt:
        return "  ".join([*parts, "(damaged)"])
    named = (
        ("tags", meta.tags),
        ("keys", meta.keys),
        ("properties", map("=".join, meta.properties)),
    )
    texts = [(name, ", ".join(values)) for name, values in named]
    return "  ".join([*parts, *(f"{name}: {text}" for name, text in texts if text)])
