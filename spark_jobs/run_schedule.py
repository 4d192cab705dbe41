"""`hourwheel schedule`: schedule the rows of files, each once, however often it is run."""

import argparse
import os
import sys
from typing import Final

from hourwheel.channel import SERVER_DEFAULT
from spark_jobs.progress import Progress
from spark_jobs.run import EXIT_FOUND, EXIT_OK, open_session, write_line

DESCRIPTION: Final = (
    "Schedule each row of some files as a message. The job's name stands for its rows: run it"
    " again after whatever happened, and no row is scheduled twice."
)
_TRIES: Final = 4
_FORMATS: Final = ("parquet", "json", "csv", "orc")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or folders, of one schema")
    parser.add_argument("--format", choices=_FORMATS, default="parquet", help="(%(default)s)")
    parser.add_argument(
        "--server",
        default=os.environ.get("HOURWHEEL_SERVER", SERVER_DEFAULT),
        metavar="HOST:PORT,...",
        help="a node; of a cluster, several with commas (%(default)s)",
    )
    parser.add_argument("--job", required=True, help="names the rows")
    parser.add_argument(
        "--ledger", required=True, metavar="DIR", help="folder or URI that all executors reach"
    )
    parser.add_argument("--topic", default=None, help="for rows without one")
    parser.add_argument(
        "--parallelism", type=int, default=0, metavar="N", help="senders at one time"
    )
    parser.add_argument(
        "--retry-refused", action="store_true", help="try again what was refused or left in doubt"
    )
    parser.add_argument(
        "--send-in-doubt",
        action="store_true",
        help="with --retry-refused: send what may have been scheduled before; may double rows",
    )


def run(parsed: argparse.Namespace) -> int:
    """Schedule. Raises as `bulk_schedule.schedule`."""
    spark = open_session(parsed, "schedule", tries=_TRIES)
    try:
        from spark_jobs.bulk_schedule import schedule  # noqa: PLC0415 - after Java was found

        reader = spark.read.format(parsed.format)
        if parsed.format == "csv":
            reader = reader.option("header", "true").option("inferSchema", "true")
        is_quiet = parsed.quiet or parsed.json
        with Progress(spark.sparkContext, "scheduling", is_quiet=is_quiet):
            done = schedule(
                reader.load(parsed.files),
                server=parsed.server,
                job=parsed.job,
                ledger=parsed.ledger,
                topic=parsed.topic,
                parallelism=parsed.parallelism,
                retry_refused=parsed.retry_refused,
                sends_in_doubt=parsed.send_in_doubt,
            )
    finally:
        spark.stop()
    if parsed.json:
        write_line(done.as_json())
    else:
        sys.stdout.write(
            f"{done.rows:,} rows: {done.scheduled:,} scheduled now, {done.repeated:,} before,"
            f" {done.bad:,} bad, {done.refused:,} refused, {done.in_doubt:,} in doubt\n"
        )
        for reason, count in sorted(done.reasons.items()):
            sys.stdout.write(f"  {count:>10,}  {reason}\n")
        if done.problems:
            sys.stdout.write(f"  {done.problems}\n")
    return EXIT_OK if done.is_complete else EXIT_FOUND
