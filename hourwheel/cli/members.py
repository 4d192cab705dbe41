"""`hourwheel members`: the nodes that vote and have copies."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from hourwheel import errors
from hourwheel.cli.options import Json, Server, duration_option, run_with_admin
from hourwheel.cli.output import Output
from hourwheel.cli.server_commands import PASS_ON, arguments_of, hand_over, main_of
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.members import Members
from hourwheel.transport.channel import SERVER_DEFAULT

members = typer.Typer(help="The nodes that vote and have copies.", no_args_is_help=True)

_COLUMNS: Final = ("node", "control_address", "alive", "replica", "in_sync")
_NEW: Final = "NODE=ADDRESS"
_PASSES: Final = frozenset({"node", "alive", "generation"})
"""What a refusal names that another try may not meet: who is not there, or was faster."""
_LOOK_S: Final = 0.3
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


@members.command("grow")
def grow_members(
    new: _New,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of the node on this machine, which is alone: it becomes the first of a cluster.",
        ),
    ] = None,
    restart: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Restarts this node: 'systemctl restart hourwheel'. Else it is waited for.",
        ),
    ] = "",
    wait_ms: Annotated[
        int,
        typer.Option("--wait", parser=duration_option, metavar="DURATION", help="For all of it."),
    ] = "10m",  # type: ignore[assignment]  # typer parses defaults, too
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Make one node three, or three five: all steps, and wait until all are in sync.

    Interrupted anywhere, it goes on when it is run again.
    """
    output = Output(is_json=is_json)
    coming = _coming(new)
    wait_s = wait_ms / 1_000
    if restart and config is None:
        raise typer.BadParameter("--restart goes with --config")
    if config is not None:
        options = ["--config", str(config), "--wait", str(wait_s), "--quiet"]
        code = main_of("node.tools.promote")(
            [*options, *(["--restart", restart] if restart else [])]
        )
        if code:
            raise typer.Exit(code)

    async def command(admin: AsyncAdmin) -> None:
        def say(why: str) -> None:
            output.errors.print(f"waiting: {why}", markup=False, soft_wrap=True)

        found = await grow(admin, coming, wait_s, say, is_first_new=config is not None)
        if output.is_json:
            output.json(asdict(found))
        else:
            names = ", ".join(one.node_id for one in found.members)
            output.line(f"generation {found.generation} is in force; in sync: {names}")

    run_with_admin(output, server, command)


async def grow(
    admin: AsyncAdmin,
    coming: Mapping[str, str],
    wait_s: float,
    say: Callable[[str], None],
    *,
    is_first_new: bool = False,
) -> Members:
    """Add those who are no members yet, and wait until all are in sync.

    Args:
        admin: of the cluster.
        coming: node id -> where its control process is.
        wait_s: for so long.
        say: gets what is waited for.
        is_first_new: the first node has just begun to be a cluster's, and may not know it yet.

    Raises:
        FailedPrecondition: an id was used before, or what no waiting changes.
        Timeout: what was waited for did not come. The next call goes on.
    """
    why = said = ""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                try:
                    found = await admin.members()
                    why = await _grow_on(admin, found, coming)
                except (errors.Unavailable, errors.Timeout, errors.ResourceExhausted) as error:
                    why = error.message
                except errors.FailedPrecondition as error:
                    if not (is_first_new and not error.params) and not _PASSES & set(error.params):
                        raise
                    why = error.message
                if not why:
                    return found
                if why != said:
                    say(why)
                said = why
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise errors.Timeout(f"{why}. Run it again: it goes on") from error


async def _grow_on(admin: AsyncAdmin, found: Members, coming: Mapping[str, str]) -> str:
    """The next step; what is to be waited for, empty: nothing.

    Raises FailedPrecondition, and as `AsyncAdmin.change_members`.
    """
    known = {one.node_id: one.control_address for one in found.members}
    for node, address in coming.items():
        if node in found.former_node_ids:
            raise errors.FailedPrecondition(f"the id {node!r} was used before", id=node)
        if known.get(node, address) != address:
            raise errors.FailedPrecondition(f"node {node} is a member at {known[node]}", id=node)
    missing = {node: address for node, address in coming.items() if node not in known}
    if found.is_changing:
        return "copies are moving"
    if missing:
        await admin.change_members(missing, expected_generation=found.generation)
        return "copies are moving"
    behind = [one.node_id for one in found.members if not one.is_in_sync]
    return f"node {behind[0]} is not in sync yet" if behind else ""


def _coming(new: list[str]) -> dict[str, str]:
    """Raises BadParameter."""
    coming: dict[str, str] = {}
    for text in new:
        node_id, _, address = text.partition("=")
        if not node_id or ":" not in address or node_id in coming:
            raise typer.BadParameter(f"{text!r} is not {_NEW}, or names a node again")
        coming[node_id] = address
    return coming


def _change(new: list[str], leaving: list[str], server: str, *, is_json: bool) -> None:
    output = Output(is_json=is_json)
    coming = _coming(new)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.members()
        if is_done := _is_done(found, coming, leaving):  # by a run whose end was unknown
            generation = found.generation
        else:
            generation = await admin.change_members(coming, leaving)
        if output.is_json:
            output.json({"generation": generation})
        else:
            already = " already" if is_done else ""
            output.line(
                f"generation {generation} is in force{already}; copies follow:"
                " hourwheel members list"
            )

    run_with_admin(output, server, command)


def _is_done(found: Members, coming: Mapping[str, str], leaving: list[str]) -> bool:
    known = {one.node_id: one.control_address for one in found.members}
    return all(known.get(node) == address for node, address in coming.items()) and all(
        node in found.former_node_ids for node in leaving
    )
