"""What all tests share: how Hypothesis searches, that gRPC says no more than errors, that secrets
are cheap to check, which tests workers begin with, that the garbage collector leaves the collected
tests alone, that no test leaves tasks behind or logging otherwise than it was, how nodes are
started, what a test that hangs shows, and that what this machine cannot test is said at the end.

`gate` (the default) takes the same examples every time, so that a red build is about the change.
`soak` takes new ones and many more: `make soak`. Neither has a deadline: no test here is timed.
A failure prints `@reproduce_failure(...)`, to be put above the test while it is mended.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Generator
from types import FrameType

import argon2
import hypothesis
import pytest

from hourwheel.transport import grpc_logging
from node.access import user_secrets
from tests.support import forked, stray_tasks, toolchains
from tests.support.long_first import LONG, long_first

pytest_plugins = ["pytester", "hourwheel.testing.plugin"]

grpc_logging.keep_errors_only()
stray_tasks.watch()
user_secrets.HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
forked.use_for_nodes()

# Whoever starts the tests in the background of a shell has them ignore SIGINT, and with them all
# that they start; but some tests end a process by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "gate", deadline=None, derandomize=True, print_blob=True, max_examples=40, database=None
)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=3_000, database=None
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


gc.disable()  # until all is collected: nothing of it is garbage, and it grows and grows


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several workers share the tests, the long ones come first."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        ids = [item.nodeid for item in items]
        items[:] = [items[at] for at in long_first(ids, LONG, workers)]


def pytest_collection_finish() -> None:
    """Thousands of collected tests live until the end. To look through them takes half a second,
    and many a test calls the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """What libraries find left over when the process ends, they complain about."""
    forked.end()
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A program under test sets up logging, or memory, for its whole process."""
    root = logging.getLogger()
    handlers, level, thresholds = root.handlers[:], root.level, gc.get_threshold()
    path = sys.path[:]
    result = yield
    root.handlers[:] = handlers
    root.setLevel(level)
    gc.set_threshold(*thresholds)
    sys.path[:] = path
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    left = stray_tasks.take()
    assert not left, f"{item.nodeid} has left tasks on a loop that is closed: {left}"


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """pytest-timeout shows the stacks of threads; here the tasks of the loop are shown, too."""
    result = yield
    end_test = signal.getsignal(signal.SIGALRM)

    def show_tasks(number: int, frame: FrameType | None) -> None:
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:  # no loop runs
            tasks = set()
        for task in tasks:
            task.print_stack(file=sys.stderr)
        if callable(end_test):
            end_test(number, frame)

    if callable(end_test):
        signal.signal(signal.SIGALRM, show_tasks)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Also with -q, and with workers."""
    for language, why in toolchains.missing().items():
        terminalreporter.write_line(
            f"NOT TESTED: clients in {language}, because of {why}"
            f" (CLIENTS_REQUIRED={language} makes that a failure)",
            yellow=True,
            bold=True,
        )
    for part, why in toolchains.packaging_missing().items():
        terminalreporter.write_line(
            f"NOT TESTED: {part}, because of {why}"
            f" (PACKAGING_REQUIRED={part} makes that a failure)",
            yellow=True,
            bold=True,
        )
