import json
from typing import Any

import pytest

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.fixture(autouse=True)
def five_messages(cli: Cli) -> None:
    """Due after 10 to 50 s."""
    for number in range(1, 6):
        cli("publish", "orders", f"body {number}", "--in", f"{number * 10}s")


def told(cli: Cli, *options: str) -> dict[str, Any]:
    done = cli("wheel", "--json", *options)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_wheel_when_for_scripts(cli: Cli) -> None:
    begin = STORE_MS
    found = told(cli, "--every", "20s", "--count", "2", "--from", "now")
    assert found["pending_count"] == 5
    assert (found["earlier_count"], found["later_count"]) == (0, 2)
    first, second = found["ranges"]
    assert first == {"from_ms": begin, "to_ms": begin + 20_000, "count": 1, "is_estimate": False}
    assert (second["from_ms"], second["count"], second["is_estimate"]) == (begin + 20_000, 2, True)
    assert found["clock_ms"] == STORE_MS


def test_wheel_when_nothing_is_said(cli: Cli) -> None:
    found = told(cli)
    assert [one["count"] for one in found["ranges"]] == [5, *[0] * 8]
    assert found["ranges"][-1]["to_ms"] - found["ranges"][0]["from_ms"] == 365 * 86_400_000


def test_wheel_when_it_begins_at_an_instant(cli: Cli) -> None:
    found = told(cli, "--from", "2023-11-14T22:14:00.7Z", "--every", "1d", "--count", "1")
    (one,) = found["ranges"]
    assert one["from_ms"] % 1_000 == 0
    assert (found["earlier_count"], one["count"]) == (3, 2)


def test_wheel_when_for_people(cli: Cli, fake: FakeNodeThread) -> None:
    fake.do(lambda node: node.cancelled.add(1))
    shown = cli("wheel", "--every", "20s", "--count", "2", "--from", "1h").stdout
    assert "#" * 40 in shown
    assert "4 are pending" in shown
    assert "1 of those above are cancelled" in shown
    assert "~0" in shown
    assert "an estimate" in shown


def test_wheel_when_a_range_is_too_short(cli: Cli) -> None:
    assert cli("wheel", "--every", "5ms").exit_code == ExitCode.USAGE
