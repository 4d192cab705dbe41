"""The architecture that pyproject.toml describes is that of the tree: nothing is left unchecked."""

import ast
import re
import sys
from typing import Any, Final

import setuptools

from tests.tidy import tree

DISTRIBUTIONS: Final[dict[str, str]] = {
    "crc32c": "crc32c",
    "duckdb": "duckdb",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "lark": "lark",
    "numpy": "numpy",
    "pandas": "pandas",
    "prometheus_client": "prometheus-client",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic-settings",
    "pydantic_settings": "pydantic-settings",
    "pyspark": "pyspark",
    "pysyncobj": "pysyncobj",
    "pytimeparse2": "pytimeparse2",
    "rich": "rich",
    "structlog": "structlog",
    "typer": "typer",
    "xxhash": "xxhash",
}
"""Module that is imported -> distribution that must be declared for it."""

CLI: Final = "hourwheel/cli"
"""What only the command line imports: it may use the `cli` extra."""

FILTERS: Final = tuple(f"hourwheel/filter_language/{name}" for name in ("grammar", "sql", "tags"))
"""Of what reads filters, which a program may be without: it may use the `filters` extra."""


def contract(name: str) -> dict[str, Any]:
    """The import contract whose name begins so."""
    contracts: list[dict[str, Any]] = tree.pyproject()["tool"]["importlinter"]["contracts"]
    found = [each for each in contracts if each["name"].startswith(name)]
    assert len(found) == 1
    return found[0]


def test_every_room_stands_in_the_import_contracts() -> None:
    rooms = set(tree.rooms())
    assert set(tree.pyproject()["tool"]["importlinter"]["root_packages"]) == rooms
    layers = " ".join(contract("rooms stack")["layers"]).replace("|", " ").split()
    assert set(layers) == rooms


def test_every_room_of_the_server_is_core_by_default() -> None:
    server = set(tree.rooms()) - {"hourwheel", "chaos"}
    assert set(contract("the core")["source_modules"]) == server
    assert set(contract("the disk")["source_modules"]) == server


def test_every_room_is_type_checked() -> None:
    files = set(tree.pyproject()["tool"]["mypy"]["files"])
    checked_tests = {f"tests/{name}" for name in ("sim", "support", "tidy")}
    there = {path for path in checked_tests if any(each.startswith(path) for each in tree.files())}
    assert files == set(tree.rooms()) | there


def test_the_wheel_is_the_client_and_nothing_else() -> None:
    find = tree.pyproject()["tool"]["setuptools"]["packages"]["find"]
    packages = setuptools.find_packages(str(tree.ROOT), include=find["include"])
    assert {package.split(".")[0] for package in packages} == {"hourwheel"}
    assert {"hourwheel.v1", "hourwheel.internal.v1"} <= set(packages)


def declared(*extras: str) -> set[str]:
    """Names of the declared dependencies, with those of `extras`."""
    project = tree.pyproject()["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras)]
    return {re.split("[>=]=", entry)[0] for names in lists for entry in names}


def imported(path: str) -> set[str]:
    """Modules that one file imports from outside the tree and the standard library."""
    names: set[str] = set()
    for node in ast.walk(tree.syntax(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "google":
                names.discard("google")
                names.update(f"google.{alias.name}" for alias in node.names)
    own = {*tree.rooms(), *sys.stdlib_module_names}
    outside = {name for name in names if name.split(".")[0] not in own}
    return {".".join(name.split(".")[: 2 if name.startswith("google.") else 1]) for name in outside}


def test_every_import_of_the_client_is_a_declared_dependency() -> None:
    undeclared = [
        f"{path}: {name}"
        for path in tree.modules()
        for name in sorted(imported(path))
        if DISTRIBUTIONS.get(name)
        not in declared(
            *(("cli",) if path.startswith(CLI) else ()),
            *(("filters",) if path.startswith(FILTERS) else ()),
            *(() if path.startswith("hourwheel/") else ("cli", "node")),
            *(("spark",) if path.startswith("spark_jobs/") else ()),
        )
    ]
    assert undeclared == []


def test_every_dependency_has_its_reason_on_a_page() -> None:
    page = tree.text("docs/decisions/0003-dependencies.md")
    assert [name for name in sorted(declared("cli", "node")) if f"`{name}`" not in page] == []
