"""`hourwheel topics`, `groups` and `describe`."""

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.group_limits import limit, set_expired
from hourwheel.cli.group_positions import reset, set_order, set_start, skip, unblock
from hourwheel.cli.lookup import ByKey, history_facts, list_by_key
from hourwheel.cli.options import (
    DueRange,
    Json,
    Server,
    Yes,
    duration_option,
    range_option,
    retries_option,
    run_with_admin,
)
from hourwheel.cli.output import Output, format_duration, format_instant
from hourwheel.cli.subscribe import subscribe, subscription_row
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.catalog import GroupInfo, MessageDescription, TopicInfo
from hourwheel.formats import message_id
from hourwheel.formats.tag_gene import GeneKind, GeneSpec
from hourwheel.outcomes import DeadLetterReason, MessageState
from hourwheel.transport.channel import SERVER_DEFAULT

topics = typer.Typer(help="List, create, show and delete topics.", invoke_without_command=True)
groups = typer.Typer(
    help="List, set up, show and forget consumer groups.", invoke_without_command=True
)
_TOPIC_COLUMNS = ("name", "queue_count", "released_count", "gene", "is_paused", "description")
_GROUP_COLUMNS = (
    *("name", "attempts_max", "invisible_ms", "retry_delay_ms", "retry_delay_ms_max"),
    *("order", "is_paused", "description", "lags", "subscriptions"),
)
_TopicName = Annotated[str, typer.Argument(help="The topic.")]
_GroupName = Annotated[str, typer.Argument(help="The consumer group.")]
_All = Annotated[
    bool, typer.Option("--all", help="Also the cluster's own: retries and dead letters.")
]
_Description = Annotated[
    str | None, typer.Option("--description", help="For people, at most 256 bytes.")
]
_Retention = Annotated[
    int | None,
    typer.Option(
        "--retention",
        parser=duration_option,
        metavar="DURATION",
        help="Keep what was released for so long, at least a minute; 0s: the nodes' default.",
    ),
]
_IfVersion = Annotated[
    int | None,
    typer.Option("--if-version", metavar="VERSION", help="Change nothing unless it has this one."),
]
_Retries = Annotated[
    str | None,
    typer.Option(
        metavar="PLAN",
        help="Delays of retries step by step: 10s,1m,10m; rocketmq for RocketMQ's own; doubling "
        "for none. +20% behind them lengthens each by up to so much, at random.",
    ),
]


# --- topics -------------------------------------------------------------------------------------


@topics.callback()
def topics_alone(
    context: typer.Context,
    *,
    is_all: _All = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List topics, unless a command says otherwise."""
    if context.invoked_subcommand is None:
        list_topics(is_all=is_all, server=server, is_json=is_json)


@topics.command("list")
def list_topics(
    *,
    is_all: _All = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List topics."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.topics(include_internal=is_all)
        output.rows("topics", [_topic_facts(output, topic) for topic in found], _TOPIC_COLUMNS)

    run_with_admin(output, server, command)


@topics.command("create")
def create_topic(
    name: _TopicName,
    queue_count: Annotated[
        int, typer.Option("--queues", min=1, max=256, help="Queues that its messages go to.")
    ] = 1,
    gene_kind: Annotated[
        GeneKind | None, typer.Option("--gene", help="How the index describes tags.")
    ] = None,
    gene_bits: Annotated[
        int, typer.Option("--gene-bits", min=0, max=8, help="Bits a tag; 0: as the kind has it.")
    ] = 0,
    gene_property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A property that is in the gene, too; may be repeated."),
    ] = None,
    retention_ms: _Retention = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Create a topic; one that exists with the same settings is fine."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        gene = None
        if gene_kind is not None or gene_bits or gene_property:
            kind = gene_kind or GeneKind.SPARSE
            gene = GeneSpec(kind, gene_bits, tuple(gene_property or ()))
        topic = await admin.create_topic(
            name, queue_count=queue_count, gene=gene, retention_ms=retention_ms
        )
        _show_topic(output, topic)

    run_with_admin(output, server, command)


@topics.command("show")
def show_topic(
    name: _TopicName,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show one topic."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        _show_topic(output, await admin.get_topic(name))

    run_with_admin(output, server, command)


@topics.command("update")
def update_topic(
    name: _TopicName,
    description: _Description = None,
    is_paused: Annotated[
        bool | None,
        typer.Option("--pause/--resume", help="Refuse what is published to it, or not."),
    ] = None,
    tolerance_ms: Annotated[
        int | None,
        typer.Option(
            "--dispatch-tolerance",
            parser=duration_option,
            metavar="DURATION",
            help="Spread what falls due at one time over so long at most; 0s: all at once.",
            show_default="as it was",
        ),
    ] = None,
    retention_ms: _Retention = None,
    expected_version: _IfVersion = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Change settings of a topic. While it is paused, scheduled messages are still delivered."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        topic = await admin.update_topic(
            name,
            description=description,
            is_paused=is_paused,
            dispatch_tolerance_ms=tolerance_ms,
            retention_ms=retention_ms,
            expected_version=expected_version,
        )
        _show_topic(output, topic)

    run_with_admin(output, server, command)


@topics.command("delete")
def delete_topic(
    name: _TopicName,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Delete a topic and what is in it: pending messages are discarded."""
    if not is_sure:
        typer.confirm(f"Delete topic {name} and all its messages?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.delete_topic(name)
        output.line(f"deleted topic {name}")

    run_with_admin(output, server, command)


def _show_topic(output: Output, topic: TopicInfo) -> None:
    output.facts("topic", _topic_facts(output, topic))


def _topic_facts(output: Output, topic: TopicInfo) -> dict[str, Any]:
    facts = asdict(topic)
    if not output.is_json:
        facts["gene"] = _gene_text(topic.gene)
    return facts


def _gene_text(gene: GeneSpec) -> str:
    bits = f", {gene.bits_per_item} bits each" if gene.bits_per_item else ""
    names = f", with {', '.join(gene.properties)}" if gene.properties else ""
    return f"{gene.kind}{bits}{names}"


# --- groups -------------------------------------------------------------------------------------


@groups.callback()
def groups_alone(
    context: typer.Context,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List groups, unless a command says otherwise."""
    if context.invoked_subcommand is None:
        list_groups(server=server, is_json=is_json)


@groups.command("list")
def list_groups(
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List groups, without their lags."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.groups()
        rows = [asdict(group) for group in found]
        for row in rows:
            del row["lags"], row["subscriptions"]
        output.rows("groups", rows, _GROUP_COLUMNS[:-2])

    run_with_admin(output, server, command)


_AS_CONFIGURED: Final = "as the nodes are configured"


@groups.command("put")
def put_group(
    name: _GroupName,
    attempts_max: Annotated[
        int,
        typer.Option(
            "--attempts",
            min=0,
            help="Deliveries before it is a dead letter.",
            show_default=_AS_CONFIGURED,
        ),
    ] = 0,
    invisible_ms: Annotated[
        int,
        typer.Option(
            "--invisible",
            parser=duration_option,
            metavar="DURATION",
            help="How long a message is leased.",
            show_default=_AS_CONFIGURED,
        ),
    ] = "0s",  # type: ignore[assignment]  # typer parses defaults, too
    retry_delay_ms: Annotated[
        int,
        typer.Option(
            "--retry-delay",
            parser=duration_option,
            metavar="DURATION",
            help="Before the second delivery; it doubles with each one.",
            show_default=_AS_CONFIGURED,
        ),
    ] = "0s",  # type: ignore[assignment]
    retry_delay_ms_max: Annotated[
        int,
        typer.Option(
            "--retry-delay-max",
            parser=duration_option,
            metavar="DURATION",
            help="Where the doubling ends.",
            show_default=_AS_CONFIGURED,
        ),
    ] = "0s",  # type: ignore[assignment]
    retries: _Retries = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Set a group up, or change its settings. What is not given is the default."""
    output = Output(is_json=is_json)
    plan = retries_option(retries)

    async def command(admin: AsyncAdmin) -> None:
        group = await admin.put_group(
            name,
            attempts_max=attempts_max,
            invisible_ms=invisible_ms,
            retry_delay_ms=retry_delay_ms,
            retry_delay_ms_max=retry_delay_ms_max,
            retry_delays_ms=plan.delays_ms,
            retry_jitter_percent=plan.jitter_percent,
        )
        _show_group(output, group)

    run_with_admin(output, server, command)


@groups.command("update")
def update_group(
    name: _GroupName,
    description: _Description = None,
    is_paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Hand nothing out to it, or do again.")
    ] = None,
    attempts_max: Annotated[
        int, typer.Option("--attempts", min=0, help="Deliveries before it is a dead letter.")
    ] = 0,
    retries: _Retries = None,
    expected_version: _IfVersion = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Change settings of a group. While it is paused, its consumers can still acknowledge."""
    output = Output(is_json=is_json)
    plan = retries_option(retries)

    async def command(admin: AsyncAdmin) -> None:
        group = await admin.update_group(
            name,
            description=description,
            is_paused=is_paused,
            attempts_max=attempts_max,
            retry_delays_ms=plan.delays_ms,
            retry_jitter_percent=plan.jitter_percent,
            expected_version=expected_version,
        )
        _show_group(output, group)

    run_with_admin(output, server, command)


groups.command("subscribe")(subscribe)
groups.command("limit")(limit)
groups.command("expired")(set_expired)
groups.command("start")(set_start)
groups.command("order")(set_order)
groups.command("unblock")(unblock)
groups.command("skip")(skip)
groups.command("reset")(reset)


@groups.command("describe")
@groups.command("show")
def show_group(
    name: _GroupName,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show one group, what it wants and what it has still to do."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        _show_group(output, await admin.get_group(name))

    run_with_admin(output, server, command)


@groups.command("delete")
def delete_group(
    name: _GroupName,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Forget a group and what it has acknowledged."""
    if not is_sure:
        typer.confirm(f"Forget group {name} and what it has acknowledged?", abort=True)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.delete_group(name)
        output.line(f"forgot group {name}")

    run_with_admin(output, server, command)


def _show_group(output: Output, group: GroupInfo) -> None:
    facts = asdict(group)
    if output.is_json:
        output.json(facts)
        return
    lags, _ = facts.pop("lags"), facts.pop("subscriptions")
    output.facts("group", facts)
    if lags:
        output.rows("still to do", lags, lags[0].keys())
    if group.subscriptions:
        rows = list(map(subscription_row, group.subscriptions))
        output.rows("subscriptions", rows, rows[0].keys())


# --- messages -----------------------------------------------------------------------------------


def describe(
    text: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="A message id.")] = "",
    *,
    topic: Annotated[str, typer.Option("--topic", help="With --key: of this topic.")] = "",
    key: Annotated[str, typer.Option("--key", help="All messages that have it.")] = "",
    due: Annotated[
        DueRange | None,
        typer.Option(
            "--due", parser=range_option, metavar="FROM..TO", help="With --key: due in this range."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")] = 100,
    with_history: Annotated[
        bool, typer.Option("--history", help="And what became of it when, from the log.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show where a message is in its life, or all that have a key; exit code 1 if none is known."""
    if bool(text) == bool(key) or bool(topic) != bool(key):
        raise typer.BadParameter("give a message id, or --topic and --key")
    if text and due:
        raise typer.BadParameter("--due goes with --topic and --key")
    output = Output(is_json=is_json)
    if key:
        list_by_key(output, server, ByKey(topic, key, due or DueRange()), limit, pending_only=False)
        return

    async def command(admin: AsyncAdmin) -> ExitCode:
        parsed = message_id.parse(text)
        found = await admin.describe(parsed)
        clock_ms = 0
        if not output.is_json:
            clock_ms = max((node.clock_ms for node in (await admin.status()).nodes), default=0)
        facts: dict[str, Any] = {"message_id": text, "state": found.state.name}
        if output.is_json:
            facts |= parsed._asdict() | {"due_ms": found.due_ms, "is_damaged": found.is_damaged}
            facts["dead_letters"] = [
                asdict(one) | {"reason": one.reason.name} for one in found.dead_letters
            ]
            facts["dead_letter_search_is_complete"] = found.dead_letter_search_is_complete
        else:
            left_ms = found.due_ms - clock_ms
            facts["due"] = format_instant(found.due_ms)
            if found.state is MessageState.PENDING and clock_ms and left_ms > 0:
                facts["left"] = format_duration(left_ms)
            if found.is_damaged:
                facts["bytes"] = "damaged on the master, and not found elsewhere so far"
            facts |= _dead_letters(found)
            facts |= {"shard": parsed.shard, "epoch": parsed.epoch, "sequence": parsed.sequence}
        if with_history:
            facts["history"] = history_facts(output, await admin.history(parsed))
        output.facts("message", facts)
        return ExitCode.PARTLY if found.state is MessageState.UNKNOWN else ExitCode.OK

    run_with_admin(output, server, command)


def _dead_letters(found: MessageDescription) -> dict[str, str]:
    """For people: a line for each group, and that there may be more."""
    why = {
        DeadLetterReason.ATTEMPTS_USED_UP: "its attempts are used up",
        DeadLetterReason.EXPIRED: "it expired before the group got it",
        DeadLetterReason.UNKNOWN: "rejected, or given up before its attempts were used up, as they"
        " are set now",
    }
    facts = {
        f"dead letter of {one.group}": (
            f"published to {one.topic or 'a topic that was deleted'}, "
            f"{one.attempts} attempt{'s' * (one.attempts != 1)}: {why[one.reason]}"
        )
        for one in found.dead_letters
    }
    may_be_dead = found.state in {MessageState.RELEASED, MessageState.EXPIRED}
    if may_be_dead and not found.dead_letter_search_is_complete:
        facts["dead letters"] = "only the newest were looked at: there may be more"
    return facts
