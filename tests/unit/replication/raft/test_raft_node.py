"""Each bug of PySyncObj 0.3.17 that docs/decisions/0011-control-plane.md numbers, healed."""

import logging
import random

import pysyncobj.syncobj
import pytest
from pysyncobj import FAIL_REASON

from hourwheel import errors
from replication.raft import journal, journal_file, raft_node
from replication.raft.codec import parse
from replication.raft.journal import RaftJournal
from replication.raft.journal_file import Entry
from replication.raft.raft_node import RaftTimings
from replication.raft.snapshot import Snapshot
from tests.sim.disk import SimulatedCrash
from tests.support.raft_world import DIRECTORY, NODE_IDS, RaftWorld

OFTEN = RaftTimings(compaction_entries=20)


def others(node_id: str) -> list[str]:
    return [each for each in NODE_IDS if each != node_id]


def count_installs(monkeypatch: pytest.MonkeyPatch) -> list[RaftJournal]:
    """In the list: the journals that a leader's snapshot has replaced, each time."""
    installed: list[RaftJournal] = []
    install = RaftJournal.install

    def counted(self: RaftJournal, snapshot: Snapshot) -> None:
        install(self, snapshot)
        installed.append(self)

    monkeypatch.setattr(RaftJournal, "install", counted)
    return installed


def fill(world: RaftWorld, count: int, prefix: bytes = b"c") -> list[bytes]:
    commands = [b"%s%d" % (prefix, number) for number in range(count)]
    for number, command in enumerate(commands):
        world.propose(sorted(world.lives)[number % len(world.lives)], command)
    return commands


def test_commands_are_applied_everywhere_when_proposed_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch)
    world.elect()
    commands = fill(world, 12)
    world.settle()
    assert [world.applied(node_id) for node_id in NODE_IDS] == [commands] * 3


def test_state_is_recovered_when_all_lose_power(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        world = RaftWorld(monkeypatch, timings=OFTEN, seed=seed)
        world.elect()
        commands = fill(world, 70)
        for node_id in NODE_IDS:
            world.lose_power(node_id, random.Random(f"{seed}{node_id}"))
        for node_id in NODE_IDS:
            world.start(node_id)
        world.settle()
        assert world.applied("a") == commands, f"seed {seed}"


def test_leader_is_followed_soon_when_its_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        world = RaftWorld(monkeypatch, seed=seed)
        leader = world.elect()
        world.run(10)
        killed_s = world.now_s
        world.kill(leader)
        assert world.elect() == others(leader)[0], "they stand one after the other"
        timings = world.timings
        assert world.now_s - killed_s < timings.cut_s * 2 < timings.raft_s_min, f"seed {seed}"


def test_next_one_stands_when_the_first_cannot_be_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    first, second = others(leader)
    world.cut(first)
    assert world.propose(leader, b"what the first does not have") is not None
    world.run(10)
    world.kill(leader)
    world.heal()
    assert world.elect() == second


def test_leader_stays_when_its_connections_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    world.run(10)
    term = world.lives[leader].node.status().term
    for _ in range(5):
        world.cut(leader)
        world.run(5)  # of 20 ms each
        world.heal()
        world.run(30)
    assert world.lives[leader].node.status().is_leader
    assert world.lives[leader].node.status().term == term


def test_tick_waits_until_there_is_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    world.run(10)
    timings = world.timings
    first, second = (world.lives[each].node for each in others(leader))
    for follower in (first, second):
        assert timings.raft_s_min - 0.2 < follower.find_wait_s(9.0) < timings.raft_s_max + 0.01
        assert follower.find_wait_s(0.05) == 0.05
    assert 0 < world.lives[leader].node.find_wait_s(9.0) < timings.append_s + 0.01
    world.cut(leader)
    cut_s = timings.cut_s
    assert cut_s <= first.find_wait_s(9.0) < cut_s + 0.01
    assert 2 * cut_s <= second.find_wait_s(9.0) < 2 * cut_s + 0.01


def test_tick_waits_where_an_election_is_due_and_nobody_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch)
    world.elect()
    world.cut(*NODE_IDS)
    world.run(200)
    waits = {life.node.find_wait_s(9.0) for life in world.lives.values()}
    assert waits == {world.timings.append_s}, "it would spin"


def test_B1_nothing_is_lost_when_all_crash_between_snapshot_and_trim(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch, timings=RaftTimings(compaction_entries=1_000))
    world.elect()
    commands = fill(world, 40)
    world.settle()
    trim = RaftJournal.deleteEntriesTo
    for node_id in NODE_IDS:
        life = world.lives[node_id]
        life.node._compaction_entries = 10
        monkeypatch.setattr(RaftJournal, "deleteEntriesTo", lambda *_: None)
        life.node.doTick(0.0)
        assert life.journal.snapshot_file.exists
        assert life.journal[0].index == 1
    monkeypatch.setattr(RaftJournal, "deleteEntriesTo", trim)
    for node_id in NODE_IDS:
        world.kill(node_id)
    for node_id in NODE_IDS:
        life = world.start(node_id)
        assert life.journal[0].index == life.node.raftLastApplied - 1
    world.settle()
    assert world.applied("a") == commands


@pytest.mark.parametrize("takes_effect", [False, True])
def test_B2_trim_is_all_or_nothing_when_it_crashes_anywhere(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    for fail_at in range(1, 12):
        world = RaftWorld(monkeypatch, timings=RaftTimings(compaction_entries=1_000))
        world.elect()
        commands = fill(world, 30)
        world.settle()
        life, disk = world.lives["a"], world.disks["a"]
        life.node._compaction_entries = 10
        disk.fail_after(fail_at, takes_effect=takes_effect)
        try:
            life.node.compact()
        except SimulatedCrash:
            pass
        else:
            break  # it has fewer durability operations
        world.lose_power("a", random.Random(fail_at))
        world.start("a")
        world.settle()
        assert world.applied("a") == commands
    else:
        raise AssertionError("compaction never ends")
    assert fail_at > 5


def test_B3_snapshot_commits_nothing_of_an_unchecked_log(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    installed = count_installs(monkeypatch)
    world = RaftWorld(monkeypatch, timings=OFTEN)
    old = world.elect()
    fill(world, 5)
    world.settle()
    world.cut(old)
    for number in range(30):
        world.submit(old, b"lost%d" % number)
    world.run(10)
    assert world.lives[old].journal[-1].index > 30
    world.elect()
    for number in range(60):
        world.propose(world.elect(), b"kept%d" % number)
    world.heal()
    world.settle()
    assert installed == [world.lives[old].journal]
    assert not [one for one in world.applied(old) if one.startswith(b"lost")]
    told = [reason for command, _, reason in world.answers if command.startswith(b"lost")]
    assert FAIL_REASON.SUCCESS not in told


def test_B3_commit_index_of_a_snapshot_message_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch, timings=OFTEN)
    world.elect()
    world.kill("a")
    for number in range(60):
        world.propose(world.elect(), b"c%d" % number)
    world.is_holding = True
    world.start("a")
    snapshots = []
    while not snapshots:
        world.tick()
        snapshots = [raw for _, to, raw in world.queue if to == "a" and b"c30" in raw]
        if not snapshots:
            world.deliver()
    frame = parse(snapshots[0])
    assert frame.append_entries.HasField("snapshot")
    assert frame.append_entries.commit_index > 1
    before = world.lives["a"].node.raftCommitIndex
    frame.append_entries.snapshot.is_last = False
    world.queue.clear()
    world.queue.append((world.leaders()[0], "a", frame.SerializeToString()))
    world.deliver()
    assert world.lives["a"].node.raftCommitIndex == before


def test_B4_node_does_not_start_when_its_journal_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch)
    world.elect()
    fill(world, 5)
    world.settle()
    world.kill("a")
    world.disks["a"].remove("control/journal")
    with pytest.raises(errors.CorruptFile, match="must not vote"):
        world.start("a")


def test_B4_isolated_leader_acknowledges_nothing_when_it_has_restarted(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    fill(world, 5)
    world.settle()
    world.run(60)
    world.kill(leader)
    for peer in others(leader):
        world.kill(peer)
    life = world.start(leader)
    assert life.node.raftCommitIndex <= life.journal[-1].index
    world.submit(leader, b"alone")
    world.run(200)
    assert (world.answer(b"alone") or (None, -1))[1] != FAIL_REASON.SUCCESS
    assert b"alone" not in world.applied(leader)


def test_B5_state_is_there_when_all_restart_after_compaction(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch, timings=OFTEN)
    world.elect()
    commands = fill(world, 60)
    world.settle()
    assert all(life.journal.snapshot_file.exists for life in world.lives.values())
    for node_id in NODE_IDS:
        world.kill(node_id)
    for node_id in NODE_IDS:
        world.start(node_id)
    world.settle()
    assert world.applied("a") == commands
    assert world.propose("b", b"and on") == b"and on"


def test_B6_cluster_goes_on_when_apply_raises(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = RaftWorld(monkeypatch)
    world.elect()
    with caplog.at_level(logging.CRITICAL):
        assert world.propose("a", b"!poison") == b""
        assert world.propose("b", b"fine") == b"fine"
    world.settle()
    assert [life.machine.failed for life in world.lives.values()] == [[b"!poison"]] * 3
    for node_id in NODE_IDS:
        world.kill(node_id)
    for node_id in NODE_IDS:
        world.start(node_id)
    world.settle()
    assert world.propose("c", b"after") == b"after"


def test_B6_cluster_goes_on_when_an_answer_raises(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch)
    leader = world.elect()

    def raises(result: bytes | None, reason: int) -> None:
        raise ValueError

    world.lives[leader].node.submit(b"one", raises)
    assert world.propose(leader, b"two") == b"two"
    assert world.applied(leader) == [b"one", b"two"]


def test_B7_leader_works_when_an_observer_of_its_state_raises(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[tuple[int, int]] = []

    def raises(old: int, new: int) -> None:
        changes.append((old, new))
        raise ValueError

    world = RaftWorld(monkeypatch, on_state_changed=raises)
    assert world.propose(world.elect(), b"x") == b"x"
    assert changes


def test_B8_journal_is_not_cut_when_a_message_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    fill(world, 3)
    world.settle()
    follower = others(leader)[0]
    life = world.lives[follower]
    world.is_holding = True
    stale = None
    world.submit(leader, b"first")
    while stale is None:
        world.tick()
        for from_, to, raw in list(world.queue):
            if to == follower and parse(raw).append_entries.entries:
                stale = (from_, to, raw)
        if stale is None:
            world.deliver()
    world.is_holding = False
    assert world.propose(leader, b"second") == b"second"
    world.settle()
    disk = world.disks[follower]
    entries, synced = list(life.journal[:]), disk.durability_op_count
    commit = life.node.raftCommitIndex
    world.queue.append(stale)
    world.deliver()
    assert list(life.journal[:]) == entries
    assert life.node.raftCommitIndex == commit
    assert disk.durability_op_count == synced, "the disk was touched"
    world.settle()
    assert world.propose(follower, b"third") == b"third"


def test_B8_journal_is_cut_when_logs_conflict(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch)
    old = world.elect()
    fill(world, 3)
    world.settle()
    world.cut(old)
    for number in range(4):
        world.submit(old, b"lost%d" % number)
    world.run(5)
    new = world.elect()
    kept = [b"kept%d" % number for number in range(2)]
    for command in kept:
        world.propose(new, command)
    world.heal()
    world.settle()
    assert world.applied(old)[-2:] == kept
    assert world.lives[old].journal[:] == world.lives[new].journal[:]


def test_B8_committed_entry_is_never_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    fill(world, 3)
    world.settle()
    journal = world.lives[leader].journal
    with journal.message():
        journal.deleteEntriesFrom(2)
        with pytest.raises(errors.InvariantViolated, match="overwritten"):
            journal.add(b"\x00other", journal[1].index + 1, journal[1].term)


def test_B11_acknowledgement_of_another_term_counts_nothing(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    follower, away = others(leader)
    world.settle()
    world.cut(follower, away)
    world.submit(leader, b"alone")
    world.tick()
    life = world.lives[leader]
    term = life.node.status().term
    message = {
        "type": "next_node_idx",
        "next_node_idx": life.journal[-1].index + 1,
        "reset": False,
        "success": True,
    }
    life.transport.received(follower, {**message, "term": term - 1})
    world.tick()
    assert b"alone" not in life.machine.applied
    life.transport.received(follower, {**message, "term": term})
    world.tick()
    assert b"alone" in life.machine.applied


def test_B12_node_does_not_start_when_its_snapshot_is_damaged(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch, timings=OFTEN)
    world.elect()
    fill(world, 60)
    world.settle()
    world.kill("a")
    world.disks["a"].flip_bit("control/snapshot", 150)
    with pytest.raises(errors.CorruptFile, match="snapshot"):
        world.start("a")


def test_zombie_is_not_applied_when_a_node_without_leader_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RaftWorld(monkeypatch)
    world.elect()
    world.cut("a")
    world.until(lambda: not world.lives["a"].node.status().leader_node_id)
    world.submit("a", b"zombie")
    world.run(1)
    assert world.answer(b"zombie") == (None, FAIL_REASON.MISSING_LEADER)
    world.heal()
    world.settle()
    assert b"zombie" not in world.applied("a")


def test_node_that_lags_gets_a_snapshot_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = count_installs(monkeypatch)
    world = RaftWorld(monkeypatch, timings=OFTEN)
    world.elect()
    world.kill("a")
    for number in range(80):
        world.propose(world.elect(), b"c%d" % number)
    life = world.start("a")
    world.settle()
    assert life.journal in installed
    assert len(world.applied("a")) == 80
    world.kill("a")
    world.start("a")
    world.settle()
    assert len(world.applied("a")) == 80


def test_leader_that_stops_hands_over_without_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RaftWorld(monkeypatch)
    old = world.elect()
    world.settle()
    begun_s = world.now_s
    node = world.lives[old].node
    node.hand_over(1, 0.0)
    world.until(lambda: world.leaders() not in ([], [old]))
    assert world.now_s - begun_s < world.timings.raft_s_min


def test_version_that_nobody_audited_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_node, "VERSION", "0.3.18")
    with pytest.raises(errors.IncompatibleFormat, match=r"0\.3\.17"):
        raft_node.check_version()


def test_entry_has_its_fields_in_the_order_of_pysyncobj() -> None:
    assert Entry(b"x", 3, 2) == (b"x", 3, 2)


# --- full disks


def fill_disks(world: RaftWorld, *node_ids: str) -> None:
    for node_id in node_ids or world.node_ids:
        world.disks[node_id].capacity_bytes = world.disks[node_id].used_bytes("")


def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "ROOM_BYTES", 16 * 1024)
    monkeypatch.setattr(journal, "COMMAND_ROOM_BYTES", 4 * 1024)


def test_group_votes_commits_and_compacts_when_all_disks_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_room(monkeypatch)
    world = RaftWorld(monkeypatch)
    world.elect()
    fill_disks(world)
    commands = [b"%d" % number + bytes(100) for number in range(300)]
    for number, command in enumerate(commands):
        assert world.propose(world.elect(), command) == command
        if number % 60 == 30:
            dead = world.elect()
            world.kill(dead)
            world.elect()
            world.start(dead)
    world.settle()
    assert world.applied("a") == commands
    for node_id, life in world.lives.items():
        assert life.journal[0].index > 200, "it was compacted"
        assert world.disks[node_id].open(f"{DIRECTORY}/journal").size() <= 16 * 1024


def test_follower_without_room_votes_and_catches_up_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_room(monkeypatch)
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    poor, other = (node_id for node_id in world.node_ids if node_id != leader)
    fill_disks(world, poor)
    large = [b"%d" % number + bytes(3_000) for number in range(8)]
    for command in large:
        # Nothing of it can be compacted away before it is applied, and the room is for five.
        world.lives[poor].node.compact = lambda: None
        assert world.propose(leader, command) == command
    assert len(world.applied(poor)) < 8
    assert len(world.applied(leader)) == 8
    world.kill(leader)
    # The one without room votes for it; that makes no majority for entries.
    world.until(lambda: world.lives[other].node.status().leader_node_id == other)
    world.disks[poor].capacity_bytes = 1 << 30
    world.start(leader)
    world.settle()
    assert world.applied(poor)[:8] == large


def test_leader_without_room_refuses_commands_and_leads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_room(monkeypatch)
    world = RaftWorld(monkeypatch)
    leader = world.elect()
    world.settle()
    fill_disks(world)
    node = world.lives[leader].node
    for life in world.lives.values():
        life.node.compact = lambda: None
    refused = None
    for number in range(40):
        seen = len(world.answers)
        world.submit(leader, b"%d" % number + bytes(1_000))
        world.until(lambda seen=seen: len(world.answers) > seen)
        if world.answers[-1][2] != FAIL_REASON.SUCCESS:
            refused = world.answers[-1][1:]
            break
    assert refused == (None, FAIL_REASON.REQUEST_DENIED)
    world.run(200)
    assert world.leaders() == [leader]
    assert node.status().has_majority
    for life in world.lives.values():
        del life.node.compact
    world.run(10)
    assert world.propose(leader, b"compacted") == b"compacted"
    world.settle()


def test_snapshot_that_finds_no_room_is_not_taken_and_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = count_installs(monkeypatch)
    world = RaftWorld(monkeypatch, timings=OFTEN)
    world.elect()
    world.kill("a")
    for number in range(80):
        world.propose(world.elect(), b"c%d" % number)
    life = world.start("a")
    stored: list[bytes] = []

    def store(snapshot: Snapshot) -> None:
        stored.append(snapshot.state)
        raise errors.DiskFull("no room")

    monkeypatch.setattr(life.journal.snapshot_file, "store", store)
    world.until(lambda: len(stored) > 2)
    assert installed == []
    assert world.applied("a") == []
    monkeypatch.undo()
    monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: world.now_s)
    world.settle()
    assert len(world.applied("a")) == 80
