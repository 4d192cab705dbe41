"""`python -m node`: run a node; show its configuration or metrics; inspect or repair data."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import hourwheel
from hourwheel.errors import ConfigError
from node.access.tokens import is_name
from node.access.user_secrets import hash_of
from node.config import pages
from node.config.sources import load
from node.metrics import page as metrics
from node.process import lifecycle

_TOOLS: Final = {
    "certificates": "node.tools.local_cluster.certificates",
    "inspect": "node.tools.inspect.command",
    "repair": "node.tools.repair.command",
}


def main(arguments: Sequence[str] | None = None, program: str = "python -m node") -> int:
    """Run one command; the process's exit code. `program` is what help calls it."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given and given[0] in _TOOLS:  # with parsers of their own; a node needs none
            return int(import_module(_TOOLS[given[0]]).main(given[1:]))
        parsed = _parser(program).parse_args(given)
        return int(parsed.run_command(parsed))
    except ConfigError as error:
        sys.stderr.write(f"configuration: {error.message}\n")
        return lifecycle.EXIT_CONFIG
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return lifecycle.EXIT_OK


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        program,
        description="Run a Hourwheel node: with --config, or without anything on 127.0.0.1:7400, "
        "with its data in ./hourwheel-data. A command does something else.",
        epilog="Each key of the configuration may be given by the environment, too. A second node "
        "on this machine, with a directory of its own: HOURWHEEL_NODE__LISTEN=127.0.0.1:7500 "
        "HOURWHEEL_NODE__METRICS_LISTEN=127.0.0.1:7501 HOURWHEEL_NODE__DATA_DIRECTORY=second "
        "hourwheel node",
    )
    parser.add_argument("--version", action="version", version=hourwheel.__version__)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, in TOML")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    parser.set_defaults(run_command=_run)
    commands = parser.add_subparsers(metavar="[command]")

    config = commands.add_parser(
        "config",
        help="show or check the configuration",
        description="Show all keys of the configuration, or check a file: exit code 78, and what"
        " is wrong with it.",
    )
    shown = config.add_mutually_exclusive_group(required=True)
    shown.add_argument("--markdown", action="store_true", help="all keys, as docs/CONFIGURATION.md")
    shown.add_argument(
        "--toml", action="store_true", help="a file with all keys, as docs/hourwheel.toml"
    )
    shown.add_argument("--check", type=Path, metavar="FILE", help="say what is wrong with a file")
    config.set_defaults(run_command=_config)

    table = commands.add_parser(
        "metrics", help="list the metrics", description="List the metrics that a node has."
    )
    table.add_argument("--markdown", action="store_true", required=True, help="docs/METRICS.md")
    table.set_defaults(run_command=_metrics)

    hashing = commands.add_parser(
        "hash-secret",
        help="make a line of authentication.users_file",
        description="Read a user's secret from standard input, its first line; write the user with"
        " the secret's hash, as authentication.users_file has it.",
    )
    hashing.add_argument("user", help="name of the user")
    hashing.set_defaults(run_command=_hash_secret)

    commands.add_parser(
        "certificates", help="make certificates and users for trying out", add_help=False
    )
    commands.add_parser("inspect", help="look into a data directory, read-only", add_help=False)
    commands.add_parser("repair", help="make a damaged directory startable", add_help=False)
    return parser


def _run(parsed: argparse.Namespace) -> int:
    return lifecycle.run(load(parsed.config), parsed.ready_file)


def _config(parsed: argparse.Namespace) -> int:
    if parsed.check is not None:
        load(parsed.check)
        sys.stdout.write(f"{parsed.check}: good\n")
    else:
        sys.stdout.write(pages.markdown() if parsed.markdown else pages.toml())
    return lifecycle.EXIT_OK


def _hash_secret(parsed: argparse.Namespace) -> int:
    secret = sys.stdin.readline().rstrip("\n")
    if not secret or not is_name(parsed.user) or ":" in parsed.user:
        sys.stderr.write("a user has a name without a colon, and a secret\n")
        return lifecycle.EXIT_CONFIG
    sys.stdout.write(f"{parsed.user}:{hash_of(secret)}\n")
    return lifecycle.EXIT_OK


def _metrics(_parsed: argparse.Namespace) -> int:
    sys.stdout.write(metrics.markdown())
    return lifecycle.EXIT_OK
