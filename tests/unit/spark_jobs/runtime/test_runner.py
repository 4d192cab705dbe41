"""In this process and in Spark the same comes out; here is the first half of that."""

from collections.abc import Iterator

from spark_jobs.runtime.runner import LocalRunner
from spark_jobs.runtime.shuffle import FACTS, Spread


def numbered(task: int) -> Iterator[tuple[int, int]]:
    yield task % 3, task
    yield FACTS, -task


def total(number: int, values: Iterator[int]) -> tuple[int, int]:
    return number, sum(values)


def check(spread: Spread) -> None:
    assert sorted(spread.facts()) == sorted(-task for task in range(10))
    assert sorted(spread.join(total)) == [(0, 18), (1, 12), (2, 15)]


def test_results_when_they_are_spread_come_together_by_number() -> None:
    runner = LocalRunner()
    spread = runner.spread(numbered, range(10), 4)
    check(spread)
    spread.close()
    assert spread.facts() == []


def test_tasks_are_mapped_in_their_order() -> None:
    runner = LocalRunner()
    assert runner.map(abs, [-3, 2, -1]) == [3, 2, 1]
    assert runner.share([1]).value == [1]
