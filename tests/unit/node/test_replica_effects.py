"""What a replica is told and asks for: values."""

from node.replica_effects import Assignment, Role, Write


def test_assignments_are_in_the_order_of_epoch_and_version() -> None:
    older = Assignment(3, "n1", frozenset({"n1", "n2"}), 7)
    newer = older._replace(epoch=4, version=8)
    assert (newer.epoch, newer.version) > (older.epoch, older.version)
    assert older == Assignment(3, "n1", frozenset({"n2", "n1"}), 7)


def test_effects_are_compared_by_what_they_say() -> None:
    assert Write() == Write()
    assert {one.value for one in Role} == {"follower", "taking over", "master"}
