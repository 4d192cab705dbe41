"""`hourwheel groups limit`: what is not given stays."""

import json

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_group_is_limited_and_what_is_not_given_stays(cli: Cli, fake: FakeNodeThread) -> None:
    cli("groups", "put", "g")
    shown = cli("groups", "limit", "g", "--in-flight", "50", "--per-second", "0", "--json").stdout
    assert json.loads(shown)["in_flight_max"] == 50
    cli("groups", "limit", "g", "--per-second", "7")
    last = fake.node.calls["UpdateGroup"][-1].settings
    assert (last.HasField("in_flight_max"), last.per_second_max) == (False, 7)
    assert cli("groups", "limit", "g", "--in-flight", "-1").exit_code == ExitCode.USAGE


def test_group_says_what_becomes_of_what_expires(cli: Cli, fake: FakeNodeThread) -> None:
    cli("groups", "put", "g")
    shown = cli("groups", "expired", "g", "keep", "--json").stdout
    assert json.loads(shown) == {"name": "g", "keeps_expired": True}
    cli("groups", "limit", "g", "--per-second", "7")
    assert not fake.node.calls["UpdateGroup"][-1].settings.HasField("keeps_expired")
    cli("groups", "expired", "g", "drop")
    assert fake.node.calls["UpdateGroup"][-1].settings.HasField("keeps_expired")
    assert cli("groups", "expired", "g", "burn").exit_code == ExitCode.USAGE
