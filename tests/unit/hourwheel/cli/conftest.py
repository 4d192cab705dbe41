from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from tests.support.fake_node_thread import FakeNodeThread

Cli = Callable[..., Result]


@pytest.fixture
def fake() -> Iterator[FakeNodeThread]:
    with FakeNodeThread() as started:
        yield started


@pytest.fixture
def cli(fake: FakeNodeThread) -> Cli:
    """Run the command line against the fake node."""
    runner = CliRunner(env={"HOURWHEEL_SERVER": fake.address, "COLUMNS": "120", "NO_COLOR": "1"})

    def run(*arguments: str, stdin: bytes | str = "") -> Result:
        return runner.invoke(app, list(arguments), input=stdin, catch_exceptions=False)

    return run
