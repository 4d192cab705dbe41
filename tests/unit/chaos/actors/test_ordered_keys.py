"""Messages with ordering keys are published until there shall be no more; blocked ones go on."""

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.actors import ordered_keys
from chaos.history import History
from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from tests.support.impatient_load import ImpatientLoad

LISTS = 40
BLOCKED = MessageId(0, 1, 7, 0), MessageId(0, 1, 8, 0)


class Producer:
    def __init__(self) -> None:
        self.keys = Counter[str]()
        self.calls = 0

    async def publish_many(self, topic: str, messages: Any) -> list[MessageId]:
        assert topic == ordered_keys.TOPIC
        self.calls += 1
        if self.calls == 3:
            raise errors.Unavailable
        self.keys.update(one.ordering_key for one in messages)
        return [MessageId(0, 1, at, 0) for at, _ in enumerate(messages)]


async def test_lists_have_few_hot_keys_and_many_others_and_are_bounded() -> None:
    load, producer = ImpatientLoad.ending_after(LISTS), Producer()
    await ordered_keys.publish_in_order(load, producer)  # type: ignore[arg-type]
    assert set(load.history.keys) == set(load.history.sent)
    assert producer.keys["hot-1"] > 5 < producer.keys["hot-2"]
    assert len(producer.keys) > 20
    assert len(load.given_up) == 1
    assert ordered_keys.OPEN_MAX <= load.open_in(ordered_keys.TOPIC) < ordered_keys.OPEN_MAX + 10
    assert producer.calls < LISTS, "nobody sees any of it, so it ends"


class Admin:
    def __init__(self) -> None:
        self.unblocked: list[tuple[str, str, list[MessageId], str]] = []

    async def get_group(self, group: str) -> Any:
        if group == "gamma-dead":
            raise errors.Unavailable
        lags = [SimpleNamespace(blocked_message_ids=ids) for ids in ((), BLOCKED)]
        return SimpleNamespace(lags=lags)

    async def unblock(self, *asked: Any) -> int:
        self.unblocked.append(asked)
        raise asyncio.CancelledError


@pytest.mark.parametrize("seed", range(6))
async def test_blocked_messages_are_skipped_or_given_up(seed: int) -> None:
    admin, history = Admin(), History()
    with pytest.raises(asyncio.CancelledError):
        await ordered_keys.decide(admin, history, random.Random(seed))  # type: ignore[arg-type]
    ((group, topic, ids, action),) = admin.unblocked
    assert (group, topic, ids) == ("gamma-block", ordered_keys.TOPIC, list(BLOCKED))
    assert action in {"skip", "dead-letter"}
    asked = {("gamma-block", one.sequence) for one in BLOCKED}
    assert history.skips == (asked if action == "skip" else set())


def test_some_messages_are_poison() -> None:
    assert [one for one in range(1, 120) if ordered_keys.is_poison(one)] == [53, 106]
