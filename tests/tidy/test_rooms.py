"""The architecture that pyproject.toml describes is that of the tree: nothing is left unchecked."""

import ast
import re
import sys
from typing import Any, Final

import pytest
import setuptools

from tests.tidy import tree

DISTRIBUTIONS: Final[dict[str, str]] = {
    "argon2": "argon2-cffi",
    "crc32c": "crc32c",
    "cronsim": "cronsim",
    "cryptography": "cryptography",
    "dramatiq": "dramatiq",
    "duckdb": "duckdb",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "h11": "h11",
    "jwt": "pyjwt",
    "kombu": "kombu",
    "lark": "lark",
    "numpy": "numpy",
    "obstore": "obstore",
    "opentelemetry": "opentelemetry-api",
    "pandas": "pandas",
    "prometheus_client": "prometheus-client",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic-settings",
    "pytest": "pytest",
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

CLI: Final = ("hourwheel/cli", "hourwheel/due_time.py")
"""What only the command line and programs with the extra `workers`, which has it, import: it may
use the `cli` extra."""

FILTERS: Final = tuple(f"hourwheel/filter_language/{name}" for name in ("grammar", "sql", "tags"))
"""Of what reads filters, which a program may be without: it may use the `filters` extra."""


TRACING: Final = "hourwheel/otel.py"
"""What only programs import that trace: it may use the `otel` extra."""
TESTING: Final = "hourwheel/testing/"
"""What only tests of programs import."""

OTHERS: Final = {
    "hourwheel/integrations/dramatiq.py": "dramatiq",
    "hourwheel/integrations/kombu.py": "celery",
    "node/tools/backup/object_store.py": "s3",
}
"""What is made for another library, and the extra that has it."""
WEB: Final = ("hourwheel/gateway", "hourwheel/webhooks")
"""What only `hourwheel http` and `push` import: it may use the extra, which has pydantic itself."""
WEB_DISTRIBUTIONS: Final = {
    **DISTRIBUTIONS,
    **dict.fromkeys(("pydantic", "pydantic_core"), "pydantic"),
}

_PROCESSES: Final = {"node", "node.process", "node.tools", "node.cluster", "node.telemetry"}
_JOBS: Final = {"spark_jobs", "spark_jobs.commands", "spark_jobs.runtime", "spark_jobs.schedule"}
_CONTROL: Final = {"replication", "replication.control", "replication.raft"}
SHELLS: Final = {
    *(*_PROCESSES, *_JOBS, *_CONTROL),
    *(
        "node.access",
        "node.api",
        "node.broker",
        "node.catalog",
        "node.consumers",
        "node.console",
        "node.metrics",
    ),
    "node.repair",
}
"""Packages that have sockets, threads, clocks or an event loop; all others are core."""

DISK_SHELLS: Final = {
    *(*_PROCESSES, *_JOBS, *_CONTROL),
    *("node.access", "node.config", "node.console", "storage", "storage.files"),
}
"""Packages that know the file system; all others are handed a `Disk`."""


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


def server_packages() -> set[str]:
    """The server's rooms, and the packages of those that have some."""
    folders = {path.rsplit("/", 1)[0] for path in tree.modules()}
    names = {".".join(folder.split("/")[:2]) for folder in folders}
    return {name for name in names if name.split(".")[0] not in {"hourwheel", "chaos"}}


def covers(contracts: list[str], package: str) -> bool:
    """Whether a contract speaks of the package: by its name or by its room's."""
    return any(package == one or package.startswith(f"{one}.") for one in contracts)


@pytest.mark.parametrize(("name", "shells"), [("the core", SHELLS), ("the disk", DISK_SHELLS)])
def test_every_package_of_the_server_is_core_or_a_shell(name: str, shells: set[str]) -> None:
    core = contract(name)["source_modules"]
    rest = {package for package in server_packages() if not covers(core, package)}
    assert rest == shells


def test_every_room_is_type_checked() -> None:
    files = set(tree.pyproject()["tool"]["mypy"]["files"])
    checked_tests = {f"tests/{name}" for name in ("sim", "support", "tidy")}
    there = {path for path in checked_tests if any(each.startswith(path) for each in tree.files())}
    assert files == set(tree.rooms()) | there | {"packaging", "helm/monitoring"}


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
        if (WEB_DISTRIBUTIONS if path.startswith(WEB) else DISTRIBUTIONS).get(name)
        not in declared(
            *(("cli",) if path.startswith(CLI) else ()),
            *(("filters",) if path.startswith(FILTERS) else ()),
            *(("otel",) if path == TRACING else ()),
            *(("testing",) if path.startswith(TESTING) else ()),
            *((OTHERS[path],) if path in OTHERS else ()),
            *(("http",) if path.startswith(WEB) else ()),
            *(() if path.startswith("hourwheel/") else ("cli", "node")),
            *(("spark",) if path.startswith("spark_jobs/") else ()),
        )
    ]
    assert undeclared == []


def test_every_dependency_has_its_reason_on_a_page() -> None:
    page = tree.text("docs/decisions/0003-dependencies.md")
    assert [name for name in sorted(declared("cli", "node")) if f"`{name}`" not in page] == []


def test_docstring_of_the_node_lists_its_packages_in_the_order_of_the_contract() -> None:
    contracts = tree.pyproject()["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["node"])
    prose = ast.get_docstring(tree.syntax("node/__init__.py")) or ""
    listed = re.findall(r"^    (\w+)  +\S", prose, re.MULTILINE)
    assert listed == [layer for layer in layers if not layer.startswith("__")]
