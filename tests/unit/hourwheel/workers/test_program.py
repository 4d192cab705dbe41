"""What a child is handed, and how it loads it."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hourwheel.transport.access import Tls
from hourwheel.transport.access_files import AccessFiles
from hourwheel.workers.app import App
from hourwheel.workers.logs import JsonLines, LogFormat
from hourwheel.workers.program import Program

SOURCE = """
from hourwheel import App

app = App("code:7400", group="shop", tls=True, token="of the code")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "overridden.py").write_text(SOURCE)
    (tmp_path / "login").write_text("shop:secret\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("overridden", None)


def outline(app: App) -> tuple[object, ...]:
    found = app.credentials
    return app.server, found["tls"], found["token"], found["user"]


def test_what_is_not_given_stays_as_in_the_code(folder: Path) -> None:
    program = Program.unpack(Program("overridden:app").pack())
    assert program == Program("overridden:app")
    assert outline(program.load()) == ("code:7400", True, "of the code", None)


def test_what_is_given_counts_instead_of_the_code(folder: Path) -> None:
    files = AccessFiles(tls_ca="ca.pem", login_file=str(folder / "login"))
    program = Program("overridden:app", "other:7400", files)
    expected = "other:7400", Tls("ca.pem"), None, ("shop", "secret")
    assert outline(Program.unpack(program.pack()).load()) == expected
    assert "secret" not in program.pack()


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger as in a new process: without what pytest adds to it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers
    root.handlers = []
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_childs_logs_are_as_the_workers(folder: Path, log_format: LogFormat) -> None:
    with bare_root() as root:
        Program("overridden:app", log_format=log_format).load_in_child()
        (handler,) = root.handlers
        assert root.level == logging.INFO
    assert isinstance(handler.formatter, JsonLines) == (log_format is LogFormat.JSON)


def test_a_program_that_sets_up_its_logs_has_them_in_children_unless_json_is_wanted(
    folder: Path,
) -> None:
    own = "import logging\nlogging.basicConfig(format='own %(message)s')\n"
    (folder / "overridden.py").write_text(own + SOURCE)
    with bare_root() as root:
        Program("overridden:app").load_in_child()
        (handler,) = root.handlers
    assert handler.format(logging.makeLogRecord({"msg": "text"})) == "own text"
    sys.modules.pop("overridden")
    with bare_root() as root:
        Program("overridden:app", log_format=LogFormat.JSON).load_in_child()
        (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonLines)
