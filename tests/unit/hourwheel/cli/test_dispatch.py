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


BEFORE = "2100-01-01T00:00:00Z"
RESUME = ("dispatch", "resume", "--discard-before", BEFORE, "--yes", "--json")


def with_recurrences(cli: Cli, fake: FakeNodeThread) -> None:
    cli("topics", "create", DISPATCH_TOPIC)
    cli("dispatch", "pause", "--yes")
    for topic in ("orders", "held"):
        cli("topics", "create", topic)
        fake.add_topic(topic, b"one")
    for name, policy in (("a", "all"), ("b", "last"), ("c", "none"), ("d", "all")):
        cli("recurring", "put", "orders", name, "x", "--every", "1h", "--missed", policy)
    cli("recurring", "put", "held", "e", "x", "--every", "1h")
    cli("recurring", "pause", "orders", "d")
    assert cli("topics", "update", "held", "--pause").exit_code == ExitCode.OK


def versions(fake: FakeNodeThread) -> dict[str, tuple[int, bool]]:
    infos = fake.do(lambda node: node.recurring.infos)
    return {name: (one.version, one.is_paused) for (_, name), one in infos.items()}


def test_resume_asks_what_becomes_of_recurrences_that_are_behind(
    cli: Cli, fake: FakeNodeThread
) -> None:
    with_recurrences(cli, fake)
    before = versions(fake)
    refused = cli(*RESUME)
    assert refused.exit_code == ExitCode.REFUSED
    assert "2 recurrences are behind" in refused.stderr
    assert json.loads(cli("dispatch", "show", "--json").stdout) == {"paused": True}
    assert versions(fake) == before

    resumed = json.loads(cli(*RESUME, "--recurring", "all").stdout)
    assert (resumed["recurrences"], resumed["paused"]) == (0, False)
    assert resumed["cancelled"] == 2, "nothing was cancelled before"
    assert versions(fake) == before


def test_recurrences_that_are_behind_go_on_from_now(cli: Cli, fake: FakeNodeThread) -> None:
    with_recurrences(cli, fake)
    before = versions(fake)
    resumed = json.loads(cli(*RESUME, "--recurring", "now").stdout)
    assert (resumed["recurrences"], resumed["paused"]) == (2, False)
    after = versions(fake)
    assert {name for name in after if after[name] != before[name]} == {"a", "b"}
    assert [after[name][1] for name in "abcd"] == [False, False, False, True]
    assert cli("dispatch", "resume", "--yes", "--recurring", "now").exit_code == ExitCode.USAGE
    earlier = ("dispatch", "resume", "--discard-before", "2001-01-01T00:00:00Z", "--yes")
    assert cli(*earlier).exit_code == ExitCode.OK, "none is behind that instant"
