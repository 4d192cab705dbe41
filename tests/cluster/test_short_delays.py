"""Messages due some milliseconds after they are published, to a consumer that waits for each.

A message that becomes visible while the node serves another turn must wake who waits for it: else
the poll ends with nothing, and the message comes with the next one, a whole wait late. What is
looked at is which poll brought a message, not how long it took: these polls wait for ten seconds.
"""

import random
from pathlib import Path
from typing import Final

import grpc

from hourwheel import AsyncProducer, Message
from hourwheel.v1 import consumer_pb2
from hourwheel.v1.consumer_pb2_grpc import ConsumerServiceStub
from tests.bench.subject import running

COUNT: Final = 600
DELAYS_MS: Final = (3, 8)
WAIT_MS: Final = 10_000
"""Far longer than a busy machine keeps a message from a poll that was woken."""
TOPIC: Final = "orders"


async def test_no_message_waits_for_the_end_of_a_poll(tmp_path: Path) -> None:
    delays = random.Random(3)
    async with (
        running(tmp_path) as node,
        AsyncProducer(node.child.address) as producer,
        grpc.aio.insecure_channel(node.child.address) as channel,
    ):
        stub = ConsumerServiceStub(channel)
        request = consumer_pb2.ReceiveRequest(group="billing", topic=TOPIC)
        await producer.publish(TOPIC, Message(b"first"))
        await stub.Receive(request)  # the group is there
        request.wait_ms = WAIT_MS
        bodies, empty_after = list[bytes](), list[int]()
        for number in range(COUNT):
            poll = stub.Receive(request, timeout=60)
            message = Message(b"%d" % number, delay_ms=delays.randint(*DELAYS_MS))
            await producer.publish(TOPIC, message)
            answer = await poll
            bodies += [one.body for one in answer.messages]
            if not answer.messages:
                empty_after.append(number)
        assert empty_after == [], "polls ended with nothing although a message was there"
        assert len(set(bodies) - {b"first"}) >= COUNT - 1
