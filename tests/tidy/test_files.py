"""Sizes, names and content of files."""

import fnmatch
import re
from typing import Final

from tests.tidy import tree

FILE_LINES_MAX: Final = 600
LINE_CHARS_MAX: Final = 100
FILE_BYTES_MAX: Final = 512 * 1024

PLACES: Final = (
    *("*.md", "LICENSE", "NOTICE", "Makefile", "pyproject.toml", "buf.yaml", ".gitignore"),
    *("setup.py", "MANIFEST.in"),
    ".dockerignore",
    *(".ci/run", "requirements/*.txt", "requirements/*.in"),
    *("docs/*.md", "docs/*.toml", "docs/decisions/[0-9][0-9][0-9][0-9]-*.md"),
    *("proto/hourwheel/v1/*.proto", "proto/hourwheel/internal/v1/*.proto"),
    *("proto/api.golden.json", "proto/SOURCES"),
    *("helm/*/*.md", "helm/*/*.yaml", "helm/*/values.schema.json", "helm/*/.helmignore"),
    *("helm/*/templates/*.yaml", "helm/*/templates/*.tpl", "helm/*/templates/NOTES.txt"),
    *("helm/*/templates/tests/*.yaml", "helm/*/ci/*-values.yaml", "helm/*/files/*.sh"),
    *("helm/*/files/*.yaml", "helm/*/files/dashboards/*.json", "helm/monitoring/*.py"),
    *("docs/runbooks/*.md", "docs/guides/*.md", "docs/examples/*.py"),
    *("docs/examples/*.ipynb", "docs/examples/*.md"),
    *("packaging/Containerfile", "packaging/spark.Containerfile"),
    *("packaging/*.toml", "packaging/*.yaml", "packaging/*.py"),
    "packaging/site/conf.py",
    ".github/workflows/*.yml",
    *("tests/tidy/*.toml", "tests/libraries/*.toml"),
    *("packaging/compose/*.toml", "packaging/compose/*.yml", "packaging/compose/*.sh"),
    *("packaging/systemd/*.service", "packaging/systemd/*.sysusers"),
    *("spark_jobs/log4j2.properties",),
    *("node/console/static/*.html", "node/console/static/*.css", "node/console/static/*.svg"),
    *("node/console/static/js/*.js", "node/console/static/js/pages/*.js"),
    *("clients/go/*.go", "clients/go/go.mod", "clients/go/go.sum"),
    *("clients/node/*.js", "clients/node/package.json", "clients/node/package-lock.json"),
    *("hourwheel/py.typed", "hourwheel/internal/__init__.py"),
    *("hourwheel/v1/__init__.py", "hourwheel/v1/*_pb2*.py", "hourwheel/v1/*_pb2.pyi"),
    *("hourwheel/internal/v1/__init__.py", "hourwheel/internal/v1/*_pb2*.py"),
    "hourwheel/internal/v1/*_pb2.pyi",
    *("tests/*.py", "tests/golden/*", "tests/stories/*.txt", "tests/helm/golden/*.txt"),
    *("tests/bench/peers/rocketmq/pom.xml", "tests/bench/peers/rocketmq/*.java"),
)
"""Where a file that is not a module of a room may lie: `*` stands for one path component or a part
of it, except below tests/, which has folders in folders."""

_PLAIN: Final = (
    *(".proto", ".md", ".in", ".yaml", ".yml", ".sh", ".go", ".js", ".service", ".css", ".html"),
    *(".xml", ".java"),
)

_NO_BREAK: Final = re.compile(r"://|@sha256:|^- \[\d{4}\]\(decisions/")
"""In a line that cannot be broken: an address, or an image with its digest."""

MACHINE_WORDS: Final = re.compile(
    r"(?<![\w.])/(?:home|root|Users|work)/|[\w.-]*(?:pythonhosted|artifactory|registry\.npmjs)"
    r"|--(?:extra-)?index-url|--find-links|--trusted-host"
)
"""What is true of one machine or network only, and so has no place in a file that others get."""


def is_at_home(path: str) -> bool:
    return path in tree.modules() or any(
        fnmatch.fnmatchcase(path, place)
        and (place.startswith("tests/") or path.count("/") == place.count("/"))
        for place in PLACES
    )


def test_files_lie_where_they_belong() -> None:
    assert [path for path in tree.files() if not is_at_home(path)] == []


def test_files_are_short_enough_to_read() -> None:
    long = {
        path
        for path in tree.files_named(".py", ".proto")
        if tree.text(path).count("\n") > FILE_LINES_MAX
    }
    assert long == set()


def test_files_are_no_blobs() -> None:
    big = [path for path in tree.files() if (tree.ROOT / path).stat().st_size > FILE_BYTES_MAX]
    assert big == []


def test_lines_are_short_where_ruff_does_not_look() -> None:
    long = [
        f"{path}:{number}"
        for path in (*tree.files_named(*_PLAIN), "Makefile", ".ci/run")
        for number, line in enumerate(tree.text(path).splitlines(), 1)
        if len(line) > LINE_CHARS_MAX and not line.startswith("|") and not _NO_BREAK.search(line)
    ]
    assert long == []


def test_limits_are_not_switched_off_by_comments() -> None:
    off = re.compile(r"#\s*noqa:[^#]*\b(E501|PLR0915|C901|TID251)\b|#\s*ruff:\s*noqa")
    found = [path for path in tree.files_named(".py") if off.search(tree.text(path))]
    assert [path for path in found if path != "tests/tidy/test_files.py"] == []


def test_text_is_clean() -> None:
    unclean = []
    for path in tree.files():
        if path == "LICENSE" or path.startswith((*tree.WIRE, "tests/golden/")):
            continue
        content = tree.text(path)
        if "\r" in content or not (content.endswith("\n") or content == ""):
            unclean.append(f"{path}: line ends")
        if re.search(r"[ \t]+$", content, re.MULTILINE):
            unclean.append(f"{path}: blanks at the end of a line")
        if "\t" in content and path != "Makefile" and not path.startswith("clients/go/"):
            unclean.append(f"{path}: tabs")
    assert unclean == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    named = [
        f"{path}: {match.group()}"
        for path in tree.files()
        if path != "tests/tidy/test_files.py" and not path.startswith("tests/golden/")
        for match in MACHINE_WORDS.finditer(tree.text(path))
    ]
    assert named == []


def test_locks_hold_hashes_and_no_address() -> None:
    locks = [path for path in tree.files() if re.fullmatch(r"requirements/.*\.txt", path)]
    assert locks
    for path in locks:
        content = tree.text(path)
        assert "://" not in content, path
        pins = re.findall(r"^[a-z][^\s=]*==\S+.*\\$", content, re.MULTILINE)
        names = re.findall(r"^[a-z]\S*", content, re.MULTILINE)
        assert len(pins) == len(names), f"{path}: something is not pinned with a hash"


def test_what_a_node_needs_is_locked_alike_for_nodes_and_for_development() -> None:
    pin = re.compile(r"^([a-z]\S*==\S+(?: ; [^\\]*)?)", re.MULTILINE)
    node, dev = (
        set(pin.findall(tree.text(path)))
        for path in ("requirements/node.txt", "requirements/dev.txt")
    )
    assert node <= dev, "run `make lock`"
