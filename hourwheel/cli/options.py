"""Options that several commands have."""

from typing import Annotated, Final, TypeAlias

import typer

from hourwheel.channel import SERVER_DEFAULT, Channel
from hourwheel.endpoints import parse_servers
from hourwheel.errors import InvalidArgument, InvalidDueTime
from hourwheel.filter_text import FilterExpression
from hourwheel.when import When, parse_duration_ms, parse_when

CALL_TIMEOUT_MS: Final = 5_000.0
"""A person waits: shorter than the library's own."""


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
        metavar="HOST:PORT,...",
        help="A node; of a cluster, several with commas.",
        show_default=SERVER_DEFAULT,
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="For scripts: one JSON object a line.")
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


def connect(server: str) -> Channel:
    """The connections for one command."""
    return Channel(server, call_timeout_ms=CALL_TIMEOUT_MS)


def when_option(text: str) -> When:
    """A due time given as an option."""
    try:
        return parse_when(text)
    except InvalidDueTime as error:
        raise typer.BadParameter(error.message) from None


def duration_option(text: str) -> int:
    """A length of time given as an option, in milliseconds."""
    try:
        return parse_duration_ms(text)
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
