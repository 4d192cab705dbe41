"""Parts of pages that are made from the code: files, errors, keys of log events, examples.

`make pages` (`python -m tests.tidy.made_pages`) writes them again; a test compares them.
"""

import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import PurePosixPath
from typing import Final

from hourwheel import errors
from tests.tidy import chart_pages, log_events, tree


def folder_of(path: str) -> str:
    """The folder that a file lies in."""
    return path.rsplit("/", 1)[0]


def summary(path: str) -> str:
    """First sentence of a module's docstring, on one line."""
    paragraph = (ast.get_docstring(tree.syntax(path)) or "").split("\n\n")[0]
    line = " ".join(paragraph.split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", line)[0].rstrip(".:").replace("|", r"\|")


def map_of_files() -> str:
    """One line for each module: a table a folder."""
    lines: list[str] = []
    for folder, paths in groupby(sorted(tree.modules(), key=folder_of), key=folder_of):
        listed = [path for path in paths if not path.endswith("__init__.py")]
        lines += [f"## {folder}/", "", summary(f"{folder}/__init__.py") + ".", ""]
        if listed:
            lines += ["| File | What it is |", "|---|---|"]
            lines += [f"| `{path.rsplit('/', 1)[1]}` | {summary(path)} |" for path in listed]
            lines += [""]
    return "\n".join(lines).rstrip("\n")


def on_the_wire(root: type[errors.HourwheelError]) -> Iterator[type[errors.HourwheelError]]:
    """The errors below `root` that a client can be told, parents before children."""
    for each in root.__subclasses__():
        if each is not errors.StartupError and each.__module__ == errors.__name__:
            yield each
            yield from on_the_wire(each)


def table_of_errors() -> str:
    """One line for each typed reason."""
    lines = ["| Reason | gRPC code | Try again? | What it says |", "|---|---|---|---|"]
    for each in on_the_wire(errors.HourwheelError):
        text = " ".join((each.__doc__ or "").split())
        again = "yes" if each.retriable else "no"
        lines.append(f"| `{each.reason}` | {each.code} | {again} | {text} |")
    return "\n".join(lines)


EXAMPLES: Final = {
    path: path.removesuffix(".md")
    for path in tree.files_named(".md")
    if path.startswith("docs/examples/")
}
"""Page of an example -> the program that it is named after, without a suffix."""


def programs_of(page: str) -> list[str]:
    """The files that a page of an example shows: that of its name, and what belongs to it."""
    stem = EXAMPLES[page]
    found = {
        "docs/examples/django_shop": [f"{stem}.py", "docs/examples/django_worker.py"],
        "docs/examples/time_by_hand": [f"{stem}.ipynb"],
    }
    return found.get(stem, [f"{stem}.py"])


def program_of_example(page: str) -> str:
    """All of its programs, each below a link to the file."""
    parts: list[str] = []
    for path in programs_of(page):
        code = _cells(path) if path.endswith(".ipynb") else tree.text(path)
        name = PurePosixPath(path).name
        parts += [f"[{name}]({name}):\n\n```python\n{code}```"]
    return "\n\n".join(parts)


def _cells(path: str) -> str:
    """The code of a notebook, with what stands between as comments."""
    parts = []
    for cell in json.loads(tree.text(path))["cells"]:
        text = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(text if is_code else "\n#\n".join(map(_comment, text.split("\n\n"))))
    return "\n\n".join(parts) + "\n"


def _comment(paragraph: str) -> str:
    return textwrap.fill(paragraph, 100, initial_indent="# ", subsequent_indent="# ")


PARTS: Final[dict[str, Callable[[], str]]] = {
    **{page: partial(program_of_example, page) for page in EXAMPLES},
    "docs/FILES.md": map_of_files,
    "docs/ERRORS.md": table_of_errors,
    "docs/LOGS.md": log_events.table_of_keys,
    "helm/hourwheel/README.md": chart_pages.table_of_values,
}
"""Page -> what makes the part between its marks."""

FILES: Final[dict[str, Callable[[], str]]] = {chart_pages.SCHEMA: chart_pages.schema}
"""File -> what makes all of it."""

BEGIN: Final = "<!-- begin: made by `make pages` -->"
END: Final = "<!-- end: made by `make pages` -->"


def made(path: str) -> str:
    """The file at `path`, or a page with its made part, as the code has it now."""
    if path in FILES:
        return FILES[path]()
    head, rest = tree.text(path).split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n\n{PARTS[path]()}\n\n{END}{tail}"


def main() -> None:
    """Write all made parts into their pages."""
    for path in (*PARTS, *FILES):
        (tree.ROOT / path).write_text(made(path))
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
