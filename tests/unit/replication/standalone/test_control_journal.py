"""The control state of a node alone: what was answered is there again, whatever was cut off."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.commands import COMMAND_BYTES_MAX, apply_command, make_command
from replication.control_state.state import CODEC_VERSION, ControlState
from replication.raft import journal_file
from replication.raft.journal_file import Entry, JournalFile
from replication.standalone import control_journal
from replication.standalone.control_journal import ControlJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.every_step import EveryStepDisk, lose_power_at_every_step

IDENTITY = Identity(b"c" * 16, 0)
FOLDER = "control-alone"
JOURNAL, SNAPSHOT = f"{FOLDER}/journal", f"{FOLDER}/snapshot"
NODE = NodeId("n1")
ROOM_BYTES = 8 * 1024
LONG_HASH = "#" * 500


def opened(disk: SimulatedDisk, identity: Identity = IDENTITY) -> ControlJournal:
    journal = ControlJournal.open(disk, FOLDER, identity, NODE)
    journal.check()
    return journal


def put_user(number: int, *, secret_hash: str = "#", version: int = 0) -> bytes:
    command = make_command(
        b"user" + number.to_bytes(12, "big"),
        put_user=pb.PutUserCommand(
            name=f"u{number}", secret_hash=secret_hash, expected_version=version
        ),
    )
    return command.SerializeToString()


def outcome(raw: bytes) -> int:
    return pb.ControlResult.FromString(raw).outcome


def names(journal: ControlJournal) -> set[str]:
    return set(journal.state.access.users)


def test_state_is_there_again_when_the_node_starts_again() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    results = journal.apply([put_user(1), put_user(2), put_user(1)])
    assert [outcome(one) for one in results[:2]] == [pb.CONTROL_OUTCOME_OK] * 2
    assert results[2] == results[0], "its answer was remembered"
    state = journal.state
    assert (state.cluster_id, state.codec_version) == (IDENTITY.cluster_id, CODEC_VERSION)
    assert set(state.shards) == {0}
    journal.close()
    disk.kill()
    again = opened(disk)
    assert again.state.digest() == state.digest()
    assert again.apply([put_user(2)]) == [results[1]]


def test_node_whose_control_state_was_never_changed_has_no_files() -> None:
    disk = SimulatedDisk()
    state = opened(disk).state
    assert not disk.exists(FOLDER)
    assert state.is_bootstrapped
    disk.kill()
    journal = opened(disk)
    assert journal.state.digest() == state.digest()
    journal.apply([put_user(1)])
    assert disk.exists(FOLDER)
    assert journal.state.access.users["u1"].version == state.revision + 1


@pytest.mark.parametrize("user_count", [1, 8])
def test_what_was_answered_survives_a_power_cut_at_each_step(
    monkeypatch: pytest.MonkeyPatch, user_count: int
) -> None:
    """With eight there is a snapshot on the way."""
    monkeypatch.setattr(journal_file, "ROOM_BYTES", ROOM_BYTES)
    worlds: list[tuple[EveryStepDisk, list[int]]] = []

    def prepare(disk: EveryStepDisk) -> Callable[[], object]:
        answered = list[int]()
        worlds.append((disk, answered))
        journal = opened(disk)

        def use() -> None:
            for number in range(user_count):
                journal.apply([put_user(number, secret_hash=LONG_HASH)])
                answered.append(number)

        return use

    def check(rng: random.Random) -> None:
        disk, answered = worlds[-1]
        disk.crash(rng)
        journal = opened(disk)
        found, sure = names(journal), {f"u{number}" for number in answered}
        assert sure <= found
        assert len(found) <= len(sure) + 1, "the next one was on its way"
        journal.apply([put_user(100)])
        assert names(journal) == found | {"u100"}

    assert lose_power_at_every_step(prepare, check) > 10
    assert worlds[0][0].exists(SNAPSHOT) == (user_count > 1)


def test_state_is_the_one_that_the_commands_make_whatever_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a list of commands that never forgets."""
    monkeypatch.setattr(journal_file, "ROOM_BYTES", ROOM_BYTES)
    for seed in range(12):
        rng, disk = random.Random(seed), SimulatedDisk()
        journal = opened(disk)
        model, commands = journal.state, 0
        for _ in range(25):
            batch = [
                put_user(commands + at, secret_hash=LONG_HASH) for at in range(rng.randint(1, 4))
            ]
            commands += len(batch)
            if rng.random() < 0.2:
                disk.fail_after(rng.randint(1, 8), takes_effect=rng.random() < 0.5)
            with suppress(SimulatedCrash):
                journal.apply(batch)
                model = after(model, batch)
                assert journal.state.digest() == model.digest(), f"seed {seed}"
                journal.check()
                continue
            disk.crash(rng)
            journal = opened(disk)
            for count in range(len(batch) + 1):  # some of the batch, from its beginning on
                if journal.state.digest() == after(model, batch[:count]).digest():
                    model = journal.state
                    break
            else:
                pytest.fail(f"seed {seed}: no beginning of the batch")


def fill(journal: ControlJournal) -> None:
    for number in range(2, 200):
        journal.apply([put_user(number, secret_hash=LONG_HASH)])


def after(state: ControlState, commands: list[bytes]) -> ControlState:
    for command in commands:
        state, _ = apply_command(state, command)
    return state


def test_rules_are_the_newest_also_where_an_older_version_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    with monkeypatch.context() as older:
        older.setattr(control_journal, "CODEC_VERSION", 1)
        journal = opened(disk)
        assert outcome(journal.apply([put_user(1)])[0]) == pb.CONTROL_OUTCOME_UNKNOWN_VERSION
        assert journal.state.codec_version == 1
    disk.kill()
    journal = opened(disk)
    assert journal.state.codec_version == CODEC_VERSION
    assert outcome(journal.apply([put_user(2)])[0]) == pb.CONTROL_OUTCOME_OK


def test_full_disk_refuses_a_command_and_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_file, "ROOM_BYTES", ROOM_BYTES)
    disk = SimulatedDisk()
    journal = opened(disk)
    disk.capacity_bytes = 0
    with pytest.raises(errors.DiskFull):
        journal.apply([put_user(1)])
    disk.capacity_bytes = 1 << 40
    journal.apply([put_user(1)])
    disk.capacity_bytes = 0
    with pytest.raises(errors.DiskFull):
        fill(journal)
    state = journal.state
    disk.kill()
    journal = opened(disk)
    assert journal.state.digest() == state.digest()
    disk.capacity_bytes = 1 << 40
    journal.apply([put_user(201)])
    assert "u201" in names(journal)


def test_command_that_is_too_long_is_refused_and_not_kept() -> None:
    journal = opened(SimulatedDisk())
    with pytest.raises(errors.InvalidArgument):
        journal.apply([put_user(1), bytes(COMMAND_BYTES_MAX + 1)])
    assert names(journal) == set()


def test_files_that_are_damaged_missing_or_of_others_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_file, "ROOM_BYTES", ROOM_BYTES)
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.apply([put_user(1)])
    with pytest.raises(errors.ForeignDirectory):
        opened(disk, Identity(b"d" * 16, 0))
    journal.apply([put_user(number, secret_hash=LONG_HASH) for number in range(2, 12)])
    assert disk.exists(SNAPSHOT)
    for lost in (SNAPSHOT, JOURNAL):
        disk.rename(lost, f"{FOLDER}/away")
        with pytest.raises(errors.CorruptFile):
            opened(disk)
        disk.rename(f"{FOLDER}/away", lost)
    disk.flip_bit(JOURNAL, 200)
    with pytest.raises(errors.CorruptFile):
        opened(disk)


def test_journal_of_another_kind_is_refused() -> None:
    disk = SimulatedDisk()
    disk.make_dir(FOLDER)
    JournalFile.create(disk, JOURNAL, IDENTITY, [Entry(b"\x01", 1, 1)]).close()
    with pytest.raises(errors.CorruptFile):
        opened(disk)


def test_state_is_read_beside_the_node_and_nothing_is_changed() -> None:
    disk = SimulatedDisk()
    assert ControlJournal.read(disk, FOLDER, IDENTITY) is None
    journal = opened(disk)
    for number in range(3):
        journal.apply([put_user(number)])
        before = disk.durability_op_count
        assert ControlJournal.read(disk, FOLDER, IDENTITY) == journal.state
        assert disk.durability_op_count == before
    disk.flip_bit(JOURNAL, 150)
    with pytest.raises(errors.CorruptFile, match=JOURNAL):
        ControlJournal.read(disk, FOLDER, IDENTITY)


def test_state_is_read_beside_the_node_when_it_was_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_file, "ROOM_BYTES", ROOM_BYTES)
    disk = SimulatedDisk()
    journal = opened(disk)
    for number in range(40):
        journal.apply([put_user(number, secret_hash=LONG_HASH)])
        assert ControlJournal.read(disk, FOLDER, IDENTITY) == journal.state
    disk.remove(SNAPSHOT)
    with pytest.raises(errors.CorruptFile, match=SNAPSHOT):
        ControlJournal.read(disk, FOLDER, IDENTITY)
