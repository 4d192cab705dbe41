"""The commands on Spark: `hourwheel audit`, `export`, `forecast`, `schedule`; also by spark-submit.

    hourwheel audit /var/lib/hourwheel            # on this machine
    spark-submit --py-files rooms.zip hourwheel_spark.py audit s3a://logs/node-1

Started by `spark-submit`, the master and the memory are what it says, and `--cores`, `--memory` and
`--master` are not looked at. Exit codes: 0 done and nothing wrong, 1 done and something was found
(findings; rows that are not scheduled), 2 it could not be done, 130 interrupted.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from hourwheel import errors
from spark_jobs.commands.options import add_spark_options

EXIT_FAILED: Final = 2
EXIT_INTERRUPTED: Final = 130
COMMANDS: Final = {
    "audit": "spark_jobs.commands.audit",
    "export": "spark_jobs.commands.export",
    "forecast": "spark_jobs.commands.forecast",
    "schedule": "spark_jobs.commands.schedule",
}
_PARTS: Final = ("pyspark", "pyarrow", "pandas", "py4j")
_CALLED: Final = "An error occurred while calling "
"""How py4j begins; what it goes on with says nothing outside of its own log."""
_JAVA_CLASS: Final = re.compile(r"^: (?:[\w.$]+: )?")
_CODES: Final = (
    "Exit codes: 0 done and nothing wrong, 1 done and something was found, 2 it could not be done."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0] not in COMMANDS:
        sys.stderr.write(f"which command: one of {', '.join(COMMANDS)}\n")
        return EXIT_FAILED
    try:
        command = import_module(COMMANDS[given[0]])
        return int(command.run(make_parser(given[0], command).parse_args(given[1:])))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        described = _describe_error(error)
        if described is None:
            raise
        reason, message = described
        text = json.dumps({"error": reason, "message": message}) if "--json" in given else message
        sys.stderr.write(f"{text}\n")
        return EXIT_FAILED


def make_parser(name: str, command: ModuleType) -> argparse.ArgumentParser:
    """Of one command's line."""
    parser = argparse.ArgumentParser(
        f"hourwheel {name}", description=command.DESCRIPTION, epilog=_CODES
    )
    add: Callable[[argparse.ArgumentParser], None] = command.add_options
    add(parser)
    add_spark_options(parser)
    return parser


def _describe_error(error: Exception) -> tuple[str, str] | None:
    """(reason, message) of what a user can do something about; None: a fault of ours."""
    if isinstance(error, errors.HourwheelError):
        return error.reason, error.message
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").split(".")[0] not in _PARTS:
            return None
        what = f"this command needs {error.name}: pip install 'hourwheel[spark]'"
        return "NOT_INSTALLED", what
    if isinstance(error, OSError):
        return "IO", str(error)
    text = _of_spark(error)
    return None if text is None else ("SPARK", text)


def _of_spark(error: Exception) -> str | None:
    """What a failure of Spark says in a line or two; None: it is not Spark's."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("hourwheel.errors.")]
    if ours:
        return ours[-1]
    said = [line for line in lines if not line.startswith(_CALLED)] or lines
    return _JAVA_CLASS.sub("", said[0]) if said else "Spark failed"


if __name__ == "__main__":
    sys.exit(main())
