"""`hourwheel export`: bring a lake of Parquet files up to date with the logs."""

import argparse
import sys
from dataclasses import asdict
from typing import Final

from spark_jobs.commands.options import EXIT_OK, open_session, write_line
from spark_jobs.runtime.progress import Progress

DESCRIPTION: Final = (
    "Write what is new in the logs to a partitioned lake of Parquet files: messages, dispatches,"
    " cancels, resolves, and the outcome of each message. Run it again to go on; a run that was"
    " broken off is repeated by the next one."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="as for audit")
    parser.add_argument("--lake", required=True, metavar="DIR", help="folder or URI of the lake")
    parser.add_argument(
        "--bodies", action="store_true", help="also tags, keys, properties and bodies"
    )
    parser.add_argument(
        "--no-outcomes", action="store_true", help="leave out what became of each message"
    )


def run(parsed: argparse.Namespace) -> int:
    """Export. Raises as `log_export.export`."""
    with open_session(parsed, "export") as spark:
        from spark_jobs.lake.export import export  # noqa: PLC0415 - after Java was found

        with Progress(
            spark.sparkContext, "exporting", is_quiet=parsed.quiet or parsed.json
        ) as progress:
            found = export(
                spark,
                parsed.paths,
                parsed.lake,
                bodies=parsed.bodies,
                outcomes=not parsed.no_outcomes,
                progress=progress,
            )
    if parsed.json:
        write_line({"lake": parsed.lake, "shards": [asdict(one) for one in found]})
        return EXIT_OK
    for one in found:
        sys.stdout.write(
            f"shard {one.shard}: offsets {one.from_offset:,} to {one.to_offset:,},"
            f" {one.messages:,} messages\n"
        )
        if one.trimmed_bytes:
            sys.stdout.write(f"  {one.trimmed_bytes:,} bytes before that were trimmed\n")
        for doubt in one.doubts:
            sys.stdout.write(f"  note: {doubt}\n")
    return EXIT_OK
