import json

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.types import DISPATCH_TOPIC
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli


def test_dispatch_when_paused_shown_and_resumed(cli: Cli) -> None:
    assert json.loads(cli("dispatch", "show", "--json").stdout) == {"paused": False}
    cli("topics", "create", DISPATCH_TOPIC)  # a node makes it by itself
    assert cli("dispatch", "pause", stdin="n\n").exit_code == 1
    assert "paused" in cli("dispatch", "pause", "--yes").stdout
    assert json.loads(cli("dispatch", "show", "--json").stdout) == {"paused": True}
    assert cli("dispatch", "resume", stdin="n\n").exit_code == 1
    resumed = json.loads(cli("dispatch", "resume", "--yes", "--json").stdout)
    assert resumed == {"paused": False, "cancelled": 0, "damaged": 0}
    assert json.loads(cli("dispatch", "show", "--json").stdout) == {"paused": False}


def test_what_was_due_before_is_cancelled_first(cli: Cli, fake: FakeNodeThread) -> None:
    cli("topics", "create", DISPATCH_TOPIC)
    for topic in ("bills", "orders"):
        cli("topics", "create", topic)
        fake.add_topic(topic, b"one", b"two")
    resumed = cli("dispatch", "resume", "--discard-before", f"{1 << 40}", "--yes", "--json")
    assert resumed.exit_code == ExitCode.USAGE, "neither a delay nor an instant"
    before = "2100-01-01T00:00:00Z"
    resumed = cli("dispatch", "resume", "--discard-before", before, "--yes", "--json")
    assert json.loads(resumed.stdout)["cancelled"] == 4
    assert STORE_MS < 4_102_444_800_000
