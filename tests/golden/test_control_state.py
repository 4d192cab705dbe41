"""The control state and the journal of a node alone, as former rules wrote them."""

import pytest

from node.cluster.restored_control import find_restored
from node.shard.node_meta import CONTROL_RESTORED
from replication.control_state.state import decode_state, encode_state
from replication.standalone import control_journal
from replication.standalone.control_journal import ControlJournal
from tests.sim.disk import SimulatedDisk
from tests.support import control_golden
from tests.support.golden import golden


@pytest.mark.parametrize("name", control_golden.BUILDERS)
def test_file_when_written_by_its_rules_is_the_golden_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_journal, "CODEC_VERSION", 2)
    assert control_golden.BUILDERS[name]().hex(" ", 8) == golden(name).hex(" ", 8)


def test_state_when_read_from_the_golden_file() -> None:
    raw = golden("control_state_rules_2")
    state = decode_state(raw)
    state.check()
    assert encode_state(state) == raw
    assert (state.codec_version, state.revision, state.shards[0].epoch) == (2, 12, 4)
    assert (state.topics["orders"].object_id, set(state.groups)) == (1, {"billing"})
    assert set(state.access.users) == {"shop"}
    assert state.access.quotas["*"].limits.messages_per_s == 100


def test_imported_state_when_read_from_the_golden_file() -> None:
    raw = golden("control_state_imported")
    state = decode_state(raw)
    state.check()
    assert encode_state(state) == raw
    assert (state.codec_version, state.revision) == (5, 1_004)
    assert (state.catalog_import.pieces, state.catalog_import.is_done) == (2, True)
    assert {one.name: one.object_id for one in state.topics.values()} == {"bills": 9}
    assert state.groups["billing"].object_id == 2


def test_journal_when_read_from_the_golden_file() -> None:
    disk = SimulatedDisk()
    disk.make_dir(control_golden.DIRECTORY)
    path = f"{control_golden.DIRECTORY}/journal"
    disk.open(path, create=True).pwrite((golden("control_journal_rules_2"),), 0)
    journal = ControlJournal.open(
        disk, control_golden.DIRECTORY, control_golden.IDENTITY, control_golden.NODE
    )
    journal.check()
    access = journal.state.access
    assert (set(access.users), len(access.grants), len(access.quotas)) == ({"shop"}, 2, 1)


def test_grown_state_when_read_from_the_golden_file() -> None:
    raw = golden("control_state_grown")
    state = decode_state(raw)
    state.check()
    assert encode_state(state) == raw
    assert (state.min_in_sync, state.min_in_sync_goal, state.membership.generation) == (1, 2, 1)


def test_state_of_a_restore_when_read_from_the_golden_file() -> None:
    disk = SimulatedDisk()
    disk.open(CONTROL_RESTORED, create=True).pwrite((golden("control_restored"),), 0)
    state = find_restored(disk, control_golden.IDENTITY)
    assert state is not None
    assert set(state.access.users) == {"shop"}
