"""Builds the wheel: the client as it lies in the tree, and the server's rooms in one folder of it.

All else about the package stands in pyproject.toml. The rooms keep their names in the tree, where
`python -m node` works; in a wheel they lie in `hourwheel/_rooms`, so that no package with a name as
common as `node` or `storage` lands beside others' packages. `hourwheel.cli.server_commands` puts
that folder on the path. Why not otherwise: docs/decisions/0027-the-server-in-the-wheel.md.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOMS = ("filters", "node", "replication", "spark_jobs", "storage", "timewheel")
FOLDER = "hourwheel/_rooms"
_SUFFIXES = {".py", ".properties", ".html", ".css", ".js", ".svg"}


class BuildWithRooms(build_py):
    """`build_py`, and the rooms."""

    def _rooms(self) -> list[tuple[Path, Path]]:
        """(file in the tree, place in what is built)."""
        if self.editable_mode:
            return []
        built = Path(self.build_lib) / FOLDER
        found = (path for room in ROOMS for path in sorted(Path(room).rglob("*")))
        return [(path, built / path) for path in found if path.suffix in _SUFFIXES]

    def run(self) -> None:
        """Build, and copy the rooms."""
        super().run()
        for source, target in self._rooms():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002
        """All files that are built."""
        return [*super().get_outputs(include_bytecode), *(str(to) for _, to in self._rooms())]

    def get_source_files(self) -> list[str]:
        """All files that are needed to build it."""
        rooms = (path for room in ROOMS for path in Path(room).rglob("*"))
        return [
            *super().get_source_files(),
            *(str(one) for one in rooms if one.suffix in _SUFFIXES),
        ]


setup(cmdclass={"build_py": BuildWithRooms})
