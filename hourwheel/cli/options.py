"""Options that several commands have."""

from typing import Annotated, Final, TypeAlias

import typer

from hourwheel.channel import SERVER_DEFAULT, Channel
from hourwheel.endpoints import parse_servers
from hourwheel.errors import InvalidArgument, InvalidDueTime
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
