"""What goes to a Spark cluster: a zip of the rooms for `--py-files`, and a program to start with.

    python -m spark_jobs.runtime.packing build/spark
    spark-submit --py-files build/spark/rooms.zip build/spark/hourwheel_spark.py audit s3a://logs/

The same tree gives the same bytes. Native packages (numpy, pyarrow, pandas, grpcio, crc32c, xxhash,
protobuf) are not in it: they belong into the executors' image or environment.
"""

import sys
import zipfile
from pathlib import Path
from typing import Final

ROOMS: Final = ("hourwheel", "storage", "timewheel", "filters", "spark_jobs")
ZIP: Final = "rooms.zip"
PROGRAM: Final = "hourwheel_spark.py"
_PROGRAM_TEXT: Final = '''"""Starts a command of Hourwheel on Spark: see docs/AUDIT.md."""

import sys

from spark_jobs.run import main

sys.exit(main())
'''
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)


def pack(root: Path, folder: Path) -> list[Path]:
    """Write both files into `folder`; gives their paths.

    Args:
        root: of the tree.
        folder: made if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, program = folder / ZIP, folder / PROGRAM
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as rooms:
        for room in ROOMS:
            for path in sorted((root / room).rglob("*.py")):
                name = path.relative_to(root).as_posix()
                rooms.writestr(zipfile.ZipInfo(name, _LONG_AGO), path.read_bytes())
    program.write_text(_PROGRAM_TEXT)
    return [archive, program]


def main(arguments: list[str]) -> int:
    """Pack this tree into the folder that is given; prints what was written."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m spark_jobs.runtime.packing FOLDER\n")
        return 2
    for path in pack(Path(__file__).resolve().parents[2], Path(arguments[0])):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
