"""Which private names of other objects tests look at, counted file by file.

    python -m tests.tidy.private_names     lower the list to what there is now

A test that reaches into an object breaks when the object is built differently, though it does the
same. What a test must see is an effect; what it must vary is passed in. The list in
tests/tidy/private_names.toml says how many such places each file still has. It only shrinks.
"""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy import tree

LIST: Final = tree.ROOT / "tests" / "tidy" / "private_names.toml"
HEAD: Final = """\
# Places in tests that look at private names of other objects, by file. They only get fewer:
# tests/tidy/private_names.py says how.

"""
_NAMED_TUPLES: Final = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public in spite of their names."""


def is_private(name: str) -> bool:
    """Whether a name is its owner's business."""
    return name.startswith("_") and not name.startswith("__") and name not in _NAMED_TUPLES


def find_places(module: ast.Module) -> Iterator[int]:
    """Lines at which something of another object's is private: looked at, or patched."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not _is_own(node.value):
                yield node.lineno
        elif isinstance(node, ast.Call) and tree.dotted_name(node.func).endswith(".setattr"):
            texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            if any(isinstance(one, str) and is_private(one.split(".")[-1]) for one in texts):
                yield node.lineno


def _is_own(owner: ast.expr) -> bool:
    if isinstance(owner, ast.Call):
        return tree.dotted_name(owner.func) == "super"
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls"}


def counted() -> dict[str, int]:
    """File of tests -> how many places it has, if any."""
    paths = [path for path in tree.files_named(".py") if path.startswith("tests/")]
    counts = {path: len(list(find_places(tree.syntax(path)))) for path in paths}
    return {path: count for path, count in counts.items() if count}


def allowed() -> dict[str, int]:
    """What the list says."""
    return tomllib.loads(LIST.read_text())


def find_faults(counts: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """A line for each file that has more places than it may."""
    return [
        f"{path}: {count} private names of others, where {limits.get(path, 0)} were"
        for path, count in counts.items()
        if count > limits.get(path, 0)
    ]


def lowered(counts: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """The list as it may be now: none higher than before."""
    return {path: min(limits[path], count) for path, count in counts.items() if path in limits}


def _write() -> None:
    lines = [f'"{path}" = {count}\n' for path, count in lowered(counted(), allowed()).items()]
    LIST.write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    _write()
