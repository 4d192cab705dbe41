"""Modules of commands that need an extra, imported when the command runs."""

import sys
from importlib import import_module
from typing import Any

import typer

from hourwheel.cli.exit_codes import ExitCode


def needed(module: str, extra: str) -> Any:
    """The module. Raises Exit: what it needs is not installed; says which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"this needs {error.name}: pip install 'hourwheel[{extra}]'\n")
        raise typer.Exit(ExitCode.UNAVAILABLE) from None
