"""Holds what `make coverage` measured against a floor for each package.

    python -m tests.tidy.coverage_floors build/coverage.json           compare; fails below a floor
    python -m tests.tidy.coverage_floors build/coverage.json --raise   raise the floors to it

A package's coverage is the share of its statements and branches that ran, in percent. The floors
stand in tests/tidy/coverage_floors.toml: one below what it was, rounded down, since a line that
only a race reaches does not always run. They only rise.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.tidy import tree

FLOORS: Final = tree.ROOT / "tests" / "tidy" / "coverage_floors.toml"

HEAD: Final = """\
# Percent of statements and branches that `make coverage` must run at least, by package. They only
# rise: tests/tidy/coverage_floors.py says how.

"""


def package_of(path: str) -> str:
    """The room and the package in it: "node/shard" of "node/shard/apply.py"."""
    return "/".join(path.split("/")[:-1][:2])


def percent_by_package(report: Mapping[str, Any]) -> dict[str, float]:
    """Package -> percent, of coverage's JSON report."""
    counts: dict[str, tuple[int, int]] = {}
    for path, file in report["files"].items():
        one = file["summary"]
        ran, all_ = counts.get(package_of(path), (0, 0))
        counts[package_of(path)] = (
            ran + one["covered_lines"] + one["covered_branches"],
            all_ + one["num_statements"] + one["num_branches"],
        )
    return {name: 100 * ran / all_ for name, (ran, all_) in sorted(counts.items()) if all_}


def find_faults(measured: Mapping[str, float], floors: Mapping[str, int]) -> list[str]:
    """A line for each package that is below its floor, has none, or is gone."""
    faults = [
        f"{name}: {percent:.1f} %, and was {floors[name]} % or more"
        for name, percent in measured.items()
        if name in floors and percent < floors[name]
    ]
    faults += [f"{name}: has no floor" for name in measured if name not in floors]
    faults += [f"{name}: a floor, and no such package" for name in floors if name not in measured]
    return faults


def raised(measured: Mapping[str, float], floors: Mapping[str, int]) -> dict[str, int]:
    """The floors as they may be now: of each package that is there, none lower than before."""
    return {name: max(floors.get(name, 0), int(percent) - 1) for name, percent in measured.items()}


def main(arguments: list[str]) -> int:
    """See the top of this file."""
    measured = percent_by_package(json.loads(Path(arguments[0]).read_text()))
    floors = tomllib.loads(FLOORS.read_text())["floors"] if FLOORS.exists() else {}
    if "--raise" in arguments:
        floors = raised(measured, floors)
        lines = [f'"{name}" = {floor}' for name, floor in sorted(floors.items())]
        FLOORS.write_text(HEAD + "\n".join(["[floors]", *lines]) + "\n")
    for name, percent in measured.items():
        sys.stdout.write(f"{name:32} {percent:6.1f} %   floor {floors.get(name, '-')}\n")
    faults = find_faults(measured, floors)
    sys.stdout.writelines(f"BELOW: {fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
