"""How `make site` makes a site of the pages: `sphinx-build -c packaging/site . build/site`.

The pages are read where they lie, and stay readable as they are: nothing in them is for Sphinx. A
link to a page or heading that is not there is an error (-W).
"""

import shutil
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]

project = "Hourwheel"
copyright = "the authors of Hourwheel"  # noqa: A001 - Sphinx wants this name
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "helm/**.md", "clients/**.md"]
exclude_patterns = [".*", "build", "dist"]
nitpicky = True

myst_heading_anchors = 4
"""Headings can be linked to as on GitHub, down to this level."""

html_theme = "alabaster"
html_theme_options = {"description": "A durable delay-message broker", "page_width": "70em"}
html_copy_source = False
html_show_sphinx = False

_CHAPTERS: Final = {
    "Using it": ("INSTALL", "CLIENT", "FILTERS", "ERRORS", "LIMITS"),
    "Running it": ("OPERATING", "CONSOLE", "CONFIGURATION", "METRICS", "AUDIT"),
    "How it works": ("ARCHITECTURE", "FORMATS", "GLOSSARY", "TESTING", "CHAOS"),
}


def _contents() -> str:
    """A table of contents for the side: chapters, what is in none of them, decisions."""
    named = {page for pages in _CHAPTERS.values() for page in pages}
    others = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem not in named)
    top = sorted(path.stem for path in ROOT.glob("*.md") if path.stem != root_doc)
    chapters = {title: [f"docs/{page}" for page in pages] for title, pages in _CHAPTERS.items()}
    chapters["How it works"] += [f"docs/{page}" for page in others]
    chapters["The project"] = [*top, "helm/hourwheel/README", "helm/hourwheel/UPGRADING"]
    chapters["Guides"] = ["docs/guides/*"]
    chapters["Examples"] = ["docs/examples/*"]
    chapters["Alerts"] = ["docs/runbooks/*"]
    chapters["Decisions"] = ["docs/decisions/*"]
    return "".join(
        "\n\n```{toctree}\n:hidden:\n:glob:\n:caption: "
        + title
        + "\n\n"
        + "\n".join(pages)
        + "\n```\n"
        for title, pages in chapters.items()
    )


def _add_contents(_app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += _contents()


def _add_index(app: Any, failure: Exception | None) -> None:
    """The first page by the name that servers look for."""
    if failure is None:
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _add_index)
