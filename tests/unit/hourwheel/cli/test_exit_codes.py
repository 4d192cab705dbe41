import re
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode, describe_exit_codes, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidTopic(), ExitCode.REFUSED),
        (errors.StaleReceipt(), ExitCode.REFUSED),
        (errors.AlreadyExists(), ExitCode.REFUSED),
        (errors.CorruptLog(), ExitCode.REFUSED),
        (errors.PermissionDenied(), ExitCode.REFUSED),
        (errors.Unauthenticated(), ExitCode.REFUSED),
        (errors.UnknownTopic(), ExitCode.NOT_FOUND),
        (errors.NotMaster(), ExitCode.UNAVAILABLE),
        (errors.DiskFull(), ExitCode.TRY_LATER),
        (errors.Timeout(), ExitCode.TRY_LATER),
        (errors.InvariantViolated(), ExitCode.INTERNAL),
        (errors.HourwheelError(), ExitCode.INTERNAL),
    ],
)
def test_exit_code_of_when_any(error: errors.HourwheelError, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def test_describe_exit_codes_when_shown_in_the_help() -> None:
    text = describe_exit_codes()
    assert all(f"{code:d} " in text for code in ExitCode)


def test_exit_codes_when_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "CLIENT.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == set(ExitCode)
