"""`hourwheel schedule`: schedule the rows of files, each once, however often it is run."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from hourwheel.instants import INSTANT_MS_MIN
from hourwheel.transport.access_files import AccessFiles
from hourwheel.transport.channel import SERVER_DEFAULT
from spark_jobs.commands.options import EXIT_FOUND, EXIT_OK, number, open_session, write_line
from spark_jobs.runtime.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DESCRIPTION: Final = (
    "Schedule each row of some files as a message. The job's name stands for its rows: run it"
    " again after whatever happened, and no row is scheduled twice."
)
TRIES: Final = 4
_TIMES: Final = {"due": "TIMESTAMP", "due_ms": "BIGINT", "delay_ms": "BIGINT"}
_ACCESS: Final = {
    "tls_ca": "who signs the nodes' certificates, or `system`",
    "tls_cert": "your own certificate",
    "tls_key": "its private key",
    "token_file": "a signed token that says who you are",
    "login_file": "a user's name, a colon, and the secret",
}
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
    for name, text in _ACCESS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            default=os.environ.get(f"HOURWHEEL_{name.upper()}", ""),
            metavar="FILE",
            help=f"{text}; a path that executors have, too",
        )
    parser.add_argument("--job", required=True, help="names the rows")
    parser.add_argument(
        "--ledger", required=True, metavar="DIR", help="folder or URI that all executors reach"
    )
    parser.add_argument("--topic", default=None, help="for rows without one")
    parser.add_argument(
        "--due-ms-min",
        type=number,
        default=INSTANT_MS_MIN,
        metavar="MS",
        help="earlier instants are bad rows, as seconds by mistake (2001-01-01); 0: take all",
    )
    parser.add_argument(
        "--parallelism", type=number, default=0, metavar="N", help="senders at one time"
    )
    parser.add_argument(
        "--retry-refused", action="store_true", help="try again what was refused or left in doubt"
    )
    parser.add_argument(
        "--send-in-doubt",
        action="store_true",
        help="with --retry-refused: send what may have been scheduled before; may double rows",
    )


def with_times(texts: "DataFrame") -> "DataFrame":
    """A table of texts, with times where there are columns of them; what is none becomes NULL.

    Types are not guessed from the rows: a body that looks like a number is a text all the same.
    """
    return texts.selectExpr(
        *(
            f"try_cast(`{name}` AS {_TIMES[name]}) AS `{name}`" if name in _TIMES else f"`{name}`"
            for name in texts.columns
        )
    )


def run(parsed: argparse.Namespace) -> int:
    """Schedule. Raises as `bulk_schedule.schedule`."""
    with open_session(parsed, "schedule", tries=TRIES) as spark:
        from spark_jobs.schedule.bulk import schedule  # noqa: PLC0415 - after Java was found

        reader = spark.read.format(parsed.format)
        is_csv = parsed.format == "csv"
        rows = (reader.option("header", "true") if is_csv else reader).load(parsed.files)
        is_quiet = parsed.quiet or parsed.json
        with Progress(spark.sparkContext, "scheduling", is_quiet=is_quiet):
            done = schedule(
                with_times(rows) if is_csv else rows,
                server=parsed.server,
                access_files=AccessFiles(**{name: getattr(parsed, name) for name in _ACCESS}),
                job=parsed.job,
                ledger=parsed.ledger,
                topic=parsed.topic,
                due_ms_min=parsed.due_ms_min,
                parallelism=parsed.parallelism,
                retry_refused=parsed.retry_refused,
                sends_in_doubt=parsed.send_in_doubt,
            )
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
