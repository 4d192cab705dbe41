from dataclasses import replace
from types import MappingProxyType

import pytest

from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.election import (
    LOG_STEP_BYTES,
    Decision,
    ElectionView,
    HeardReport,
    decide,
)
from replication.control_state.membership import Membership
from replication.control_state.state import CODEC_VERSION, ControlState, Member
from tests.support.control_commands import NODE_IDS, StateWorld, boot, register

NOW_MS = 50_000.0


def report(
    number: int, *, alive: bool = True, boot_id: int = 0, **shard: object
) -> link.NodeReport:
    said = link.ShardReport(**{"shard": 0, "is_ready": True, **shard})  # type: ignore[arg-type]
    return link.NodeReport(
        node_id=f"n{number}",
        boot_id=boot(boot_id or number),
        broker_alive=alive,
        shards=[said],
    )


def heard(*reports: link.NodeReport, at_ms: float = NOW_MS - 100) -> dict[str, HeardReport]:
    return {each.node_id: HeardReport(each, at_ms) for each in reports}


def all_well() -> dict[str, HeardReport]:
    return heard(report(1), report(2), report(3))


@pytest.fixture
def world() -> StateWorld:
    world = StateWorld()
    world.found()
    return world


def view(state: ControlState, reports: dict[str, HeardReport], leader: str = "n1") -> ElectionView:
    return ElectionView(
        state=state,
        reports=reports,
        listening_since_ms=NOW_MS - 5_000,
        raft_leader_node_id=leader,
        is_leading=True,
    )


def chosen(decision: Decision) -> list[str]:
    return [each.master.node_id for each in decision.proposals]


def test_nothing_is_proposed_when_this_node_does_not_lead(world: StateWorld) -> None:
    idle = replace(view(world.state, all_well()), is_leading=False)
    assert decide(idle, NOW_MS) == Decision((), None)


def test_somebody_else_than_rafts_leader_is_elected_when_all_are_equal(world: StateWorld) -> None:
    decision = decide(view(world.state, all_well(), "n1"), NOW_MS)
    assert decision.proposals[0].master == Member("n2", boot(2))
    assert decision.proposals[0].expected_epoch == 0
    assert chosen(decide(view(world.state, all_well(), "n3"), NOW_MS)) == ["n1"]


def test_longest_log_is_elected(world: StateWorld) -> None:
    ends = heard(
        report(1, last_epoch=2, log_end=900),
        report(2, last_epoch=3, log_end=100),
        report(3, last_epoch=3, log_end=200),
    )
    assert chosen(decide(view(world.state, ends, "n1"), NOW_MS)) == ["n3"]


@pytest.mark.parametrize(
    ("more_bytes", "elected"), [(1, "n2"), (LOG_STEP_BYTES - 1, "n2"), (LOG_STEP_BYTES, "n3")]
)
def test_somebody_else_than_rafts_leader_is_elected_unless_its_log_is_much_longer(
    world: StateWorld, more_bytes: int, elected: str
) -> None:
    base = 5 * LOG_STEP_BYTES
    ends = heard(
        report(1, alive=False),
        report(2, last_epoch=3, log_end=base),
        report(3, last_epoch=3, log_end=base + more_bytes),
    )
    assert chosen(decide(view(world.state, ends, "n3"), NOW_MS)) == [elected]


@pytest.mark.parametrize(
    "unfit",
    [
        report(2, alive=False),
        report(2, is_ready=False),
        report(2, is_resigning=True),
        report(2, boot_id=22),
        report(2, shard=7),
    ],
)
def test_unfit_node_is_not_elected(world: StateWorld, unfit: link.NodeReport) -> None:
    decision = decide(view(world.state, heard(report(1), unfit)), NOW_MS)
    assert chosen(decision) == ["n1"]
    assert chosen(decide(view(world.state, heard(unfit)), NOW_MS)) == []


def test_silent_or_unregistered_node_is_not_elected(world: StateWorld) -> None:
    reports = {**all_well(), **heard(report(2), at_ms=NOW_MS - 1_000)}
    assert chosen(decide(view(world.state, reports), NOW_MS)) == ["n3"]
    world.ok(register_node=register("n3", boot(33)))
    assert chosen(decide(view(world.state, reports), NOW_MS)) == ["n1"]


def test_node_that_is_not_in_sync_is_not_elected(world: StateWorld) -> None:
    world.elect(1)
    world.change_isr(1, 3)
    reports = {**heard(report(2, log_end=1 << 40), report(3)), **heard(report(1, alive=False))}
    assert chosen(decide(view(world.state, reports), NOW_MS)) == ["n3"]


def test_master_stays_while_it_reports_and_time_is_told(world: StateWorld) -> None:
    world.elect(2)
    decision = decide(view(world.state, all_well()), NOW_MS)
    assert decision == Decision((), NOW_MS - 100 + 1_000)
    late = decide(view(world.state, all_well()), NOW_MS + 850)
    assert late.proposals == ()
    fresh = {**all_well(), **heard(report(1), report(3), at_ms=NOW_MS + 890)}
    late = decide(view(world.state, fresh), NOW_MS + 900)
    assert chosen(late) == ["n3"]
    assert "silent" in late.proposals[0].reason


def test_master_whose_connection_has_ended_has_a_fifth_as_long(world: StateWorld) -> None:
    """Its processes were killed, most likely; a hiccup of the network is over before that."""
    world.elect(2)
    cut = HeardReport(report(2), NOW_MS - 100, cut_ms=NOW_MS - 80)
    reports = {**heard(report(1), report(3), at_ms=NOW_MS + 400), "n2": cut}
    assert decide(view(world.state, reports), NOW_MS) == Decision((), NOW_MS - 80 + 200)
    assert chosen(decide(view(world.state, reports), NOW_MS + 119)) == []
    assert chosen(decide(view(world.state, reports), NOW_MS + 120)) == ["n3"]
    stopped = replace(view(world.state, reports), listening_since_ms=NOW_MS + 100)
    assert chosen(decide(stopped, NOW_MS + 120)) == [], "this process was the one that slept"
    late = {**reports, "n2": HeardReport(report(2), NOW_MS - 900, cut_ms=NOW_MS)}
    assert decide(view(world.state, late), NOW_MS) == Decision((), NOW_MS + 100)
    back = {**reports, **heard(report(2), at_ms=NOW_MS + 100)}
    assert chosen(decide(view(world.state, back), NOW_MS + 420)) == []


def test_node_whose_connection_has_ended_is_not_elected(world: StateWorld) -> None:
    reports = {**all_well(), "n2": HeardReport(report(2), NOW_MS - 600, cut_ms=NOW_MS - 500)}
    assert chosen(decide(view(world.state, reports), NOW_MS)) == ["n3"]


def test_master_that_is_not_heard_of_yet_has_as_long_as_any(world: StateWorld) -> None:
    world.elect(2)
    young = replace(view(world.state, heard(report(1), report(3))), listening_since_ms=NOW_MS - 400)
    assert decide(young, NOW_MS) == Decision((), NOW_MS + 600)
    assert chosen(decide(replace(young, listening_since_ms=NOW_MS - 1_000), NOW_MS)) == ["n3"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (report(2, alive=False), "gone"),
        (report(2, boot_id=22), "again"),
        (report(2, epoch=1, is_resigning=True), "resigns"),
    ],
)
def test_master_is_deposed_by_what_its_node_says(
    world: StateWorld, said: link.NodeReport, why: str
) -> None:
    world.elect(2)
    decision = decide(view(world.state, {**all_well(), **heard(said)}), NOW_MS)
    assert chosen(decision) == ["n3"]
    assert decision.proposals[0].expected_epoch == 1
    assert why in decision.proposals[0].reason


def test_resignation_of_an_earlier_epoch_says_nothing(world: StateWorld) -> None:
    world.elect(2)
    world.elect(1)
    world.elect(2)
    said = heard(report(2, epoch=1, is_resigning=True))
    assert chosen(decide(view(world.state, {**all_well(), **said}), NOW_MS)) == []


def test_master_hands_over_to_whom_it_names_when_that_one_can(world: StateWorld) -> None:
    world.elect(2)
    said = heard(report(2, epoch=1, hand_over_to="n1"))
    assert chosen(decide(view(world.state, {**all_well(), **said}, "n1"), NOW_MS)) == ["n1"]
    unready = {**all_well(), **said, **heard(report(1, is_ready=False))}
    assert chosen(decide(view(world.state, unready), NOW_MS)) == []
    nobody = {**all_well(), **heard(report(2, epoch=1, hand_over_to="n9"))}
    assert chosen(decide(view(world.state, nobody), NOW_MS)) == []


def test_nobody_is_blamed_when_this_process_was_stopped(world: StateWorld) -> None:
    world.elect(2)
    later = replace(view(world.state, all_well()), listening_since_ms=NOW_MS + 9_000)
    assert decide(later, NOW_MS + 9_000) == Decision((), NOW_MS + 10_000)


def test_nobody_is_deposed_for_nobody(world: StateWorld) -> None:
    world.elect(2)
    decision = decide(view(world.state, heard(report(2, epoch=1, is_resigning=True))), NOW_MS)
    assert decision.proposals == ()


def test_node_with_a_low_disk_is_elected_only_where_there_is_no_other(world: StateWorld) -> None:
    """What is durable can be delivered; somebody with room could also take messages."""
    low = heard(report(1, is_low=True, log_end=900), report(2, is_low=True, log_end=950))
    assert chosen(decide(view(world.state, {**low, **heard(report(3))}), NOW_MS)) == ["n3"]
    gone = heard(report(3, alive=False))
    assert chosen(decide(view(world.state, {**low, **gone}), NOW_MS)) == ["n2"]


def test_master_with_a_low_disk_is_succeeded_by_somebody_with_room_and_by_nobody_else(
    world: StateWorld,
) -> None:
    world.elect(2)
    low = {**all_well(), **heard(report(2, epoch=1, is_low=True))}
    decision = decide(view(world.state, low), NOW_MS)
    assert chosen(decision) == ["n3"]
    assert "low" in decision.proposals[0].reason
    others = heard(report(1, is_low=True), report(3, is_ready=False))
    assert chosen(decide(view(world.state, {**low, **others}), NOW_MS)) == []


def test_master_that_has_retired_is_succeeded_also_by_itself(world: StateWorld) -> None:
    """Else nobody would ever lead again, where the others cannot."""
    world.elect(2)
    retired = heard(report(2, epoch=1, has_retired=True))
    assert chosen(decide(view(world.state, {**all_well(), **retired}), NOW_MS)) == ["n3"]
    decision = decide(view(world.state, retired), NOW_MS)
    assert decision.proposals[0].master == Member("n2", boot(2))
    resigning = heard(report(2, epoch=1, has_retired=True, is_resigning=True))
    assert chosen(decide(view(world.state, resigning), NOW_MS)) == []
    earlier = heard(report(2, epoch=0, has_retired=True))
    assert chosen(decide(view(world.state, earlier), NOW_MS)) == []


def test_end_of_a_process_is_to_be_noted_once_and_of_the_registered_incarnation(
    world: StateWorld,
) -> None:
    late = report(2, boot_id=22)
    late.ended_boot_id = boot(20)
    gone = report(1, alive=False)
    gone.ended_boot_id = boot(1)
    reports = heard(gone, late, report(3))
    decision = decide(view(world.state, reports), NOW_MS)
    assert decision.ended == (Member("n1", boot(1)),)
    assert decide(replace(view(world.state, reports), is_leading=False), NOW_MS).ended == ()
    world.ok(note_ended=pb.NoteEndedCommand(node_id="n1", boot_id=boot(1)))
    assert decide(view(world.state, reports), NOW_MS).ended == ()


def test_nothing_has_ended_when_a_broker_is_only_gone_or_its_node_silent(
    world: StateWorld,
) -> None:
    reports = heard(report(1, alive=False), report(2), report(3), at_ms=NOW_MS - 60_000)
    assert decide(view(world.state, reports), NOW_MS).ended == ()


def test_newer_rules_are_proposed_when_every_control_process_knows_them(world: StateWorld) -> None:
    reports = all_well()
    for one in reports.values():
        assert one.report is not None
        one.report.rules = CODEC_VERSION
    asked = replace(view(world.state, reports), voter_node_ids=frozenset(NODE_IDS))
    assert decide(asked, NOW_MS).rules == CODEC_VERSION
    assert decide(replace(asked, is_leading=False), NOW_MS).rules == 0
    cut = {**reports, "n2": replace(reports["n2"], cut_ms=NOW_MS)}
    assert decide(replace(asked, reports=cut), NOW_MS).rules == 0
    silent = {**reports, "n2": replace(reports["n2"], heard_ms=NOW_MS - 1_000)}
    assert decide(replace(asked, reports=silent), NOW_MS).rules == 0
    absent = replace(asked, voter_node_ids=frozenset((*NODE_IDS, "n4")))
    assert decide(absent, NOW_MS).rules == 0
    old = reports["n3"].report
    assert old is not None
    old.rules = 0
    assert decide(asked, NOW_MS).rules == 0, "a node that runs older software"
    old.rules = CODEC_VERSION
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    assert decide(replace(asked, state=world.state), NOW_MS).rules == 0


def test_min_in_sync_is_raised_by_who_leads_when_the_copies_are_there(world: StateWorld) -> None:
    members = Membership(1, MappingProxyType({NodeId(one): f"{one}:1" for one in NODE_IDS}))
    state = replace(world.state, min_in_sync=1, min_in_sync_goal=2, membership=members)
    asked = view(state, all_well())
    assert decide(asked, NOW_MS).min_in_sync == 2
    assert decide(replace(asked, is_leading=False), NOW_MS).min_in_sync == 0
    assert decide(replace(asked, state=replace(state, min_in_sync=2)), NOW_MS).min_in_sync == 0
