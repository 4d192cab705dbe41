"""Bulk moves are asked for until there is an answer, and what they leave behind is found."""

from typing import Any, Final

from chaos.actors import reschedules
from chaos.actors.reschedules import RescheduleClient, check_moved
from chaos.history import Accepted, History, Sweep
from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from tests.support.impatient_load import ImpatientLoad

LISTS: Final = 6
DUE_MS: Final = 1_800_000_000_000


class Node:
    """A producer and an administrator; the first answer to a move is lost."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.keys: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.calls = 0

    async def publish_many(self, topic: str, messages: Any) -> list[MessageId]:
        assert topic == reschedules.TOPIC
        self.calls += 1
        if self.calls == 2:
            raise errors.Unavailable
        for one in messages:
            self.tags[one.tags[0]] = self.tags.get(one.tags[0], 0) + 1
        self.keys += [one.keys[0] for one in messages]
        return [MessageId(0, 1, at, one.due_ms) for at, one in enumerate(messages)]

    async def reschedule_pending(
        self, topic: str, wanted: str | None, *, due_ms: int, key_prefix: str
    ) -> None:
        what = wanted or key_prefix
        self.asked.append((what, due_ms))
        if wanted:
            assert self.tags[what] == 20
        else:
            assert sum(one.startswith(what) for one in self.keys) == 20
        if len(self.asked) == 1:
            raise errors.Timeout


async def test_a_move_is_asked_for_again_to_the_same_instant() -> None:
    load, node = ImpatientLoad.ending_after(LISTS), Node()
    await RescheduleClient(load, node, node).work()  # type: ignore[arg-type]
    assert len(load.history.sweeps) == LISTS - 1
    assert node.asked[0] == node.asked[1]
    assert [one.due_ms for one in load.history.sweeps] == [due_ms for _, due_ms in node.asked[1:]]
    assert len({what.endswith("-") for what, _ in node.asked}) == 2, "by filter, and by key"
    assert len(load.given_up) == 1


def test_what_a_move_has_left_behind_is_found() -> None:
    history = History()
    for serial in (1, 2, 3):
        history.accepted[serial] = Accepted(MessageId(0, 1, serial, DUE_MS), 0.0)
    history.sweeps.append(Sweep((1, 2, 3), 500, 1.0, 2.0))
    assert check_moved(history, {1: 500, 2: 500, 3: 700}) == []
    found = check_moved(history, {1: 499, 3: 500})
    assert [name for name, _ in found] == ["reschedule", "reschedule"]
