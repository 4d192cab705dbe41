"""A file that changes is used as a whole or not at all, and the log says once which."""

import asyncio
import logging
from pathlib import Path

import pytest

from hourwheel import watched_files
from hourwheel.errors import ConfigError
from hourwheel.watched_files import ReportedInLog, WatchedFiles

LOG = logging.getLogger("tests.watched")


class Files:
    """A file that names others, one a line; its value is what they say."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.reads = directory, 0
        self.write("all", "a")
        self.write("a", "1")
        self.watched = WatchedFiles(self.make, ReportedInLog(LOG))

    def write(self, name: str, text: str) -> None:
        new = self.directory / f"{name}.new"
        new.write_text(text)
        new.rename(self.directory / name)

    def make(self) -> tuple[str, list[str]]:
        self.reads += 1
        paths = [self.directory / "all"]
        paths += [self.directory / name for name in paths[0].read_text().split()]
        try:
            value = "".join(path.read_text() for path in paths[1:])
        except OSError as error:
            raise ConfigError(f"no {error.filename}") from None
        if "bad" in value:
            raise ConfigError("it is bad")
        if "odd" in value:
            raise ZeroDivisionError
        return value, list(map(str, paths))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_what_changes_before_the_first_look_is_read(files: Files) -> None:
    files.write("a", "2")
    assert files.watched.look()
    assert files.watched.value == "2"


def test_files_are_read_again_only_when_they_have_changed(files: Files) -> None:
    assert not files.watched.look()
    reads = files.reads
    for _ in range(3):
        assert not files.watched.look()
    assert files.reads == reads
    files.write("a", "1")
    assert not files.watched.look(), "it says the same as before"
    files.write("a", "2")
    assert files.watched.look()
    assert files.watched.value == "2"


def test_files_that_are_newly_named_are_watched(files: Files) -> None:
    files.write("b", "x")
    files.write("all", "a b")
    assert files.watched.look()
    assert files.watched.value == "1x"
    assert not files.watched.look()
    files.write("b", "y")
    assert files.watched.look()
    assert files.watched.value == "1y"


def test_the_former_stays_while_the_new_cannot_be_used(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    files.write("a", "bad")
    for _ in range(3):
        assert not files.watched.look()
        assert files.watched.value == "1"
        assert files.watched.is_refused
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 1
    assert said[0].endswith("it is bad")
    (files.directory / "a").unlink()
    assert not files.watched.look()
    assert len(caplog.records) == 2, "another reason"
    files.write("a", "3")
    assert files.watched.look()
    assert (files.watched.value, files.watched.is_refused) == ("3", False)
    again, changed = (
        "the configuration can be used again",
        "the configuration has changed, and is in use",
    )
    assert [one.getMessage() for one in caplog.records[2:]] == [again, changed]


def test_the_former_that_comes_back_is_no_change(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    files.write("a", "bad")
    assert not files.watched.look()
    files.write("a", "1")
    assert not files.watched.look()
    said = [one.getMessage() for one in caplog.records[1:]]
    assert said == ["the configuration can be used again"]


def test_a_mistake_of_ours_ends_neither_what_was_read_nor_the_looking(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, LOG.name)
    files.write("a", "odd")
    assert not files.watched.look()
    assert (files.watched.value, files.watched.is_refused) == ("1", True)
    assert caplog.records[0].exc_info is not None
    files.write("a", "2")
    assert files.watched.look()


async def test_who_watches_is_told_of_each_new_value(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "LOOK_S", 0.0)
    told: asyncio.Queue[str] = asyncio.Queue()
    watching = asyncio.create_task(files.watched.watch(told.put_nowait))
    for text in ("2", "3"):
        files.write("a", text)
        assert await told.get() == text
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
