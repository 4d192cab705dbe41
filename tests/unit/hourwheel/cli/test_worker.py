import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel.cli.exit_codes import ExitCode
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
    fake = SimpleNamespace(
        run_process=lambda *paths, **settings: ran.append((paths, settings["target"])),
        PythonFilter=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "watchfiles", fake)
    monkeypatch.setattr(sys, "argv", ["hourwheel", "worker", "shop:app", "--reload", "-p", "3"])
    assert cli("worker", "shop:app", "--reload").exit_code == 0
    target = f"{sys.executable} -m hourwheel.cli worker shop:app -p 3"
    assert ran == [((str(Path.cwd()),), target)]


def test_worker_that_reloads_says_what_it_needs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    found = cli("worker", "shop:app", "--reload")
    assert found.exit_code == ExitCode.UNAVAILABLE
    assert "hourwheel[workers]" in found.stderr
