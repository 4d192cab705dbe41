"""What the commands on Spark share: options, a session for as long as one runs, exit codes."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from hourwheel import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBER_MAX: Final = 1_000_000_000
EXIT_OK: Final = 0
EXIT_FOUND: Final = 1


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
