"""What of a library's own tests does not fit Hourwheel is named, and nothing else is left out.

A plugin of pytest. `left_out.toml` has two lists for each suite, of tests, classes or modules with
the reason. Those of `not_run` would wait for ever, or are of something else. Those of `fails` run,
and one that passes ends the run with an error: take it off the list. So does a name that is no
test's, and a test that leaves itself out.
"""

import os
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

_SUITE: Final = os.environ["SUITE"]
_LISTS: Final = tomllib.loads(Path(__file__).with_name("left_out.toml").read_text())[_SUITE]
_NOT_RUN: Final[dict[str, str]] = _LISTS.get("not_run", {})
_FAILS: Final[dict[str, str]] = _LISTS.get("fails", {})
_met: Final[set[str]] = set()
_left_themselves_out: Final[list[str]] = []


def _names_of(item: pytest.Item) -> set[str]:
    """What a list may call a test."""
    test = item.name.partition("[")[0]
    owner = getattr(item, "cls", None)
    names = {item.path.name, item.name, test}
    return names if owner is None else {*names, owner.__name__, f"{owner.__name__}.{test}"}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A module that is listed is not even imported."""
    if collection_path.name not in _NOT_RUN:
        return None
    _met.add(collection_path.name)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        _met.update(_names_of(item))
        (left_out if _names_of(item) & _NOT_RUN.keys() else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    listed = _names_of(item) & _FAILS.keys()
    if listed and report.failed:
        report.outcome = "skipped"
        report.wasxfail = _FAILS[listed.pop()]
    elif listed and report.when == "call":
        report.outcome = "failed"
        report.longrepr = f"{item.name} passes by now: take it off left_out.toml"
    elif report.skipped and not hasattr(report, "wasxfail"):
        _left_themselves_out.append(f"{item.nodeid}: {report.longrepr}")
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _left_themselves_out.append(f"{report.nodeid}: {report.longrepr}")


def _complaints() -> list[str]:
    unknown = (_NOT_RUN.keys() | _FAILS.keys()) - _met
    return [
        *(f"left out by itself, and not listed: {one}" for one in _left_themselves_out),
        *(f"listed, and no test: {name}" for name in sorted(unknown)),
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _complaints():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _complaints():
        terminalreporter.write_line(line)
