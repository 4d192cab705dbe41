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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hourwheel import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBER_MAX: Final = 1_000_000_000
EXIT_OK: Final = 0
EXIT_FOUND: Final = 1
EXIT_FAILED: Final = 2
EXIT_INTERRUPTED: Final = 130
COMMANDS: Final = {
    "audit": "spark_jobs.audit.command",
    "export": "spark_jobs.lake.export_command",
    "forecast": "spark_jobs.lake.forecast_command",
    "schedule": "spark_jobs.schedule.command",
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
        return int(command.run(_parser(given[0], command).parse_args(given[1:])))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        reason, message = told
        text = json.dumps({"error": reason, "message": message}) if "--json" in given else message
        sys.stderr.write(f"{text}\n")
        return EXIT_FAILED


@contextmanager
def open_session(
    parsed: argparse.Namespace, name: str, *, tries: int = 1
) -> "Iterator[SparkSession]":
    """The session that the options ask for; it is stopped in the end.

    Args:
        parsed: see `add_spark_options`.
        name: of the application.
        tries: how often a task is tried on this machine.

    Raises:
        NoJava: there is no Java for Spark to run in.
        ConfigError: a setting is not `KEY=VALUE`.
    """
    from spark_jobs.session import (  # noqa: PLC0415 - needs pyspark, help does not
        build_session,
        end_workers,
    )

    settings: dict[str, str] = {}
    for text in parsed.set:
        key, sign, value = text.partition("=")
        if not sign:
            raise errors.ConfigError(f"--set takes KEY=VALUE, not {text!r}")
        settings[key] = value
    if parsed.memory:
        settings.setdefault("spark.driver.memory", parsed.memory)
    master = parsed.master
    if not master and (parsed.cores or tries > 1):
        master = f"local[{parsed.cores or '*'},{tries}]"
    spark = build_session(f"hourwheel {name}", master=master, settings=settings)
    try:
        yield spark
        end_workers(spark)
    finally:
        spark.stop()


def write_line(content: Any) -> None:
    """One JSON object, on standard output."""
    sys.stdout.write(f"{json.dumps(content)}\n")
    sys.stdout.flush()


def _parser(name: str, command: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"hourwheel {name}", description=command.DESCRIPTION, epilog=_CODES
    )
    add: Callable[[argparse.ArgumentParser], None] = command.add_options
    add(parser)
    add_spark_options(parser)
    return parser


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """What all commands have."""
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--cores", type=_cores, default=0, help="cores to use; default: all")
    spark.add_argument(
        "--memory",
        default="",
        metavar="SIZE",
        help="of Java, such as 2g (the default); Python processes take about 0.5 GB a core beside",
    )
    spark.add_argument("--master", default="", help="another master of Spark than this machine")
    spark.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    parser.add_argument("--json", action="store_true", help="for scripts: one JSON object")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")


def number(text: str) -> int:
    """A number of an option: 0 or more, and no more than fits anywhere."""
    is_short = text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX))
    if not is_short or int(text) > NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {NUMBER_MAX}")
    return int(text)


def _cores(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores")
    return int(text)


def _told(error: Exception) -> tuple[str, str] | None:
    """(reason, message) of what a user can do something about; None: a fault of ours."""
    if isinstance(error, errors.HourwheelError):
        return error.reason, error.message
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").split(".")[0] not in _PARTS:
            return None
        what = f"this command needs {error.name}: `make venv` installs it (the extra `spark`)"
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
