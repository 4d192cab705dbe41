"""The broker's side of its control process: registering, and a process that cannot start."""

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.cluster import control as cluster_control
from node.cluster.control import ClusterControl, ControlEnds, find_cluster_id
from node.cluster.peer_trust import Trust
from node.config.model import NodeConfig
from replication.control.config import EXIT_CANNOT_START, ControlConfig
from replication.control_state.state import ControlState
from tests.support.addresses import free_address
from tests.support.engine_world import within
from tests.support.eventually import until

OK = wire.ControlResult(outcome=wire.CONTROL_OUTCOME_OK)
REFUSED = wire.ControlResult(outcome=wire.CONTROL_OUTCOME_REFUSED, reason="no")


def config(tmp_path: Path, *, control_port: int = 1, **cluster: Any) -> NodeConfig:
    secret = tmp_path / "secret"
    secret.write_text("known to all of them\n")
    (tmp_path / "data").mkdir(exist_ok=True)
    other = "127.0.0.1:2"
    nodes = f"n1={other},{other},127.0.0.1:{control_port} n2={other},{other},{other}"
    return NodeConfig.of(
        {
            "node": {"id": "n1", "data_directory": str(tmp_path / "data")},
            "cluster": {"nodes": nodes, "secret_file": str(secret), **cluster},
        }
    )


class FakeClient:
    """A control process that answers proposals as it is told, one after the other."""

    def __init__(self, *answers: wire.ControlResult | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[bytes | None, wire.RegisterNodeCommand]] = []
        self.state = ControlState(revision=77)
        self.reports: dict[str, Any] = {}

    async def propose(
        self, *, timeout_s: float, request_id: bytes | None, register_node: Any
    ) -> wire.ControlResult:
        self.asked.append((request_id, register_node))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def linked(self, *_: object, on_state: Callable[[ControlState], None], **__: object) -> Any:
        """In place of making a client."""
        self.say = on_state
        return self

    async def close(self) -> None:
        pass


def control(
    tmp_path: Path, client: FakeClient, on_state: Callable[[ControlState], None]
) -> ClusterControl:
    return ClusterControl(
        config(tmp_path),
        bytes(16),
        b"b" * 16,
        on_state=on_state,
        on_lost=lambda _: None,
        retry_s=0.0,
        make_client=client.linked,
    )


async def test_node_registers_until_it_is_taken(tmp_path: Path) -> None:
    lost = errors.Timeout("who knows", request_id="ab" * 16)
    client = FakeClient(errors.Unavailable("no leader"), REFUSED, lost, lost, REFUSED, OK)
    told: list[int] = []
    made = control(tmp_path, client, lambda state: told.append(state.revision))
    client.say(ControlState(revision=5))  # before the cluster knows this boot of the node
    seen = wire.SeenEpoch(shard=0, epoch=4, master_node_id="n2")
    await within(made.register(is_sound=True, seen=seen))
    again = bytes.fromhex("ab" * 16)
    assert [request_id for request_id, _ in client.asked] == [None, None, None, again, again, None]
    command = client.asked[-1][1]
    assert command.node_id == "n1"
    assert command.boot_id == b"b" * 16
    assert command.isr_is_sound
    assert list(command.seen) == [seen]
    assert made.is_registered
    client.say(ControlState(revision=78))
    assert told == [77, 78]
    await made.stop()


async def test_long_wait_for_a_majority_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[int] = []
    monkeypatch.setattr(
        cluster_control._log, "warning", lambda _, tries, **__: warned.append(tries)
    )
    client = FakeClient(*[errors.Unavailable("no leader")] * 60, OK)
    made = control(tmp_path, client, lambda _: None)
    await within(made.register(is_sound=True, seen=wire.SeenEpoch()))
    assert warned == [25, 50]
    await made.stop()


async def test_process_that_cannot_start_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = ClusterControl(
            config(tmp_path, control_port=taken.getsockname()[1]),
            bytes(range(16)),
            b"b" * 16,
            on_state=lambda _: None,
            on_lost=lambda _: None,
        )
        with pytest.raises(errors.ConfigError, match="control process cannot start"):
            await within(made.start())
        await made.stop()
        assert made.facts()[2:4] == (1, EXIT_CANNOT_START)


async def test_end_of_the_process_is_noted_for_the_next_life(tmp_path: Path) -> None:
    port = int(free_address().rpartition(":")[2])
    lost = asyncio.get_running_loop().create_future()
    made = ClusterControl(
        config(tmp_path, control_port=port),
        bytes(range(16)),
        b"b" * 16,
        on_state=lambda _: None,
        on_lost=lost.set_result,
    )
    await within(made.start())
    assert made.facts()[:4] == (0, 0.0, 0, 0)
    await made._process.kill()
    assert isinstance(await within(lost), errors.Unavailable)
    assert made.facts()[2:4] == (1, -signal.SIGKILL)
    await made.stop()
    assert ControlEnds(tmp_path / "data" / "control" / "ends").count == 1


async def test_next_life_does_not_speak_to_the_former_ones_process(tmp_path: Path) -> None:
    """That one has not noticed yet that its broker is dead, and listens still."""
    port = int(free_address().rpartition(":")[2])
    former, next_ = (
        ClusterControl(
            config(tmp_path, control_port=port),
            bytes(range(16)),
            boot_id * 16,
            on_state=lambda _: None,
            on_lost=lambda _: None,
        )
        for boot_id in (b"f", b"n")
    )
    await within(former.start())
    process = former._process.process
    process.send_signal(signal.SIGSTOP)
    assert process.stdin is not None
    process.stdin.close()  # so it learns that its broker is dead
    starting = asyncio.ensure_future(next_.start())
    await until(lambda: next_._process.is_running or starting.done())
    process.send_signal(signal.SIGCONT)
    await within(starting)
    assert next_.client.is_connected
    await former.stop()
    assert next_.client.is_connected
    await next_.stop()


def test_cluster_id_is_of_the_nodes_and_what_they_trust(tmp_path: Path) -> None:
    one, trust = config(tmp_path), Trust(secret="known to all of them")
    found = find_cluster_id(one, trust)
    assert len(found) == 16
    moved = config(tmp_path, control_port=9)
    assert find_cluster_id(moved, trust) == found, "addresses may change"
    assert find_cluster_id(one, Trust(secret="another secret of all")) != found
    assert find_cluster_id(config(tmp_path, id="ab" * 16), trust) == bytes.fromhex("ab" * 16)
    more = one.cluster.nodes + " n3=127.0.0.1:3,127.0.0.1:3,127.0.0.1:3"
    assert find_cluster_id(config(tmp_path, nodes=more), trust) != found


def test_ends_are_counted_over_the_lives_of_a_node(tmp_path: Path) -> None:
    ends = ControlEnds(tmp_path / "ends")
    assert (ends.count, ends.last_code) == (0, 0)
    ends.note(2)
    ends.note(-9)
    again = ControlEnds(tmp_path / "ends")
    assert (again.count, again.last_code) == (2, -9)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"count": "many"}', b"\xff"])
def test_nothing_is_known_when_the_file_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ends").write_bytes(content)
    ends = ControlEnds(tmp_path / "ends")
    assert (ends.count, ends.last_code) == (0, 0)
    ends.note(70)
    assert ControlEnds(tmp_path / "ends").count == 1


def test_node_goes_on_when_it_cannot_be_noted(tmp_path: Path) -> None:
    ends = ControlEnds(tmp_path / "missing" / "ends")
    ends.note(2)
    assert (ends.count, ends.last_code) == (1, 2)


@pytest.mark.parametrize(
    ("timeout_ms", "interval_ms"), [(100, 20.0), (350, 70.0), (1_000, 200.0), (600_000, 200.0)]
)
async def test_a_node_reports_several_times_before_it_counts_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_ms: int, interval_ms: float
) -> None:
    told: list[ControlConfig] = []
    monkeypatch.setattr(cluster_control, "ControlProcess", told.append)
    ClusterControl(
        config(tmp_path, report_timeout_ms=timeout_ms),
        bytes(16),
        b"b" * 16,
        on_state=lambda _: None,
        on_lost=lambda _: None,
        make_client=FakeClient().linked,
    )
    assert (told[0].report_timeout_ms, told[0].report_interval_ms) == (timeout_ms, interval_ms)
