from collections.abc import AsyncIterator

import pytest

from hourwheel.transport.channel import Channel
from hourwheel.transport.retry import Backoff
from tests.support.fake_node import FakeNode


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    async with FakeNode() as fake:
        yield fake


@pytest.fixture
async def channel(node: FakeNode) -> AsyncIterator[Channel]:
    async with Channel(node.address, backoff=Backoff(ms_min=1.0, ms_max=5.0)) as opened:
        yield opened
