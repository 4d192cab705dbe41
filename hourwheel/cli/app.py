"""The tree of commands."""

from typing import Annotated, Any, Final

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

# --- examples ------------------------------------------------------------------------------------

_ID: Final = "00000000000000010000000000000004000001a223d22b76"
EXAMPLES: Final = {
    "publish": 'publish reminders "feed the cat" --in 90s',
    "consume": "consume reminders --group kitchen --max 1",
    "cancel": "cancel --topic orders --key order-17",
    "reschedule": "reschedule --topic orders --key order-17 --in 1h",
    "describe": "describe --topic orders --key order-17",
    "status": "status --server 127.0.0.1:7400,127.0.0.1:7410",
    "transfer": "transfer --to node-2",
    "drain": "drain --server 127.0.0.1:7410",
    "wheel": "wheel --every 1h --count 24",
    "worker": "worker shop:app --processes 2",
    "http": "http --listen 127.0.0.1:7480",
    "push": "push --config push.toml",
    "top": "top --every 5s",
    "topics list": "topics list --all",
    "topics create": "topics create orders --queues 4 --retention 30d",
    "topics show": "topics show orders",
    "topics update": "topics update orders --retention 7d",
    "topics delete": "topics delete orders",
    "groups list": "groups list --json",
    "groups put": "groups put billing --attempts 8",
    "groups update": "groups update billing --retries 10s,1m,10m+20%",
    "groups subscribe": "groups subscribe billing orders --filter unpaid",
    "groups limit": "groups limit billing --in-flight 50 --per-second 200",
    "groups expired": "groups expired billing drop",
    "groups start": "groups start billing now",
    "groups order": "groups order billing block",
    "groups unblock": f"groups unblock billing orders skip {_ID}",
    "groups skip": "groups skip managers orders",
    "groups reset": "groups reset billing orders --to 2027-01-01T00:00:00Z",
    "groups show": "groups show billing",
    "groups describe": "groups describe billing",
    "groups delete": "groups delete billing",
    "pending list": "pending list orders --to 1h",
    "pending count": "pending count orders --to 1d",
    "pending cancel": "pending cancel orders --to 1h",
    "pending reschedule": "pending reschedule orders --to 1h --in 2h",
    "recurring put": 'recurring put reports weekday "build" --cron "0 9 * * MON-FRI"',
    "recurring list": "recurring list reports",
    "recurring show": "recurring show reports weekday",
    "recurring next": "recurring next reports weekday",
    "recurring pause": "recurring pause reports weekday",
    "recurring resume": "recurring resume reports weekday",
    "recurring delete": "recurring delete reports weekday",
    "damaged list": "damaged list --group billing",
    "damaged discard": f"damaged discard --group billing {_ID}",
    "dead list": "dead list billing --topic orders",
    "dead show": f"dead show billing {_ID}",
    "dead redrive": "dead redrive billing --filter '*'",
    "transactions list": "transactions list --json",
    "transactions show": f"transactions show {_ID}",
    "transactions commit": f"transactions commit {_ID}",
    "transactions rollback": f"transactions rollback {_ID}",
    "access users": "access users --json",
    "access put-user": "access put-user shop --secret-file shop.secret",
    "access delete-user": "access delete-user shop",
    "access grants": "access grants --json",
    "access grant": "access grant shop publish,cancel --topic 'orders-*'",
    "access revoke": "access revoke billing --group billing",
    "access quotas": "access quotas --json",
    "access put-quota": "access put-quota shop messages_per_s=5000",
    "access delete-quota": "access delete-quota shop",
    "members list": "members list --json",
    "members add": "members add node-4=10.0.0.4:7402",
    "members remove": "members remove node-4",
    "members replace": "members replace node-2 node-4=10.0.0.4:7402",
    "members grow": "members grow node-2=10.0.0.2:7402 node-3=10.0.0.3:7402",
    "dispatch show": "dispatch show --json",
    "dispatch pause": "dispatch pause",
    "dispatch resume": "dispatch resume --yes",
}
"""Command -> an example of it, without the program's name."""


def _add_examples(app: typer.Typer, *words: str) -> None:
    """Let the help of each command in `app`, and below it, end with its example.

    Args:
        app: the commands.
        words: which call `app` itself.
    """
    for command in app.registered_commands:
        name = command.name or _name_of(command.callback)
        example = EXAMPLES.get(" ".join((*words, name)))
        if example is not None:
            # What stands in brackets is taken for markup, which no example has.
            command.epilog = f"Example: hourwheel {example}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _add_examples(group.typer_instance, *words, str(group.name))


def _name_of(callback: Any) -> str:
    name: str = callback.__name__
    return name.replace("_", "-")


_add_examples(app)


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
