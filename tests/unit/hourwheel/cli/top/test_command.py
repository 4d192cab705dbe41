"""Options of `hourwheel top`, and how it ends; with real nodes: tests/cluster/test_top.py."""

import json

from hourwheel.cli.exit_codes import ExitCode
from tests.unit.hourwheel.cli.conftest import Cli


def test_once_ends_and_says_what_it_knows_when_no_node_is_master(cli: Cli) -> None:
    done = cli("top", "--once", "--every", "100ms")
    assert done.exit_code == ExitCode.OK
    assert "no master" in done.stdout
    shown = json.loads(cli("top", "--once", "--every", "100ms", "--json").stdout)
    assert shown["master"] == ""
    assert shown["trouble"].startswith("no master")
    assert shown["cluster_id"] == "c0ffee"


def test_once_fails_when_no_node_answers(cli: Cli) -> None:
    done = cli("top", "--once", "--server", "127.0.0.1:1")
    assert done.exit_code == ExitCode.UNAVAILABLE
    assert done.stdout == ""


def test_looking_too_often_is_refused(cli: Cli) -> None:
    assert cli("top", "--every", "10ms").exit_code == ExitCode.USAGE
