"""Options that several commands have."""

import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

import typer

from hourwheel.cli.access import current_access
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.output import Output, run
from hourwheel.client.admin import AsyncAdmin
from hourwheel.due_time import Retries, When, parse_duration_ms, parse_retries, parse_when
from hourwheel.errors import InvalidArgument, InvalidDueTime
from hourwheel.filter_language.text import FilterExpression
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import parse_servers

T = TypeVar("T")

STANDARD_INPUT: Final = "-"
"""Given in place of a file or of ids."""
CALL_TIMEOUT_MS: Final = 5_000.0
"""A person waits: shorter than the library's own."""


def from_above(context: typer.Context, param: typer.CallbackParam, value: T) -> T:
    """An option's value, also where it stands before the command, or between its two words.

    The last place that gives it counts. Without this a group would swallow it: `hourwheel topics
    --server a:7400 delete t` would go to the default server.
    """
    for place in (context, *_parents(context)):
        if param.name in place.params or place is context:
            source = place.get_parameter_source(str(param.name))
            if source is not None and source.name == "COMMANDLINE":
                given: T = value if place is context else place.params[str(param.name)]
                return given
    return value


def _parents(context: typer.Context) -> Iterator[Any]:
    above = context.parent
    while above is not None:
        yield above
        above = above.parent


def servers_option(text: str) -> str:
    """Addresses given as an option, checked."""
    try:
        return ",".join(parse_servers(text))
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None


Server: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="HOURWHEEL_SERVER",
        parser=servers_option,
        callback=from_above,
        metavar="HOST:PORT,...",
        help="A node; of a cluster, several with commas.",
        show_default=SERVER_DEFAULT,
    ),
]
Json: TypeAlias = Annotated[
    bool,
    typer.Option("--json", callback=from_above, help="For scripts: one JSON object a line."),
]
TagFilter: TypeAlias = Annotated[
    str | None,
    typer.Option("--filter", metavar="TAGS", help="Only messages with such tags: 'paid && !test'."),
]
SqlFilter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sql", metavar="CONDITION", help="Only messages with such properties: 'amount > 100'."
    ),
]
ClientCheck: TypeAlias = Annotated[
    bool,
    typer.Option("--check-at-client", help="Let the node look at its index only, and check here."),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


MessageIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(help="Message ids; - for those on standard input, one a line."),
]
KeysTopic: TypeAlias = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", help="Of the messages with --key.")
]
Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="All messages of the topic with it; repeatable."),
]


AdminCommand: TypeAlias = Callable[[AsyncAdmin], Coroutine[Any, Any, ExitCode | None]]


def run_with_admin(output: Output, server: str, command: AdminCommand) -> None:
    """Run one command's coroutine with an admin client of `server`, and exit with its code.

    Raises:
        Exit: always, unless all is well.
    """

    async def connected() -> ExitCode | None:
        async with connect(server) as channel:
            return await command(AsyncAdmin(channel))

    run(output, connected())


def connect(server: str) -> Channel:
    """The connections for one command.

    Raises:
        Unprotected: a secret would be sent in the clear to another machine.
    """
    access = current_access()
    return Channel(
        server,
        tls=access.tls,
        token=access.token,
        user=access.user,
        call_timeout_ms=CALL_TIMEOUT_MS,
    )


def chosen_ids(message_ids: list[str] | None, topic: str, keys: list[str] | None) -> list[str]:
    """The ids given, or read from standard input; none where messages are chosen by keys.

    Raises:
        BadParameter: neither or both are given, or keys without their topic.
    """
    if bool(keys) != bool(topic) or bool(keys) == bool(message_ids):
        raise typer.BadParameter("message ids are needed, or --topic and --key")
    if message_ids == [STANDARD_INPUT]:
        return [line.strip() for line in sys.stdin if line.strip()]
    return message_ids or []


def when_option(text: str) -> When:
    """A due time given as an option."""
    try:
        return parse_when(text)
    except InvalidDueTime as error:
        raise typer.BadParameter(error.message) from None


NewTime: TypeAlias = Annotated[
    When,
    typer.Option(
        "--in",
        "--at",
        parser=when_option,
        metavar="WHEN",
        help="90s, 1h30m, 3d, or an instant with its zone: 2027-03-01T09:00:00+01:00.",
    ),
]


FromDue: TypeAlias = Annotated[
    When | None,
    typer.Option(
        "--from", parser=when_option, metavar="WHEN", help="Due then or later: 2h, an instant."
    ),
]
ToDue: TypeAlias = Annotated[
    When | None,
    typer.Option("--to", parser=when_option, metavar="WHEN", help="Due before: 3d, an instant."),
]


class DueRange(NamedTuple):
    """Due times, of which either end may be open."""

    from_: When | None = None
    """Due then or later."""
    to: When | None = None
    """Due before."""


def range_option(text: str) -> DueRange:
    """A range of due times given as one option: FROM..TO."""
    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        raise typer.BadParameter("a range is FROM..TO, of which one may be left out: 2h..3d")
    return DueRange(when_option(low) if low else None, when_option(high) if high else None)


async def instants_of(admin: AsyncAdmin, from_: When | None, to: When | None) -> tuple[int, int]:
    """Instants; delays are counted from the cluster's clock. No end: 0."""
    clock_ms = 0
    if any(one is not None and one.delay_ms is not None for one in (from_, to)):
        clock_ms = max((node.clock_ms for node in (await admin.status()).nodes), default=0)
    return _instant(from_, clock_ms), _instant(to, clock_ms)


def _instant(when: When | None, clock_ms: int) -> int:
    if when is None:
        return 0
    return clock_ms + when.delay_ms if when.due_ms is None else when.due_ms  # type: ignore[operator]


def duration_option(text: str) -> int:
    """A length of time given as an option, in milliseconds."""
    try:
        return parse_duration_ms(text)
    except InvalidDueTime as error:
        raise typer.BadParameter(error.message) from None


def retries_option(text: str | None) -> Retries:
    """A group's retry policy given as an option; where it is not given, all stays as it was."""
    try:
        return Retries() if text is None else parse_retries(text)
    except InvalidDueTime as error:
        raise typer.BadParameter(error.message) from None


def filter_option(
    tags: str | None, sql: str | None, *, is_checked_here: bool = False
) -> FilterExpression | None:
    """The filter of `--filter` or `--sql`; None where neither is given."""
    if tags is not None and sql is not None:
        raise typer.BadParameter("give either --filter or --sql")
    if tags is not None:
        return FilterExpression.tags(tags, check_at_client=is_checked_here)
    if sql is not None:
        return FilterExpression.sql(sql, check_at_client=is_checked_here)
    if is_checked_here:
        raise typer.BadParameter("--check-at-client goes with --filter or --sql")
    return None
