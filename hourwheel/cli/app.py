"""The tree of commands."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import hourwheel
from hourwheel.cli import (
    cancel,
    catalog,
    cluster,
    consume,
    damage,
    dead_letters,
    dispatch,
    members,
    pending,
    permissions,
    publish,
    reschedule,
    server_commands,
    transactions,
    wheel,
    worker,
)
from hourwheel.cli.access import (
    LoginFile,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenFile,
    set_access,
)
from hourwheel.cli.exit_codes import describe_exit_codes
from hourwheel.cli.options import Json, Server
from hourwheel.cli.recurring.command import recurring
from hourwheel.cli.top.command import top
from hourwheel.cli.web.http import http
from hourwheel.cli.web.push import push
from hourwheel.transport.channel import SERVER_DEFAULT


class _Commands(TyperGroup):
    """All of them; and `hourwheel -A shop worker`, as for Celery, is answered: what to write."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As for any group."""
        match args:
            case ["-A" | "--app", given, *_]:
                worker.as_celery_has_it(given)
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="hourwheel",
    cls=_Commands,
    help="Schedule messages for any moment in the next years; receive them then.",
    epilog=describe_exit_codes(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(publish.publish)
app.command()(consume.consume)
app.command()(cancel.cancel)
app.command()(reschedule.reschedule)
app.command()(catalog.describe)
app.add_typer(catalog.topics, name="topics")
app.add_typer(catalog.groups, name="groups")
app.add_typer(pending.pending, name="pending")
app.add_typer(recurring, name="recurring")
app.add_typer(damage.damaged, name="damaged")
app.add_typer(dead_letters.dead, name="dead")
app.add_typer(transactions.transactions, name="transactions")
app.add_typer(permissions.access, name="access")
app.add_typer(members.members, name="members")
app.add_typer(dispatch.dispatch, name="dispatch")
app.command()(cluster.status)
app.command()(cluster.transfer)
app.command()(cluster.drain)
app.command()(wheel.wheel)
app.command()(worker.worker)
app.command()(http)
app.command()(push)
app.command()(top)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.node)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(
    server_commands.cluster
)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.demo)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(
    server_commands.inspect
)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.repair)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.backup)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(
    server_commands.restore
)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.audit)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(server_commands.export)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(
    server_commands.forecast
)
app.command(context_settings=server_commands.PASS_ON, add_help_option=False)(
    server_commands.schedule
)


def _show_version(is_requested: bool) -> None:  # noqa: FBT001
    if is_requested:
        typer.echo(hourwheel.__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    server: Server = SERVER_DEFAULT,  # noqa: ARG001 - see `from_above`
    is_json: Json = False,  # noqa: ARG001
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
    login_file: LoginFile = None,
) -> None:
    """Schedule messages for any moment in the next years; receive them then."""
    set_access(
        ca=tls_ca,
        cert=tls_cert,
        key=tls_key,
        token_file=token_file,
        login_file=login_file,
    )
