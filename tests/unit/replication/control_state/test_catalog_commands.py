"""Topics and groups that come over from a log, and those that nobody uses."""

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.catalog_commands import CATALOG_RULES
from replication.control_state.state import CODEC_VERSION, decode_state, encode_state
from tests.support.control_commands import StateWorld, boot

CONFLICT, REFUSED = pb.CONTROL_OUTCOME_CONFLICT, pb.CONTROL_OUTCOME_REFUSED


def begun(*, rules: int = CODEC_VERSION) -> StateWorld:
    """A cluster with a master in epoch 1."""
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=rules))
    world.elect(1)
    return world


def objects(**ids: int) -> list[pb.ObjectData]:
    return [pb.ObjectData(name=name, object_id=one, settings=b"s") for name, one in ids.items()]


def piece(number: int, **fields: object) -> pb.ImportCatalogCommand:
    return pb.ImportCatalogCommand(epoch=1, piece=number, **fields)  # type: ignore[arg-type]


def test_topics_and_groups_come_in_pieces_with_their_ids() -> None:
    world = begun()
    first = piece(0, topics=objects(orders=7), next_topic_id=12, next_group_id=5)
    world.ok(import_catalog=first)
    assert not world.state.catalog_import.is_done
    world.ok(import_catalog=piece(1, topics=objects(bills=9), groups=objects(mail=3), is_last=True))
    state = world.state
    assert {one.name: one.object_id for one in state.topics.values()} == {"orders": 7, "bills": 9}
    assert state.groups["mail"].object_id == 3
    assert (state.next_topic_id, state.next_group_id) == (12, 5)
    assert state.catalog_import.is_done
    assert decode_state(encode_state(state)) == state
    assert world.ok(put_topic=pb.PutObjectCommand(name="new")).object_id == 12


def test_import_is_done_once() -> None:
    world = begun()
    world.ok(import_catalog=piece(0, topics=objects(orders=7), is_last=True))
    again = world.do(import_catalog=piece(0, is_last=True))
    assert again.outcome == CONFLICT
    assert set(world.state.topics) == {"orders"}


def test_import_begins_anew_where_a_master_does_not_know_how_far_it_came() -> None:
    world = begun()
    world.ok(import_catalog=piece(0, topics=objects(orders=7)))
    world.ok(import_catalog=piece(1, topics=objects(gone=8)))
    assert world.do(import_catalog=piece(1)).outcome == CONFLICT, "a piece that came twice"
    world.ok(import_catalog=piece(0, topics=objects(orders=7), is_last=True))
    assert set(world.state.topics) == {"orders"}


def test_former_master_imports_nothing() -> None:
    world = begun()
    world.ok(import_catalog=piece(0, topics=objects(orders=7)))
    world.ok(
        elect_master=pb.ElectMasterCommand(
            expected_epoch=1, master_node_id="n2", master_boot_id=boot(2)
        )
    )
    assert world.do(import_catalog=piece(1, is_last=True)).outcome == CONFLICT
    assert not world.state.catalog_import.is_done


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": [*objects(a=1), *objects(b=1)]},
        {"topics": [*objects(a=1), *objects(a=2)]},
        {"topics": objects(a=0)},
        {"groups": [pb.ObjectData(name="", object_id=1)]},
        {"shard": 7},
    ],
)
def test_import_is_refused_when_it_cannot_be(wrong: dict[str, object]) -> None:
    world = begun()
    before = world.state
    assert world.do(import_catalog=piece(0, **wrong)).outcome == REFUSED
    assert (world.state.topics, world.state.revision) == (before.topics, before.revision)


def test_versions_grow_on_from_what_the_log_gave_out() -> None:
    world = begun()
    floor = 1_000_000
    world.ok(import_catalog=piece(0, topics=objects(orders=7), revision_floor=floor, is_last=True))
    assert world.state.topics["orders"].version > floor
    assert world.ok(put_topic=pb.PutObjectCommand(name="new")).version > floor


def test_what_is_unused_goes_at_the_word_of_the_master_alone() -> None:
    world = begun()
    made = world.ok(put_topic=pb.PutObjectCommand(name="orders"))
    named = {"name": "orders", "expected_version": made.version}
    late = world.do(expire_topic=pb.ExpireObjectCommand(**named, epoch=2))
    assert late.outcome == CONFLICT
    assert "orders" in world.state.topics
    other = world.do(
        expire_topic=pb.ExpireObjectCommand(name="orders", expected_version=1, epoch=1)
    )
    assert other.outcome == CONFLICT
    world.ok(expire_topic=pb.ExpireObjectCommand(**named, epoch=1))
    assert not world.state.topics
    made = world.ok(put_group=pb.PutObjectCommand(name="mail"))
    world.ok(
        expire_group=pb.ExpireObjectCommand(name="mail", expected_version=made.version, epoch=1)
    )
    assert not world.state.groups


def test_older_rules_know_none_of_it() -> None:
    world = begun(rules=CATALOG_RULES - 1)
    for command in (
        {"import_catalog": piece(0, is_last=True)},
        {"expire_topic": pb.ExpireObjectCommand(name="orders", epoch=1)},
        {"expire_group": pb.ExpireObjectCommand(name="mail", epoch=1)},
    ):
        answer = world.do(**command)
        assert answer.outcome == pb.CONTROL_OUTCOME_UNKNOWN_VERSION
    assert not world.state.catalog_import.is_done
