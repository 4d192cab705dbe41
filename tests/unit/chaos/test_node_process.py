import json
import os
import subprocess
import sys
from pathlib import Path

from chaos.node_process import MARK, NodeProcess, members_of
from tests.support.eventually import until


def a_node(folder: Path) -> NodeProcess:
    return NodeProcess("n1", folder, "127.0.0.1:1", launcher=("http.server",))


def test_events_are_read_once_when_the_log_grows(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    assert node.read_log() == []
    node.log.write_text(json.dumps({"event": "one"}) + '\nnot JSON\n{"event": ')
    assert [one["event"] for one in node.read_log()] == ["one", ""]
    with node.log.open("a") as log:
        log.write('"two"}\n')
    assert [one["event"] for one in node.read_log()] == ["one", "", "two"]
    assert node.events[1]["raw"] == "not JSON"


def test_processes_are_known_by_their_mark_until_they_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, MARK: "one"}
    ) as process:
        assert members_of("one") == [process.pid]
        assert members_of("on") == []
        process.kill()
        process.wait()
        assert members_of("one") == []


async def test_all_processes_are_gone_when_a_node_is_killed(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    (tmp_path / "node.toml").touch()
    node.launcher = ("tests.support.parent_and_child",)
    await node.spawn()
    await until(lambda: len(members_of(node.mark)) == 2)
    assert node.is_running
    await node.kill()
    await node.reaped()
    assert not node.is_running
    assert members_of(node.mark) == []
