"""The command line: `hourwheel publish`, `consume`, `cancel`, `topics`, `groups`, `status`, ...

`main` is the entry point. What it needs beyond the client (typer, rich, pytimeparse2) comes with
the extra `cli`, and is loaded only here.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from hourwheel import program
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.transport import grpc_logging

_EXTRA = ("click", "pytimeparse2", "rich", "typer")


def main() -> NoReturn:
    """Run one command and end the process with its code."""
    grpc_logging.keep_errors_only()
    program.run(_load)


def _load() -> Callable[[], object]:
    try:
        from hourwheel.cli.app import app  # noqa: PLC0415 - to say what is missing, if it is
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"The command line needs {error.name}: pip install 'hourwheel[cli]'\n")
        sys.exit(ExitCode.UNAVAILABLE)
    return partial(app, prog_name="hourwheel")
