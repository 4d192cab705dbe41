"""Commands of the server and of the jobs on Spark.

Their code lies in the rooms: beside this package in a checkout, in a folder of it in a wheel (see
setup.py). What they need beyond the client comes with the extras `server` and `spark`.
"""

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Final

import typer

from hourwheel import rooms
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.transport.access_files import AccessFiles

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that hands all its arguments on, --help included."""
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def node(context: typer.Context) -> None:
    """Run a node."""
    raise typer.Exit(
        int(_load("node.process.command").main(arguments_of(context), "hourwheel node"))
    )


def cluster(context: typer.Context) -> None:
    """Run a local cluster, for trying things out."""
    hand_over("node.tools.local_cluster.command", arguments_of(context))


def inspect(context: typer.Context) -> None:
    """Look into a data directory, read-only."""
    hand_over("node.process.command", ["inspect", *arguments_of(context)])


def repair(context: typer.Context) -> None:
    """Make the damaged directory of a node without peers startable."""
    hand_over("node.process.command", ["repair", *arguments_of(context)])


def backup(context: typer.Context) -> None:
    """Take, list and verify backups of a node's data."""
    hand_over("node.tools.backup.command", arguments_of(context))


def restore(context: typer.Context) -> None:
    """Make the data directory of a new cluster out of a backup."""
    hand_over("node.tools.backup.restore_command", arguments_of(context))


def audit(context: typer.Context) -> None:
    """Prove from the logs that every message was delivered."""
    hand_over("spark_jobs.run", ["audit", *arguments_of(context)])


def export(context: typer.Context) -> None:
    """Bring a lake of Parquet files up to date with the logs."""
    hand_over("spark_jobs.run", ["export", *arguments_of(context)])


def forecast(context: typer.Context) -> None:
    """Count what falls due when, from the logs."""
    hand_over("spark_jobs.run", ["forecast", *arguments_of(context)])


def schedule(context: typer.Context) -> None:
    """Schedule the rows of files, each of them once."""
    hand_over("spark_jobs.run", ["schedule", *arguments_of(context), *_access_of(context)])


def demo(context: typer.Context) -> None:
    """Replay thousands of messages on three nodes, and kill one."""
    hand_over("node.tools.demo.command", arguments_of(context))


def arguments_of(context: typer.Context) -> list[str]:
    """What stands behind the command, and what stood before it."""
    above = context.find_root()
    before: list[str] = []
    for name, option in (("server", "--server"), ("is_json", "--json")):
        source = above.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            before += [option] if name == "is_json" else [option, str(above.params[name])]
    return [*context.args, *before]


def _access_of(context: typer.Context) -> list[str]:
    """What stood before a command about how the nodes are known."""
    above = context.find_root()
    found: list[str] = []
    for one in fields(AccessFiles):
        source = above.get_parameter_source(one.name)
        if source is not None and source.name == "COMMANDLINE":
            found += [f"--{one.name.replace('_', '-')}", str(above.params[one.name])]
    return found


def hand_over(name: str, arguments: list[str]) -> None:
    """Run the `main` of a module of the rooms, and end as it does.

    Raises:
        Exit: always, unless it fails by a fault of its own.
    """
    main = main_of(name)
    try:
        code = main(arguments)
    except OSError as error:
        # Of a file the user can read the reason, and do something about it. Without a name it is
        # no file, unless the disk is full; a reader of the output that has gone is typer's matter.
        if error.filename is None and error.errno not in _DISK_FULL:
            raise
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        sys.stderr.write(f"{where}{error.strerror}\n")
        raise typer.Exit(ExitCode.USAGE) from None
    raise typer.Exit(code)


def main_of(name: str) -> Callable[[list[str]], int]:
    """The `main` of a module of the rooms.

    Raises:
        Exit: what it needs is not installed.
    """
    main: Callable[[list[str]], int] = _load(name).main
    return main


def _load(name: str) -> ModuleType:
    """A module of a room.

    Raises:
        Exit: what it needs is not installed.
    """
    room = name.split(".", maxsplit=1)[0]
    try:
        return rooms.load(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in {"hourwheel", "filters", "replication", "storage", "timewheel"}:
            raise
        extra = "spark" if room == "spark_jobs" else "server"
        sys.stderr.write(f"This command needs {missing}: pip install 'hourwheel[{extra}]'\n")
        raise typer.Exit(ExitCode.UNAVAILABLE) from None
