import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hourwheel.cli.app import app as command
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.transport.access_files import AccessFiles
from hourwheel.workers.app import App
from hourwheel.workers.command import WorkerOptions
from hourwheel.workers.logs import LogFormat
from hourwheel.workers.program import Program
from tests.unit.hourwheel.cli.conftest import Cli


def test_worker_when_there_is_no_such_app(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the command adds
    found = cli("worker", "nowhere_at_all:app")
    assert found.exit_code == ExitCode.REFUSED
    assert "there is no module 'nowhere_at_all'" in found.stderr


def test_worker_when_the_app_is_named_as_for_celery(cli: Cli) -> None:
    for given, app in (("shop", "shop:app"), ("shop.py", "shop:app"), ("shop:jobs", "shop:jobs")):
        for arguments in (("worker", "-A", given), ("-A", given, "worker")):
            found = cli(*arguments)
            assert found.exit_code == ExitCode.USAGE
            assert f"worker {app} --processes" in " ".join(found.stderr.replace("│", "").split())

    counted = cli("worker", "shop", "-c", "4")
    assert (counted.exit_code, "--processes 4" in counted.stderr) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("address", ["here", "here:", "127.0.0.1:70000"])
def test_worker_when_the_address_of_its_probes_is_none(cli: Cli, address: str) -> None:
    found = cli("worker", "shop:app", "--health", address)
    assert found.exit_code == ExitCode.USAGE
    assert "HOST:PORT" in found.stderr


def test_worker_that_reloads_is_run_again_without_that_option(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    class Reloader:
        def __init__(self, *given: Any) -> None:
            ran.extend(given)

        async def run(self, changes: str) -> int:
            ran.append(changes)
            return 3

    fake = SimpleNamespace(awatch=lambda path, **_: path, PythonFilter=lambda: None)
    monkeypatch.setitem(sys.modules, "watchfiles", fake)
    monkeypatch.setattr("hourwheel.cli.worker.Reloader", Reloader)
    monkeypatch.setattr(sys, "argv", ["hourwheel", "worker", "shop:app", "--reload", "-p", "3"])
    monkeypatch.setattr(os, "environ", {**os.environ})
    assert cli("worker", "shop:app", "--reload", "--stop-within", "7s").exit_code == 3
    begin = f"{sys.executable} -m hourwheel.cli worker shop:app -p 3".split()
    assert ran == [begin, 7_000, str(Path.cwd())]


def test_worker_that_reloads_says_what_it_needs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    found = cli("worker", "shop:app", "--reload")
    assert found.exit_code == ExitCode.UNAVAILABLE
    assert "hourwheel[workers]" in found.stderr


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[App, WorkerOptions]]:
    """What `hourwheel worker` has been asked to run."""
    found = list[tuple[App, WorkerOptions]]()

    async def run_worker(app: App, options: WorkerOptions) -> None:
        found.append((app, options))

    monkeypatch.setattr("hourwheel.cli.worker.run_worker", run_worker)
    monkeypatch.setattr("hourwheel.cli.worker.configure_logs", lambda _: None)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "connected", raising=False)
    (tmp_path / "login").write_text("shop:secret")
    (tmp_path / "connected.py").write_text(
        "from hourwheel import App\napp = App('code:7400', group='shop', token='of the code')\n"
    )
    return found


@pytest.mark.parametrize("place", ["before", "behind", "environment"])
def test_worker_connects_as_options_say_and_not_as_its_code(
    served: list[tuple[App, WorkerOptions]], tmp_path: Path, place: str
) -> None:
    login = str(tmp_path / "login")
    words = ["--login-file", login, "worker", "connected:app", "--log-format", "json"]
    environment = {"HOURWHEEL_SERVER": "environment:7400", "NO_COLOR": "1"}
    if place == "environment":
        words, environment = words[2:], {**environment, "HOURWHEEL_LOGIN_FILE": login}
    else:
        server = ["--server", f"{place}:7400"]
        words = [*server, *words] if place == "before" else [*words, *server]
    ran = CliRunner(env=environment).invoke(command, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    ((app, options),) = served
    assert app.server == f"{place}:7400"
    assert app.credentials == {"tls": None, "token": None, "user": ("shop", "secret")}
    assert options.program == Program(
        "connected:app", f"{place}:7400", AccessFiles(login_file=login), LogFormat.JSON
    )


def test_worker_connects_as_its_code_says_where_no_option_does(
    served: list[tuple[App, WorkerOptions]],
) -> None:
    ran = CliRunner(env={"NO_COLOR": "1"}).invoke(command, ["worker", "connected:app"])
    assert ran.exit_code == 0, ran.output
    ((app, options),) = served
    assert (app.server, app.credentials["token"]) == ("code:7400", "of the code")
    assert options.program == Program("connected:app")
