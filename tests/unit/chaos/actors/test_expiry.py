"""Messages with short lives, with long ones, and with none; nobody waits for them."""

from typing import Any

from chaos.actors import expiry
from chaos.actors.clients import GROUPS
from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from tests.support.impatient_load import ImpatientLoad

LISTS = 20


class Producer:
    def __init__(self) -> None:
        self.lives: list[int | None] = []
        self.calls = 0

    async def publish_many(self, topic: str, messages: Any) -> list[MessageId]:
        assert topic == expiry.TOPIC
        self.calls += 1
        if self.calls == 3:
            raise errors.Unavailable
        self.lives += [one.expire_after_ms for one in messages]
        return [MessageId(0, 1, at, 0) for at, _ in enumerate(messages)]


async def test_messages_expire_after_different_times_and_nobody_waits_for_them() -> None:
    load, producer = ImpatientLoad.ending_after(LISTS), Producer()
    await expiry.publish_expiring(load, producer)  # type: ignore[arg-type]
    history = load.history
    assert history.lives.keys() == history.sent.keys()
    assert [history.lives[one] or None for one in history.accepted] == producer.lives
    assert None in producer.lives
    assert len(set(producer.lives)) > 3
    assert load.open_count == 0
    assert len(load.given_up) == 1
    assert {GROUPS[name][0] for name in expiry.GROUPS} == {expiry.TOPIC}
    assert expiry.KEEPER in expiry.GROUPS
