"""`hourwheel transactions list`, `show`, `commit` and `rollback`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import Json, Server, Yes, connect
from hourwheel.cli.output import Output, format_instant, run
from hourwheel.client.transactions.client import AsyncTransactions
from hourwheel.client.transactions.words import TransactionDescription
from hourwheel.transport.channel import SERVER_DEFAULT

transactions = typer.Typer(
    help="Messages that are prepared, and committed or rolled back.", no_args_is_help=True
)
_OPERATOR = "operators"
"""As the group of a client that prepares nothing."""
_Id = Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")]
_Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Each topic that it has; needed without access to all."
    ),
]
_COLUMNS = ("prepared", "transaction_id", "state", "group", "topics", "messages", "checks")


@transactions.command("list")
def list_transactions(
    group: Annotated[str, typer.Option(metavar="GROUP", help="Only of these producers.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="So many at most; 0: all.")] = 100,
    *,
    is_open: Annotated[
        bool, typer.Option("--open", help="Leave out those that are decided.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """List transactions: those that are open, oldest first, then those that were decided last."""
    output = Output(is_json=is_json)

    async def command() -> ExitCode:
        rows: list[dict[str, Any]] = []
        async with connect(server) as channel:
            found = AsyncTransactions(channel, group=_OPERATOR).list(group=group, open_only=is_open)
            async for one in found:
                rows.append(_row(one, output))
                if limit and len(rows) == limit:
                    break
        output.rows("transactions", rows, _COLUMNS)
        return ExitCode.OK

    run(output, command())


@transactions.command("show")
def show(transaction_id: _Id, *, server: Server = SERVER_DEFAULT, is_json: Json = False) -> None:
    """Show one transaction, and the ids of its messages where it is committed."""
    output = Output(is_json=is_json)

    async def command() -> ExitCode:
        async with connect(server) as channel:
            client = AsyncTransactions(channel, group=_OPERATOR)
            one, ids = await client.describe(transaction_id)
        facts = asdict(one) | {"state": one.state.name, "topics": list(one.topics)}
        if not is_json:
            for name in ("prepared", "checked", "decided"):
                at_ms = facts.pop(f"{name}_ms")
                facts[name] = "" if at_ms is None else format_instant(at_ms)
        facts["message_ids"] = [str(one) for one in ids]
        output.facts("transaction", facts)
        return ExitCode.OK

    run(output, command())


@transactions.command("commit")
def commit(
    transaction_id: _Id,
    topics: _Topics = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Publish the messages of a transaction, in the place of its producers."""
    _end(transaction_id, topics, Output(is_json=is_json), server, is_commit=True, is_sure=is_sure)


@transactions.command("rollback")
def rollback(
    transaction_id: _Id,
    topics: _Topics = None,
    *,
    is_sure: Yes = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Never publish the messages of a transaction, whatever its producers say later."""
    _end(transaction_id, topics, Output(is_json=is_json), server, is_commit=False, is_sure=is_sure)


def _end(
    transaction_id: str,
    topics: list[str] | None,
    output: Output,
    server: str,
    *,
    is_commit: bool,
    is_sure: bool,
) -> None:
    if not is_sure:
        what = "Commit" if is_commit else "Roll back"
        typer.confirm(
            f"{what} transaction {transaction_id} in the place of its producers?", abort=True
        )

    async def command() -> ExitCode:
        async with connect(server) as channel:
            client = AsyncTransactions(channel, group=_OPERATOR)
            end = client.commit if is_commit else client.roll_back
            ended = await end(transaction_id, topics or ())
        ids = [str(one) for one in ended.message_ids]
        output.facts("transaction", {"state": ended.state.name, "message_ids": ids})
        return ExitCode.OK

    run(output, command())


def _row(one: TransactionDescription, output: Output) -> dict[str, Any]:
    return {
        "prepared": one.prepared_ms if output.is_json else format_instant(one.prepared_ms),
        "transaction_id": one.transaction_id,
        "state": one.state.name,
        "group": one.group,
        "topics": list(one.topics) if output.is_json else ", ".join(one.topics),
        "messages": one.message_count,
        "checks": f"{one.checks}/{one.checks_max}",
    }
