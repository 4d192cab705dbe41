"""`hourwheel forecast`: what falls due when, by topic."""

import argparse
import sys
from typing import Final

from spark_jobs.commands.options import EXIT_OK, number, open_session, write_line
from spark_jobs.runtime.progress import Progress

DESCRIPTION: Final = (
    "Count the pending messages in the logs by topic and by the minute they are due."
)
_ROWS: Final = 24


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="as for audit")
    parser.add_argument(
        "--out", default="", metavar="DIR", help="where forecast.parquet and .csv go; else nowhere"
    )
    parser.add_argument(
        "--rows", type=number, default=_ROWS, metavar="N", help="of each table (%(default)s)"
    )


def run(parsed: argparse.Namespace) -> int:
    """Count and show. Raises as `load_forecast.make_forecast`."""
    with open_session(parsed, "forecast") as spark:
        from spark_jobs.lake import forecast as load_forecast  # noqa: PLC0415 - after Java was found
        from spark_jobs.runtime.runner import SparkRunner  # noqa: PLC0415

        with Progress(
            spark.sparkContext, "counting", is_quiet=parsed.quiet or parsed.json
        ) as progress:
            runner = SparkRunner(spark.sparkContext)
            forecast = load_forecast.make_forecast(runner, parsed.paths, progress=progress)
    written = load_forecast.write(forecast, parsed.out) if parsed.out else {}
    if parsed.json:
        write_line({**forecast.summary(parsed.rows), "files": written})
        return EXIT_OK
    text = [*load_forecast.lines(forecast, parsed.rows), *(f"  {uri}" for uri in written.values())]
    sys.stdout.write("".join(f"{line}\n" for line in text))
    return EXIT_OK
