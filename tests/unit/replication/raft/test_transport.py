from collections.abc import Callable
from typing import Any

import pytest
from pysyncobj.poller import createPoller

from hourwheel import errors
from replication.raft import transport as module
from replication.raft.journal import RaftJournal
from replication.raft.transport import DurableTransport, NetworkTransport
from replication.raft.vote_file import VoteFile
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk

VOTE = {"type": "response_vote", "term": 7}


IDENTITY = Identity(b"c" * 16, 0)


class Network:
    """In place of the peers; `before` is called before anything leaves."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before
        self.sent: list[str] = []

    def send_threadsafe(self, peer_id: str, raw: bytes) -> bool:
        self.before()
        self.sent.append(peer_id)
        return peer_id == "b"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def journal(disk: SimulatedDisk) -> RaftJournal:
    return RaftJournal.open(disk, "", IDENTITY, "a")


class Heard:
    """PySyncObj's callbacks."""

    def __init__(self, transport: NetworkTransport) -> None:
        self.all: list[Any] = []
        transport.setOnMessageReceivedCallback(lambda node, what: self.all.append((node.id, what)))
        transport.setOnNodeConnectedCallback(lambda node: self.all.append((node.id, True)))
        transport.setOnNodeDisconnectedCallback(lambda node: self.all.append((node.id, False)))


def test_journal_is_durable_before_anything_leaves(
    disk: SimulatedDisk, journal: RaftJournal
) -> None:
    synced: list[int] = []
    network = Network(lambda: synced.append(disk.durability_op_count))
    transport = NetworkTransport(journal, ["b", "c"], network)
    before = disk.durability_op_count
    journal.add(b"\x00x", 2, 1)
    assert transport.send(transport.peers["b"], VOTE)
    assert not transport.send(transport.peers["c"], VOTE)
    assert network.sent == ["b", "c"]
    assert synced == [before + 1] * 2
    transport.destroy()
    transport.close()


def test_what_comes_is_handed_over_when_the_poller_is_asked(journal: RaftJournal) -> None:
    transport = NetworkTransport(journal, ["b"], Network())
    heard, poller = Heard(transport), createPoller("auto")
    transport.attach(poller)
    for what in (True, VOTE, False):
        transport.put("b", what)
    assert heard.all == []
    poller.poll(0.0)
    assert heard.all == [("b", True), ("b", VOTE), ("b", False)]
    poller.poll(0.0)
    assert len(heard.all) == 3
    transport.destroy()
    transport.put("b", VOTE)
    transport.close()


def test_flood_is_bounded_and_connections_are_still_told(journal: RaftJournal) -> None:
    transport = NetworkTransport(journal, ["b"], Network(), inbox_count_max=3)
    heard = Heard(transport)
    for _ in range(5):
        transport.put("b", VOTE)
    transport.put("b", what=False)
    transport.drain()
    assert transport.lost_count == 2
    assert heard.all == [("b", VOTE)] * 3 + [("b", False)]
    transport.destroy()
    transport.close()


def test_full_pipe_loses_nothing(journal: RaftJournal) -> None:
    transport = NetworkTransport(journal, ["b"], Network())
    for _ in range(70_000):
        transport.wake()
    transport.put("b", what=True)
    heard, poller = Heard(transport), createPoller("auto")
    transport.attach(poller)
    poller.poll(0.0)
    assert heard.all == [("b", True)]
    transport.destroy()
    transport.close()


def test_frame_beyond_the_cap_is_a_bug(
    journal: RaftJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES_MAX", 2)
    transport = DurableTransport(journal, ["b"])
    with pytest.raises(errors.InvariantViolated, match="bounded"):
        transport.send(transport.peers["b"], VOTE)


def test_message_does_not_leave_when_there_is_no_room_for_what_it_says(
    disk: SimulatedDisk, journal: RaftJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*_: object) -> None:
        raise errors.DiskFull("no room to write vote")

    network = Network()
    transport = NetworkTransport(journal, ["b", "c"], network)
    with monkeypatch.context() as full:
        full.setattr(VoteFile, "store", store)
        journal.setCurrentTerm(7, "b")
        assert not transport.send(transport.peers["b"], VOTE)
    assert (network.sent, transport.withheld_count) == ([], 1)
    assert transport.send(transport.peers["b"], VOTE), "there is room again: it is durable first"
    transport.destroy()
    transport.close()
    disk.kill()
    again = RaftJournal.open(disk, "", IDENTITY, "a")
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "b")
