"""What users install: a wheel, in an environment of its own, used in an empty folder."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from hourwheel import __version__
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


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that knows nothing of the tree."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HOURWHEEL_"))}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def install(folder: Path) -> Path:
    """An environment that has the wheel with the extra `server`: the folder of its commands."""
    source = folder / "source"
    for path in tree.files():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree.ROOT / path, target)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(source)
    env = folder / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=folder)
    copy_locked(packages_of(env))
    install = ("--python", env, "install", "--no-index")  # all that it needs is there
    run(*pip, *install, f"{wheel}[server]", cwd=folder)
    return env / "bin"


def packages_of(env: Path) -> Path:
    (packages,) = (env / "lib").glob("python3*/site-packages")
    return packages


def copy_locked(packages: Path) -> None:
    """What `requirements/node.txt` names and nothing else, as `make` has installed it for us."""
    for name in re.findall(r"^([\w.-]+)==", tree.text("requirements/node.txt"), re.MULTILINE):
        try:
            parts = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform: where it is needed, the wheel is not installed
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


def test_wheel_is_one_package_whose_demo_runs_in_an_empty_folder(tmp_path: Path) -> None:
    env, empty = tmp_path / "installed", tmp_path / "empty"
    env.mkdir()
    empty.mkdir()
    commands = install(env)
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
