"""Results that go through files come together as those that stay in memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from spark_jobs.runtime.folder_shuffle import FolderSpread
from spark_jobs.runtime.shuffle import FACTS

T = TypeVar("T")
R = TypeVar("R")


def run(function: Callable[[T], R], tasks: Sequence[T], /) -> list[R]:
    return [function(task) for task in tasks]


def numbered(task: int) -> Iterator[tuple[int, object]]:
    yield task % 3, bytes([task]) * 100_000
    yield FACTS, -task
    yield 7, {"of": task}


def joined(number: int, results: Iterator[object]) -> tuple[int, list[object]]:
    return number, list(results)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_results_when_they_are_joined_are_those_of_their_number_in_the_order_of_tasks() -> None:
    spread = FolderSpread(run, numbered, range(5))
    assert spread.facts() == [0, -1, -2, -3, -4]
    found = dict(spread.join(joined))
    assert sorted(found) == [0, 1, 2, 7]
    assert found[1] == [bytes([1]) * 100_000, bytes([4]) * 100_000]
    assert found[7] == [{"of": task} for task in range(5)]
    assert dict(spread.join(joined)) == found
    spread.close()


def test_a_task_that_is_repeated_leaves_what_its_last_run_gave() -> None:
    def twice(function: Callable[[T], R], tasks: Sequence[T], /) -> list[R]:
        run(function, tasks)
        return run(function, tasks)

    spread = FolderSpread(twice, numbered, range(2))
    assert spread.facts() == [0, -1]
    assert dict(spread.join(joined))[7] == [{"of": 0}, {"of": 1}]
    spread.close()


def test_files_are_for_this_user_only_and_gone_at_the_end(folders: Path) -> None:
    spread = FolderSpread(run, numbered, range(2))
    (folder,) = folders.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    spread.close()
    assert list(folders.iterdir()) == []
    assert spread.facts() == []


def test_without_tasks_there_are_no_results() -> None:
    spread = FolderSpread(run, numbered, [])
    assert spread.facts() == []
    assert spread.join(joined) == []
    spread.close()


def test_nothing_is_left_when_a_task_fails(folders: Path) -> None:
    def failing(task: int) -> Iterator[tuple[int, object]]:
        yield 0, task
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        FolderSpread(run, failing, [1])
    assert list(folders.iterdir()) == []
