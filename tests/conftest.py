"""What all tests share: how Hypothesis searches, that gRPC says no more than errors, and that what
this machine cannot test is said at the end.

`gate` (the default) takes the same examples every time, so that a red build is about the change.
`soak` takes new ones and many more: `make soak`. Neither has a deadline: no test here is timed.
A failure prints `@reproduce_failure(...)`, to be put above the test while it is mended.
"""

import os

import hypothesis
import pytest

from hourwheel import grpc_lines
from tests.support import toolchains

grpc_lines.keep_errors_only()

hypothesis.settings.register_profile(
    "gate", deadline=None, derandomize=True, print_blob=True, max_examples=60, database=None
)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=3_000, database=None
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Also with -q, and with workers."""
    for language, why in toolchains.missing().items():
        terminalreporter.write_line(
            f"NOT TESTED: clients in {language}, because of {why}"
            f" (CLIENTS_REQUIRED={language} makes that a failure)",
            yellow=True,
            bold=True,
        )
