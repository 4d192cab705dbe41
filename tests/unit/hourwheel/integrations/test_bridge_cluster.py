import asyncio
from typing import Any

import pytest

from hourwheel import Message, errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.integrations.bridge_cluster import Clusters
from tests.support.fake_node import FakeNode


def hello(node: FakeNode, **choice: Any) -> dict[str, Any]:
    return {"servers": node.address, "user": None, "tls": None, **choice}


async def test_messages_that_come_while_others_are_under_way_go_together(node: FakeNode) -> None:
    clusters = Clusters(gather_ms=200.0)
    first, second = clusters.enter(hello(node)), clusters.enter(hello(node))
    with node.hold("PublishStream"):
        soon = []
        for number in range(8):
            cluster = (first, second)[number % 2]
            soon.append(await cluster.publish_soon("orders", Message(b"%d" % number)))
            await node.seen("PublishStream")
            await asyncio.sleep(0)
    await asyncio.gather(*soon)
    await (await first.publish_soon("orders", Message(b"alone")))
    batches = [RecordBatch(one.record_batch).header for one in node.calls["PublishStream"]]
    assert sorted(one.count for one in batches) == [1, 1, 1, 6]
    (at_once,) = {one.producer_id for one in batches if one.count == 1}
    assert at_once not in {one.producer_id for one in batches if one.count == 6}
    await clusters.leave(first)
    await clusters.leave(second)


async def test_callers_share_a_cluster_as_the_same_principal_until_the_last_one_leaves(
    node: FakeNode,
) -> None:
    clusters = Clusters()
    first, second = clusters.enter(hello(node)), clusters.enter(hello(node))
    other = clusters.enter(hello(node, user=["somebody", "secret"]))
    assert first is second
    assert other is not first
    await clusters.leave(first)
    await clusters.leave(other)
    await (await second.publish_soon("orders", Message(b"still there")))
    await clusters.leave(second)
    with pytest.raises(errors.Cancelled):
        await (await second.publish_soon("orders", Message(b"late")))
    third = clusters.enter(hello(node))
    await (await third.publish_soon("orders", Message(b"anew")))
    await clusters.leave(third)
