import json

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli
from tests.unit.hourwheel.client.test_damage import IDS, damaged


def test_list_when_nothing_is_damaged(cli: Cli) -> None:
    assert "no damaged message is known" in cli("damaged", "list").stdout
    assert cli("damaged", "list", "--json").stdout == ""


def test_list_and_discard(cli: Cli, fake: FakeNodeThread) -> None:
    fake.node.damaged = [*map(damaged, range(4)), damaged(4, "others")]
    rows = [json.loads(line) for line in cli("damaged", "list", "--json").stdout.splitlines()]
    assert [row["message_id"] for row in rows] == list(map(str, IDS))
    assert (rows[0]["group"], rows[0]["tries"], rows[0]["place"]) == (
        "workers",
        3,
        "shard-0/log/0.log: byte 9",
    )
    lines = cli("damaged", "list", "--group", "workers").stdout.splitlines()
    assert [str(one) in line for one, line in zip(IDS[:4], lines, strict=True)] == [True] * 4
    assert "in: %DLQ%workers" in lines[0]

    asked = cli("damaged", "discard", str(IDS[0]), "--group", "workers", stdin="n\n")
    assert asked.exit_code != 0
    assert len(fake.node.damaged) == 5
    done = cli("damaged", "discard", str(IDS[0]), "--group", "workers", "--yes")
    assert (done.exit_code, "1 discarded" in done.stdout) == (0, True)
    partly = cli("damaged", "discard", str(IDS[0]), str(IDS[1]), "--group", "workers", "--yes")
    assert partly.exit_code == ExitCode.PARTLY
    done = cli("damaged", "discard", "--all", "--group", "workers", "--yes", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["message_id"] for row in rows] == list(map(str, IDS[2:4]))
    assert [one.group for one in fake.node.damaged] == ["others"]


def test_discard_when_it_is_not_clear_what(cli: Cli) -> None:
    for arguments in ((), (str(IDS[0]), "--all")):
        done = cli("damaged", "discard", *arguments, "--group", "workers", "--yes")
        assert done.exit_code == ExitCode.USAGE
    assert cli("damaged", "discard", "--all", "--yes").exit_code == ExitCode.USAGE
