"""`hourwheel access`: users, grants and quotas of a cluster."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Final

import typer

from hourwheel.cli.options import Json, Server, run_with_admin
from hourwheel.cli.output import Output
from hourwheel.client.access import Limits
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.channel import SERVER_DEFAULT

access = typer.Typer(help="Who may do what: users, grants, quotas.", no_args_is_help=True)

_USER_COLUMNS: Final = ("name", "version")
_GRANT_COLUMNS: Final = ("principal", "kind", "resource", "operations", "version")
_LIMIT_NAMES: Final = tuple(one.name for one in fields(Limits))
_QUOTA_COLUMNS: Final = ("principal", *_LIMIT_NAMES, "version")

_User = Annotated[str, typer.Argument(metavar="USER", help="Its name.")]
_Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="A name, or the beginning of names: 'shop-*'.")
]
_Topic = Annotated[str, typer.Option("--topic", help="On this topic; 'orders-*': on several.")]
_Group = Annotated[str, typer.Option("--group", help="On this group; 'mail-*': on several.")]
_Cluster = Annotated[bool, typer.Option("--cluster", help="On the cluster itself.")]


@access.command("users")
def list_users(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """List users; a secret is shown nowhere."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        rows = [{"name": one.name, "version": one.version} for one in await admin.users()]
        output.rows("users", rows, _USER_COLUMNS)

    run_with_admin(output, server, command)


@access.command("put-user")
def put_user(
    name: _User,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Its first line; else it is asked for."),
    ] = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Make a user, or change the secret. It is shown and logged nowhere; a hash of it is kept."""
    if secret_file is None:
        secret = typer.prompt("Secret", hide_input=True, confirmation_prompt=True)
    else:
        try:
            secret = secret_file.read_text("utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError):
            raise typer.BadParameter(f"{secret_file} cannot be read") from None
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        version = await admin.put_user(name, secret)
        output.facts("user", {"name": name, "version": version})

    run_with_admin(output, server, command)


@access.command("delete-user")
def delete_user(name: _User, *, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Delete a user: it cannot log in any more, also on open streams. Its grants stay.

    Revoke the grants, too, of a user that has a certificate or a token as well.
    """
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.delete_user(name)
        output.line(f"user {name} is gone")

    run_with_admin(output, server, command)


@access.command("grants")
def list_grants(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """List grants."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        rows = [
            {
                "principal": one.principal,
                "kind": one.kind,
                "resource": one.resource,
                "operations": ",".join(sorted(one.operations)),
                "version": one.version,
            }
            for one in await admin.grants()
        ]
        output.rows("grants", rows, _GRANT_COLUMNS)

    run_with_admin(output, server, command)


@access.command("grant")
def grant(
    principal: _Principal,
    operations: Annotated[
        str,
        typer.Argument(
            metavar="OPERATION,...", help="publish, receive, cancel, look, administer; just these."
        ),
    ],
    topic: _Topic = "",
    group: _Group = "",
    *,
    is_cluster: _Cluster = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Allow a principal just these operations, in place of those that the grant had before."""
    kind, resource = _resource(topic, group, is_cluster=is_cluster)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        words = [word.strip() for word in operations.split(",")]
        version = await admin.grant(principal, words, kind, resource)
        output.facts("grant", {"principal": principal, "version": version})

    run_with_admin(output, server, command)


@access.command("revoke")
def revoke(
    principal: _Principal,
    topic: _Topic = "",
    group: _Group = "",
    *,
    is_cluster: _Cluster = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Remove a grant; it holds on all nodes within a second."""
    kind, resource = _resource(topic, group, is_cluster=is_cluster)
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.revoke(principal, kind, resource)
        output.line(f"{principal} may do nothing there by that grant")

    run_with_admin(output, server, command)


_Limited = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="A name; '*': each that has no quota of its own.")
]


@access.command("quotas")
def list_quotas(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """List quotas; what is empty is not limited."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        rows = [
            {"principal": one.principal, **asdict(one.limits), "version": one.version}
            for one in await admin.quotas()
        ]
        output.rows("quotas", rows, _QUOTA_COLUMNS)

    run_with_admin(output, server, command)


@access.command("put-quota")
def put_quota(
    principal: _Limited,
    limits: Annotated[
        list[str] | None,
        typer.Argument(metavar="LIMIT=NUMBER", help=", ".join(_LIMIT_NAMES)),
    ] = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Limit what a principal may use. What is left out is not limited; 0 lets nothing through."""
    given = Limits(**dict(_limit(text) for text in limits or ()))
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        version = await admin.put_quota(principal, given)
        output.facts("quota", {"principal": principal, "version": version})

    run_with_admin(output, server, command)


@access.command("delete-quota")
def delete_quota(
    principal: _Limited, *, server: Server = SERVER_DEFAULT, is_json: Json = False
) -> None:
    """Delete a principal's quota; from then on that of '*' holds, if there is one."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        await admin.delete_quota(principal)
        output.line(f"{principal} has no quota of its own")

    run_with_admin(output, server, command)


def _limit(text: str) -> tuple[str, int]:
    """Name and number of `name=number`. Raises BadParameter: it is none."""
    name, _, number = text.partition("=")
    if name not in _LIMIT_NAMES or not (number.isascii() and number.isdecimal()):
        raise typer.BadParameter(f"{text!r} is no limit=number: {', '.join(_LIMIT_NAMES)}")
    return name, int(number)


def _resource(topic: str, group: str, *, is_cluster: bool) -> tuple[str, str]:
    """Kind and name. Raises BadParameter: not just one is given."""
    if bool(topic) + bool(group) + is_cluster != 1:
        raise typer.BadParameter("give one of --topic, --group and --cluster")
    if is_cluster:
        return "cluster", ""
    return ("topic", topic) if topic else ("group", group)
