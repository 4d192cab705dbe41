from typing import Any

import pytest

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.client.wheel import DueRange, WheelDescription
from hourwheel.errors import InvalidArgument
from hourwheel.transport.channel import Channel
from hourwheel.types import DUE_MS_MAX
from tests.support.fake_node import STORE_MS, FakeNode
from tests.support.fake_node_thread import FakeNodeThread


async def test_describe_when_there_are_messages(channel: Channel, node: FakeNode) -> None:
    async with AsyncAdmin(channel) as admin, AsyncProducer(channel) as producer:
        for delay_ms in (10, 20, 20, 30, 40):
            await producer.publish("orders", Message(b"", delay_ms=delay_ms))
        node.cancelled.add(0)
        bounds = [STORE_MS + 15, STORE_MS + 25, STORE_MS + 35]
        assert await admin.describe_wheel(bounds) == WheelDescription(
            STORE_MS,
            (
                DueRange(bounds[0], bounds[1], 2, is_estimate=False),
                DueRange(bounds[1], bounds[2], 1, is_estimate=True),
            ),
            earlier_count=1,
            later_count=1,
            pending_count=4,
            cancelled_count=1,
        )


@pytest.mark.parametrize("bounds", [[], [1], range(5_000), [1, "2"], [1, 2.5], [-1, 2]])
async def test_describe_when_there_are_no_such_bounds(channel: Channel, bounds: Any) -> None:
    async with AsyncAdmin(channel) as admin:
        with pytest.raises(InvalidArgument):
            await admin.describe_wheel(bounds)
        with pytest.raises(InvalidArgument):
            await admin.describe_wheel([0, DUE_MS_MAX + 1])


def test_describe_when_blocking() -> None:
    with FakeNodeThread() as fake, Admin(fake.address) as admin:
        assert admin.describe_wheel([0, 1]).pending_count == 0
