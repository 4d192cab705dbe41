"""What the tidy tests look at: the files of the tree that git knows or would add."""

import ast
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
WIRE: Final = ("hourwheel/v1/", "hourwheel/internal/")
"""Where generated code lies, all of it or none; it follows its generator's style and not ours."""


@cache
def files() -> tuple[str, ...]:
    """Paths of all files that are tracked or would be, relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(path for path in set(listed.split("\0")) if (ROOT / path).is_file()))


def files_named(*suffixes: str) -> tuple[str, ...]:
    """Those of `files` that end so, generated ones left out."""
    return tuple(path for path in files() if path.endswith(suffixes) and not path.startswith(WIRE))


@cache
def text(path: str) -> str:
    """Content of one file, which must be UTF-8."""
    return (ROOT / path).read_bytes().decode()


@cache
def syntax(path: str) -> ast.Module:
    """Syntax tree of one Python file."""
    return ast.parse(text(path), path)


@cache
def pyproject() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads(text("pyproject.toml"))


@cache
def rooms() -> tuple[str, ...]:
    """The Python packages at the root: `hourwheel` and the server's rooms."""
    return tuple(
        path.removesuffix("/__init__.py")
        for path in files()
        if path.endswith("/__init__.py") and path.count("/") == 1
    )


@cache
def modules() -> tuple[str, ...]:
    """Paths of all hand-written modules in all rooms."""
    return tuple(path for path in files_named(".py") if path.split("/")[0] in rooms())


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` for an attribute or name, else an empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
