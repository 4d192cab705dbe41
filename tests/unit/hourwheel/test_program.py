import os
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import program
from node.process import command
from replication.control import process


def ended(body: str) -> subprocess.CompletedProcess[str]:
    """A process whose program has this body."""
    script = (
        "import atexit, gc, os, sys, threading\n"
        "from hourwheel import program\n"
        f"def main():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        "program.run(lambda: main)\n"
    )
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("return 3", 3),
        ("return True", 1),
        ("sys.exit()", 0),
        ("sys.exit(78)", 78),
        ("return -1", 255),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_exit_code_is_what_the_program_says(body: str, code: int) -> None:
    done = ended(body)
    assert (done.returncode, done.stderr) == (code, "")


def test_interrupt_while_it_is_imported_is_no_fault() -> None:
    script = (
        "from hourwheel import program\n"
        "def load():\n    raise KeyboardInterrupt\n"
        "program.run(load)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    ("body", "words"), [("raise KeyError('x')", "KeyError: 'x'"), ("sys.exit('no')", "no")]
)
def test_program_that_fails_ends_as_python_ends_it(body: str, words: str) -> None:
    done = ended(body)
    assert done.returncode == 1
    assert done.stderr.endswith(f"{words}\n")


def test_what_is_to_be_done_at_the_end_is_done() -> None:
    done = ended("""
        begun = threading.Event()
        threading.Thread(target=lambda: (begun.wait(), print("thread"))).start()
        atexit.register(print, "at exit")
        sys.stdout.write("written, ")
        begun.set()
    """)
    assert done.returncode == 0
    assert sorted(done.stdout.replace("written, ", "").split("\n")) == ["", "at exit", "thread"]


def test_reader_that_has_gone_is_no_trouble() -> None:
    done = ended("""
        there, here = os.pipe()
        os.dup2(here, 1)
        os.close(here)
        os.close(there)
        sys.stdout.write("seen enough")
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_objects_are_not_looked_at_again() -> None:
    """Neither while all is imported, nor one by one at the end."""
    done = ended("""
        print(gc.isenabled(), gc.get_freeze_count() > 1_000, end=" ")
        class Deleted:
            def __del__(self):
                print("deleted")
        globals()["kept"] = Deleted()
    """)
    assert done.stdout == "True True "


class Ended(BaseException):
    """The process would be gone."""


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (78, 78), (-1, 255)])
def test_steps_of_a_program_in_this_process(
    returned: int | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    at_exit: list[Callable[[], Any]] = []
    for name in ("disable", "freeze", "enable"):
        monkeypatch.setattr(f"gc.{name}", lambda name=name: steps.append(name))
    monkeypatch.setattr("atexit.register", at_exit.append)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    def load() -> Callable[[], int | None]:
        steps.append(f"load with {os.environ['OPENBLAS_NUM_THREADS']} thread of numpy's")
        return lambda: returned

    with pytest.raises(SystemExit):
        program.run(load)
    assert steps == ["disable", "load with 1 thread of numpy's", "freeze", "enable"]
    codes: list[int] = []

    def leave(number: int) -> None:
        codes.append(number)
        raise Ended

    monkeypatch.setattr("hourwheel.program.os", SimpleNamespace(_exit=leave))
    with pytest.raises(Ended):
        at_exit[0]()
    assert codes == [code]


@pytest.mark.parametrize(
    ("name", "main"), [("node", command.main), ("replication.control", process.main)]
)
def test_modules_that_are_run_load_their_command(
    name: str, main: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Callable[..., object]] = []
    monkeypatch.setattr(program, "run", lambda load: loaded.append(load()))
    runpy.run_module(name, run_name="__main__")
    assert loaded == [main]
