"""`hourwheel members`: the nodes that vote and have copies."""

from dataclasses import asdict
from typing import Annotated, Final

import typer

from hourwheel.cli.options import Json, Server, run_with_admin
from hourwheel.cli.output import Output
from hourwheel.cli.server_commands import PASS_ON, arguments_of, hand_over
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.channel import SERVER_DEFAULT

members = typer.Typer(help="The nodes that vote and have copies.", no_args_is_help=True)

_COLUMNS: Final = ("node", "control_address", "alive", "replica", "in_sync")
_NEW: Final = "NODE=ADDRESS"
_New = Annotated[
    list[str],
    typer.Argument(
        metavar=_NEW, help="A node that runs and waits: its id, and where its control process is."
    ),
]


@members.command("list")
def list_members(*, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Show members, how their copies stand, and the ids that are not used again."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.members()
        if output.is_json:
            output.json(asdict(found))
            return
        facts = {
            "cluster_id": found.cluster_id,
            "generation": found.generation,
            "changing": "yes: copies are moving" if found.is_changing else "no",
            "former_nodes": ", ".join(found.former_node_ids) or "none",
        }
        output.facts("members", facts)
        rows = [
            {
                "node": one.node_id,
                "control_address": one.control_address,
                "alive": _yes(one.is_alive),
                "replica": _yes(one.has_replica),
                "in_sync": _yes(one.is_in_sync),
            }
            for one in found.members
        ]
        output.rows("nodes", rows, _COLUMNS)

    run_with_admin(output, server, command)


def _yes(is_so: bool) -> str:  # noqa: FBT001
    return "yes" if is_so else "no"


@members.command("add")
def add_members(new: _New, *, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Add nodes to the cluster: they vote, and get copies."""
    _change(new, [], server, is_json=is_json)


@members.command("remove")
def remove_members(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE", help="Its id.")],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Remove nodes from the cluster for good. One that runs ends."""
    _change([], nodes, server, is_json=is_json)


@members.command("replace")
def replace_member(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The one that leaves, lost or not.")],
    new: Annotated[str, typer.Argument(metavar=_NEW, help="The one that comes, and runs already.")],
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Replace a node by another in one step."""
    _change([new], [node], server, is_json=is_json)


@members.command("promote", context_settings=PASS_ON, add_help_option=False)
def promote(context: typer.Context) -> None:
    """Make a node alone, which is stopped, the first node of a cluster."""
    hand_over("node.tools.promote", arguments_of(context))


def _change(new: list[str], leaving: list[str], server: str, *, is_json: bool) -> None:
    output = Output(is_json=is_json)
    coming = {}
    for text in new:
        node_id, _, address = text.partition("=")
        if not node_id or ":" not in address or node_id in coming:
            raise typer.BadParameter(f"{text!r} is not {_NEW}, or names a node again")
        coming[node_id] = address

    async def command(admin: AsyncAdmin) -> None:
        generation = await admin.change_members(coming, leaving)
        if output.is_json:
            output.json({"generation": generation})
        else:
            output.line(
                f"generation {generation} is in force; copies follow: hourwheel members list"
            )

    run_with_admin(output, server, command)
