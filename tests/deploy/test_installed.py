"""What users install: a wheel, in an environment of its own, used in an empty folder."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

from hourwheel import __version__
from tests.support.addresses import free_address
from tests.support.eventually import until
from tests.support.guide_commands import commands_of, fenced
from tests.tidy import tree

PROGRAM: Final = """
from pathlib import Path

from hourwheel import App
from hourwheel.testing import Broker

app = App(group="shop")
seen = []

@app.handler("orders")
def note(order: dict) -> None:
    seen.append(order["id"])

with Broker(Path("broker")) as broker:
    broker.run(app)
    app.publish("orders", {"id": 17}, in_="30d")
    broker.clock.advance("31d")
print(seen, broker.clock.now.date())
"""
"""A test of a user, without pytest."""
COMMANDS: Final = ("node", "cluster", "demo", "inspect")
FIRST_HOUR: Final = "docs/guides/first-hour.md"
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
FOR_WORKERS: Final = ("anyio", "idna", "watchfiles")
"""What the extra `workers` needs and `server` does not."""


def environ_without_the_tree(**values: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HOURWHEEL_"))}
    return {**kept, **values}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that knows nothing of the tree."""
    environ = environ_without_the_tree()
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for path in tree.files():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree.ROOT / path, target)
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source, cwd=folder)
    (made,) = folder.glob("*.whl")
    shutil.rmtree(source)
    return made


def install(wanted: str, folder: Path, *more: str) -> Path:
    """An environment that has the wheel with extras: the folder of its commands.

    Args:
        wanted: the wheel, with the extras.
        folder: where the environment will be.
        more: packages that they need, and a node does not.
    """
    env = folder / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=folder)
    locked = re.findall(r"^([\w.-]+)==", tree.text("requirements/node.txt"), re.MULTILINE)
    for name in (*locked, *more):
        copy_package(name, packages_of(env))
    command = ("--python", env, "install", "--no-index")  # all that it needs is there
    run(*PIP, *command, wanted, cwd=folder)
    return env / "bin"


def packages_of(env: Path) -> Path:
    (packages,) = (env / "lib").glob("python3*/site-packages")
    return packages


def copy_package(name: str, packages: Path) -> None:
    """Nothing of what it needs: each is locked by itself, as `make` has installed it for us."""
    try:
        parts = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return  # for another platform: where it is needed, the wheel is not installed
    for part in parts:
        if ".." not in part.parts and part.locate().is_file():  # a command is not below
            target = packages / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(part.locate(), target)  # with the time that compiled files name


def files_of(commands: Path) -> list[str]:
    """What the wheel has brought, below site-packages."""
    (told,) = packages_of(commands.parent).glob("hourwheel-*.dist-info/RECORD")
    files = [line.split(",")[0] for line in told.read_text().splitlines()]
    return [file for file in files if not file.startswith("../")]


def test_wheel_is_one_package_whose_demo_runs_in_an_empty_folder(
    wheel: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    commands = install(f"{wheel}[server]", tmp_path)
    files = files_of(commands)
    assert "hourwheel/_rooms/node/process/app.py" in files
    console = f"{tree.ROOT}/node/console/static"
    pages = {str(one.relative_to(tree.ROOT)) for one in Path(console).rglob("*") if one.is_file()}
    assert pages
    assert {f"hourwheel/_rooms/{page}" for page in pages} <= set(files)
    packages = {file.split("/")[0] for file in files}
    assert {one for one in packages if not one.endswith(".dist-info")} == {"hourwheel"}

    hourwheel, data = commands / "hourwheel", empty / "kept"
    assert run(hourwheel, "--version", cwd=empty).stdout == f"{__version__}\n"
    for command in COMMANDS:
        assert run(hourwheel, command, "--help", cwd=empty).stdout
    played = ("--plain", "--json", "--seconds", "4", "--count", "200", "--keep", data)
    summary = json.loads(run(hourwheel, "demo", *played, cwd=empty).stdout)
    assert (summary["missing"], summary["duplicated"], summary["early"]) == (0, 0, 0)
    assert summary["scheduled"] > 200
    assert run(hourwheel, "inspect", data / "node-1", "--verify", cwd=empty).stdout
    tried = run(commands / "python", "-c", PROGRAM, cwd=empty)
    assert tried.stdout == "[17] 2030-02-01\n"


@contextmanager
def running(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[Path]:
    """A command that runs until it is ended; the file of what it says."""
    said = folder / f"{command[1]}.txt"
    with said.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=file, stderr=file)
    try:
        yield said
        assert process.poll() is None, said.read_text()
    finally:
        process.terminate()
        process.wait()


async def test_the_first_hour_is_three_commands_and_a_program(wheel: Path, tmp_path: Path) -> None:
    """As the page has them, word for word, but for ports, and where the wheel comes from."""
    (install_it,) = [words for words in commands_of(FIRST_HOUR, "pip") if "hourwheel" in words[1]]
    (wanted,) = install_it[1:]
    node, worker = commands_of(FIRST_HOUR, "hourwheel")
    program, *_ = fenced(FIRST_HOUR, "python")
    assert program.startswith("from datetime")

    commands = install(wanted.replace("hourwheel", str(wheel), 1), tmp_path, *FOR_WORKERS)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(program)
    environ = environ_without_the_tree(
        HOURWHEEL_SERVER=(server := free_address()),
        HOURWHEEL_NODE__LISTEN=server,
        HOURWHEEL_NODE__METRICS_LISTEN="",
        HOURWHEEL_CONSOLE__LISTEN="",
        PYTHONUNBUFFERED="1",  # as at a terminal
    )
    hourwheel = str(commands / "hourwheel")
    with (
        running([hourwheel, *node], folder, environ),
        running([hourwheel, *worker], folder, environ) as said,
    ):
        await until(lambda: "closing order 17\n" in said.read_text())


def test_what_the_first_hour_counts_is_so() -> None:
    text = tree.text(FIRST_HOUR)
    programs = [
        len(re.findall(r"^.*\S", one, re.MULTILINE)) for one in fenced(FIRST_HOUR, "python")
    ]
    sections = [one.split("\nwith `shop.py`")[0] for one in text.split("\n## ")[1:4]]
    commands = [len(re.findall(r"^    \S", one, re.MULTILINE)) for one in sections]
    assert counted_rows(text) == [commands, programs]
    assert (commands[0], programs[0] < 15) == (3, True)


def counted_rows(text: str) -> list[list[int]]:
    """Rows of tables whose cells are numbers, but the first one."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [[int(cell) for cell in row[1:]] for row in rows if "".join(row[1:]).isdecimal()]
