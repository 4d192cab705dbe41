"""Commands of the server and of the jobs on Spark, which a client does not have."""

import sys
from importlib import import_module
from types import ModuleType

import typer

from hourwheel.cli.exit_codes import ExitCode

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that hands all its arguments on, --help included."""


def node(context: typer.Context) -> None:
    """Run a node (in a checkout or the image)."""
    raise typer.Exit(int(_load("node.__main__").main(context.args, "hourwheel node")))


def cluster(context: typer.Context) -> None:
    """Run a local cluster, for trying things out (in a checkout or the image)."""
    _hand_over("node.cluster_cli", context.args)


def inspect(context: typer.Context) -> None:
    """Look into a data directory, read-only (in a checkout or the image)."""
    _hand_over("node.__main__", ["inspect", *context.args])


def audit(context: typer.Context) -> None:
    """Prove from the logs that every message was delivered (in a checkout or the image)."""
    _hand_over("spark_jobs.run", ["audit", *context.args])


def export(context: typer.Context) -> None:
    """Bring a lake of Parquet files up to date with the logs (in a checkout or the image)."""
    _hand_over("spark_jobs.run", ["export", *context.args])


def forecast(context: typer.Context) -> None:
    """Count what falls due when, from the logs (in a checkout or the image)."""
    _hand_over("spark_jobs.run", ["forecast", *context.args])


def schedule(context: typer.Context) -> None:
    """Schedule the rows of files, each of them once (in a checkout or the image)."""
    _hand_over("spark_jobs.run", ["schedule", *context.args])


def demo(context: typer.Context) -> None:
    """Replay thousands of messages on three nodes, and kill one (in a checkout or the image)."""
    _hand_over("node.demo", context.args)


def _hand_over(name: str, arguments: list[str]) -> None:
    raise typer.Exit(int(_load(name).main(arguments)))


def _load(name: str) -> ModuleType:
    """The server's module.

    Raises:
        Exit: only the client is installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in {"node", "spark_jobs", name}:
            raise
        sys.stderr.write(
            "This command needs the server's code: run it in a checkout or the image.\n"
        )
        raise typer.Exit(ExitCode.UNAVAILABLE) from None
