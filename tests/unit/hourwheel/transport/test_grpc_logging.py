import os
import subprocess
import sys

import pytest

from hourwheel.transport import grpc_logging


def test_keep_errors_only_when_the_environment_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(grpc_logging.VERBOSITY, raising=False)
    grpc_logging.keep_errors_only()
    assert os.environ[grpc_logging.VERBOSITY] == "ERROR"


def test_keep_errors_only_when_the_environment_wants_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(grpc_logging.VERBOSITY, "DEBUG")
    grpc_logging.keep_errors_only()
    assert os.environ[grpc_logging.VERBOSITY] == "DEBUG"


@pytest.mark.parametrize("package", ["node", "chaos"])
def test_packages_of_processes_when_loaded_do_it_before_grpc_is(package: str) -> None:
    script = (
        "import os, sys\n"
        f"import {package}\n"
        f"assert os.environ[{grpc_logging.VERBOSITY!r}] == 'ERROR'\n"
        "assert 'grpc' not in sys.modules\n"
    )
    environment = {
        name: text for name, text in os.environ.items() if name != grpc_logging.VERBOSITY
    }
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_command_line_when_run_does_it_before_grpc_is_loaded() -> None:
    script = (
        "import os, sys\n"
        "from hourwheel import cli, program\n"
        "assert 'grpc' not in sys.modules\n"
        "program.run = lambda load: load()\n"
        "cli.main()\n"
        f"assert os.environ[{grpc_logging.VERBOSITY!r}] == 'ERROR'\n"
    )
    environment = {
        name: text for name, text in os.environ.items() if name != grpc_logging.VERBOSITY
    }
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
