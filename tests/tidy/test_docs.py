"""The pages say what the code says: links, names, limits, errors, keys, metrics."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from hourwheel import limits
from hourwheel.formats import record_batch
from storage.views.unit import UNIT
from tests.tidy import made_pages, tree

PAGES: Final = tree.files_named(".md")
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def anchors(path: str) -> set[str]:
    """Names by which the headings of a page can be linked to, as GitHub makes them."""
    prose = FENCE.sub("", tree.text(path))
    headings = re.findall(r"^#+ +(.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: str) -> Iterator[str]:
    """Targets of a page's links to files of this tree, as `path` or `path#anchor` from the root."""
    folder = (tree.ROOT / path).parent
    for target in LINK.findall(FENCE.sub("", tree.text(path))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (folder / name).resolve() if name else tree.ROOT / path
        yield f"{file.relative_to(tree.ROOT)}#{anchor}"


def test_links_between_pages_resolve() -> None:
    broken = []
    for page in PAGES:
        for link in links(page):
            path, _, anchor = link.partition("#")
            if not (tree.ROOT / path).exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_every_page_is_linked_to_from_the_readme() -> None:
    reached, new = set[str](), {"README.md"}
    while new:
        reached |= new
        new = {
            link.split("#")[0] for page in new if page in PAGES for link in links(page)
        } - reached
    assert [page for page in PAGES if page not in reached] == []


def test_pages_named_in_code_exist() -> None:
    named = {
        f"{path}: {page}"
        for path in tree.files_named(".py", ".proto", ".toml", "Makefile")
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|toml)\b", tree.text(path))
        if not (tree.ROOT / page).exists()
    }
    assert sorted(named) == []


def test_files_named_on_pages_exist() -> None:
    rooms = "|".join(tree.rooms())
    path_like = re.compile(rf"`((?:{rooms}|tests|proto)/[\w/]+\.(?:py|proto|json))`")
    missing = {
        f"{page}: {path}"
        for page in PAGES
        if page != "CHANGELOG.md"
        for path in path_like.findall(tree.text(page))
        if not (tree.ROOT / path).exists()
    }
    assert sorted(missing) == []


@pytest.mark.parametrize("path", [*made_pages.PARTS, *made_pages.FILES])
def test_made_parts_of_pages_are_up_to_date(path: str) -> None:
    assert tree.text(path) == made_pages.made(path), "run `make pages`"


def test_every_module_says_what_it_is() -> None:
    silent = [
        path
        for path in tree.modules()
        if not path.endswith("__main__.py") and not made_pages.summary(path)
    ]
    assert silent == []


def test_commands_on_pages_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", tree.text("Makefile"), re.MULTILINE))
    named = {
        f"{page}: {target}"
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", tree.text(page), re.MULTILINE)
        if target not in targets
    }
    assert sorted(named) == []


def test_python_on_pages_compiles_and_imports_what_exists() -> None:
    for page in PAGES:
        for language, code in FENCE.findall(tree.text(page)):
            if language != "python":
                continue
            module = compile(code, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            for node in ast.walk(module):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hourwheel"):
                    exporter = importlib.import_module(node.module or "")
                    missing = [a.name for a in node.names if not hasattr(exporter, a.name)]
                    assert missing == [], f"{page}: {node.module} has no {missing}"


def table_rows(path: str) -> list[list[str]]:
    """Cells of the rows of all tables of a page, without the backquotes."""
    rows = [line for line in tree.text(path).splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def test_limits_page_lists_every_limit_with_its_value() -> None:
    told = {row[0]: row[1].replace(",", "") for row in table_rows("docs/LIMITS.md")}
    true = {name: str(value) for name, value in vars(limits).items() if name.isupper()}
    assert {name: told.get(name) for name in true} == true
    assert {name for name in told if name.isupper() and "_" in name} == set(true)


def config_keys() -> list[str]:
    """`section.key` for each key of the node's configuration, from its classes."""
    sections: dict[str, list[str]] = {}
    files = [path for path in tree.modules() if path.startswith("node/config/")]
    for node in [one for path in files for one in tree.syntax(path).body]:
        if isinstance(node, ast.ClassDef):
            sections[node.name] = [
                f"{each.target.id}:{tree.dotted_name(each.annotation)}"
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            ]
    return [
        f"{section}.{key.split(':')[0]}"
        for section, kind in (entry.split(":") for entry in sections["NodeConfig"])
        for key in sections[kind]
    ]


def test_configuration_page_lists_every_key() -> None:
    keys = config_keys()
    assert len(keys) > len({key.split(".")[0] for key in keys}) > 1
    page = tree.text("docs/CONFIGURATION.md")
    missing = [
        key
        for key in keys
        if not re.search(rf"`(?:{key.split('.')[0]}\.)?{key.split('.')[1]}`", page)
    ]
    assert missing == []


def test_operating_page_lists_every_metric() -> None:
    if "node/metrics/table.py" not in tree.modules():
        return
    names = {
        node.value
        for node in ast.walk(tree.syntax("node/metrics/table.py"))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"hourwheel_[a-z0-9_]+", node.value)
    }
    assert names
    pages = "".join(tree.text(page) for page in PAGES if page.startswith("docs/"))
    assert [name for name in sorted(names) if f"`{name}`" not in pages] == []


def test_decisions_are_numbered_without_gaps_and_have_their_parts() -> None:
    pages = [page for page in PAGES if page.startswith("docs/decisions/")]
    numbers = [int(re.findall(r"\d{4}", page)[0]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for number, page in enumerate(pages, 1):
        content = tree.text(page)
        assert re.match(rf"# {number:04} [^\n]+\n\n\d{{4}}-\d{{2}}-\d{{2}}, \w+", content), page
        headings = re.findall(r"^## (.*)$", content, re.MULTILINE)
        assert headings[:3] == ["Question", "Decision", "Why"], page


def test_decisions_are_all_listed_by_their_titles() -> None:
    listed = re.findall(
        r"^- \[(\d{4})\]\((\S+)\) (.+)$", tree.text("docs/DECISIONS.md"), re.MULTILINE
    )
    pages = [page for page in PAGES if page.startswith("docs/decisions/")]
    titles = [tree.text(page).split("\n")[0].removeprefix("# ") for page in pages]
    found = sorted((f"docs/{page}", f"{number} {title}") for number, page, title in listed)
    assert found == list(zip(pages, titles, strict=True))


def test_links_to_decisions_say_their_numbers() -> None:
    numbered = re.compile(r"\[(\d{4})\]\([^)\s]*?(\d{4})-[^)\s]*\.md")
    found = [(page, *pair) for page in PAGES for pair in numbered.findall(tree.text(page))]
    assert len(found) > 100
    assert [one for one in found if one[1] != one[2]] == []


def test_changelog_tells_of_this_version() -> None:
    version = importlib.import_module("hourwheel").__version__
    assert re.search(
        rf"^## \[(Unreleased|{re.escape(version)})\]", tree.text("CHANGELOG.md"), re.MULTILINE
    )


def fields_told(heading: str) -> dict[str, tuple[int, int]]:
    """Field -> (byte, size) as the table below a heading of docs/FORMATS.md says."""
    section = tree.text("docs/FORMATS.md").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", section, re.MULTILINE)
    return {name: (int(at), int(size)) for at, size, name in rows}


def test_formats_page_draws_the_unit_as_it_is() -> None:
    fields: Mapping[str, Any] = UNIT.fields or {}
    true = {name: (fields[name][1], fields[name][0].itemsize) for name in UNIT.names or ()}
    assert fields_told("Unit") == true


def test_formats_page_draws_the_record_batch_header_as_it_is() -> None:
    told = fields_told("Record batch")
    assert tuple(told) == record_batch.Header._fields
    numbers = range(1, len(told) + 1)
    raw = record_batch._STRUCT.pack(*numbers)
    read = [int.from_bytes(raw[at : at + size], "little") for at, size in told.values()]
    assert read == list(numbers)


def test_formats_page_gives_each_kind_its_number_and_row() -> None:
    section = tree.text("docs/FORMATS.md").split("\n## Record batch\n")[1].split("\n## ")[0]
    for kind in record_batch.Kind:
        row = re.findall(rf"^\| {kind.name} \| {int(kind)} \|([^|]*)\|", section, re.MULTILINE)
        assert len(row) == 1, kind
        if kind in record_batch.ROWS:
            dtype = record_batch.ROWS[kind]
            kinds = {"<i8": "i64", "<u8": "u64", "<u4": "u32"}
            fields = [f"{name} {kinds[dtype[name].str]}" for name in dtype.names or ()]
            assert row[0].strip() == f"{dtype.itemsize}: {', '.join(fields)}"
