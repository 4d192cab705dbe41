"""Java is looked for before Spark is started, and its absence is told so that it can be helped."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import errors
from spark_jobs import session
from spark_jobs.session import java_version, require_java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_391"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("", 0),
        ("no such thing", 0),
    ],
)
def test_version_when_java_prints_it_is_read(text: str, version: int) -> None:
    assert java_version(text) == version


def fake_java(folder: Path, says: str) -> str:
    path = folder / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return str(path)


def test_java_when_recent_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == expected
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert require_java() == expected


def test_java_when_old_or_absent_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(errors.NoJava, match="no java in JAVA_HOME"):
        require_java()
    fake_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(errors.NoJava, match="is Java 11: install Java 17"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.NoJava, match="no java on the path"):
        require_java()


def test_workers_when_started_are_this_python_with_this_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "other")
    session.prepare_workers()
    session.prepare_workers()
    root = str(Path(session.__file__).resolve().parents[1])
    assert os.environ["PYTHONPATH"] == f"{root}:/elsewhere"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


class Builder:
    """Of a session: it is interrupted while Java starts."""

    def __init__(self, interrupts: int = 1) -> None:
        self.interrupts = interrupts
        self.has_started = False

    def appName(self, _: str) -> "Builder":  # noqa: N802 - as Spark has it
        return self

    def master(self, _: str) -> "Builder":
        return self

    def config(self, _key: str, _value: str) -> "Builder":
        return self

    def getOrCreate(self) -> Any:  # noqa: N802
        for _ in range(self.interrupts):
            signal.raise_signal(signal.SIGINT)
        self.has_started = True
        return SimpleNamespace()


def build(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        session.build_session("x", master="spark://127.0.0.1:1")
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_waits_until_java_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    build(builder, monkeypatch)
    assert builder.has_started


def test_a_second_ctrl_c_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(interrupts=2)
    build(builder, monkeypatch)
    assert not builder.has_started


def test_interrupts_are_left_alone_in_another_thread() -> None:
    seen: list[object] = []

    def look() -> None:
        with session.interrupts_later():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
