"""Each answer about a dedup key is taken down, and nobody waits for what is not to come."""

import asyncio
from typing import Any

from chaos.actors.dedup_keys import publish_unique
from chaos.workload import Workload
from hourwheel import DedupAnswer, DedupOutcome, errors
from hourwheel.formats.message_id import MessageId

FIRST, LAST = MessageId(0, 1, 1, 5), MessageId(0, 1, 2, 5)
ANSWERS = (
    DedupAnswer(DedupOutcome.PUBLISHED, FIRST, None),
    DedupAnswer(DedupOutcome.KEPT, FIRST, None),
    DedupAnswer(DedupOutcome.REJECTED, FIRST, None),
    None,
    DedupAnswer(DedupOutcome.REPLACED, LAST, FIRST),
)


class Impatient(Workload):
    async def pass_ms(self, duration_ms: float) -> None:
        self.is_stopping = len(self.history.sent) == len(ANSWERS)
        await asyncio.sleep(0)


class Producer:
    def __init__(self) -> None:
        self.answers = iter(ANSWERS)

    async def publish_unique(self, _: str, message: Any) -> DedupAnswer:
        assert message.dedup_key.startswith("name-")
        answer = next(self.answers)
        if answer is None:
            raise errors.Timeout
        return answer


async def test_answers_are_taken_down() -> None:
    load = Impatient("127.0.0.1:1", 3)
    await publish_unique(load, Producer())  # type: ignore[arg-type]
    history = load.history
    assert [one.outcome.name for one in history.uniques] == [
        *("PUBLISHED", "KEPT", "REJECTED", "REPLACED")
    ]
    assert [one.pending_id for one in history.uniques] == [None, FIRST, FIRST, FIRST]
    assert {one.message_id for one in history.accepted.values()} == {FIRST, LAST}
    assert history.refused == {2, 3}
    assert load.open_count == 1, "only the last one is to come"
    assert len(load.given_up) == 1
