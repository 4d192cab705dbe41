"""The tree of commands."""

from typing import Annotated

import typer

import hourwheel
from hourwheel.channel import SERVER_DEFAULT
from hourwheel.cli import (
    administering,
    consuming,
    damage,
    handover,
    overseeing,
    pending,
    publishing,
)
from hourwheel.cli.exit_codes import describe_exit_codes
from hourwheel.cli.options import Json, Server

app = typer.Typer(
    name="hourwheel",
    help="Schedule messages for any moment in the next years; receive them then.",
    epilog=describe_exit_codes(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(publishing.publish)
app.command()(consuming.consume)
app.command()(publishing.cancel)
app.command()(administering.describe)
app.add_typer(administering.topics, name="topics")
app.add_typer(administering.groups, name="groups")
app.add_typer(pending.pending, name="pending")
app.add_typer(damage.damaged, name="damaged")
app.command()(overseeing.status)
app.command()(overseeing.transfer)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.node)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.cluster)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.demo)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.inspect)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.audit)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.export)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.forecast)
app.command(context_settings=handover.PASS_ON, add_help_option=False)(handover.schedule)


def _show_version(is_asked: bool) -> None:  # noqa: FBT001
    if is_asked:
        typer.echo(hourwheel.__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Schedule messages for any moment in the next years; receive them then."""
