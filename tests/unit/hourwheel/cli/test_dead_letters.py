import json

from hourwheel.cli.exit_codes import ExitCode
from tests.support.fake_node_thread import FakeNodeThread
from tests.unit.hourwheel.cli.conftest import Cli
from tests.unit.hourwheel.client.groups.test_dead_letters import IDS, letter


def test_list_when_there_are_none(cli: Cli) -> None:
    assert "billing has no dead letters" in cli("dead", "list", "billing").stdout
    none = cli("dead", "list", "billing", "--filter", "red")
    assert "no dead letters that match" in none.stdout
    assert cli("dead", "list", "billing", "--json").stdout == ""


def test_list_and_show(cli: Cli, fake: FakeNodeThread) -> None:
    fake.node.letters = [*map(letter, range(4)), letter(4, "")]
    rows = [
        json.loads(line) for line in cli("dead", "list", "billing", "--json").stdout.splitlines()
    ]
    assert [row["message_id"] for row in rows] == list(map(str, IDS))
    assert (rows[0]["topic"], rows[0]["attempts"], rows[0]["keys"]) == ("orders", 16, ["17"])
    assert rows[0]["reason"] == "ATTEMPTS_USED_UP"
    lines = cli("dead", "list", "billing", "--limit", "2").stdout.splitlines()
    assert [str(one) in line for one, line in zip(IDS[:2], lines, strict=False)] == [True] * 2
    assert "the first 2" in lines[2]
    assert "topic: (deleted)" in cli("dead", "list", "billing").stdout.splitlines()[4]

    shown = cli("dead", "show", "billing", str(IDS[1]))
    assert (shown.exit_code, str(IDS[1]) in shown.stdout) == (0, True)
    assert "attempts are used up" in " ".join(shown.stdout.split())
    told = json.loads(cli("dead", "show", "billing", str(IDS[1]), "--json").stdout)
    assert (told["due_ms"], told["last_due_ms"], told["body"]) == (5_001, 9_000, "")
    fake.node.letters = []
    assert cli("dead", "show", "billing", str(IDS[1])).exit_code == ExitCode.PARTLY


def test_redrive(cli: Cli, fake: FakeNodeThread) -> None:
    fake.node.letters = [*map(letter, range(4)), letter(4, "")]
    asked = cli("dead", "redrive", "billing", "--filter", "*", stdin="n\n")
    assert asked.exit_code != 0
    assert len(fake.node.letters) == 5
    one = cli("dead", "redrive", "billing", str(IDS[0]), "--yes", "--json")
    assert (one.exit_code, json.loads(one.stdout)["redriven"]) == (0, 1)
    again = cli("dead", "redrive", "billing", str(IDS[0]), "--yes")
    assert again.exit_code == ExitCode.PARTLY, "it is none any more"
    rest = cli("dead", "redrive", "billing", "--filter", "*", "--yes", "--json")
    facts = json.loads(rest.stdout)
    assert (rest.exit_code, facts["redriven"]) == (ExitCode.PARTLY, 3)
    assert facts["group_reads_their_topic_no_more"] == 1


def test_redrive_when_it_is_not_clear_what(cli: Cli) -> None:
    for arguments in ((), (str(IDS[0]), "--filter", "*")):
        done = cli("dead", "redrive", "billing", *arguments, "--yes")
        assert done.exit_code == ExitCode.USAGE
