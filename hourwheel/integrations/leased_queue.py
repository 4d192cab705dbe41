"""One topic as a work queue: messages are leased one by one, and held as long as somebody has them.

For brokers of other libraries, whose workers say `ack` when a task is done and nothing before. The
lease of what they hold is made longer meanwhile (`hourwheel.workers.lease_keeper`).
"""

import asyncio
import logging
from typing import Final

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import ReceivedMessage
from hourwheel.transport.channel import Channel
from hourwheel.workers.lease_keeper import LeaseKeeper

ABSENT_TOPIC_WAIT_S: Final = 0.2
"""How often to look whether a topic is there by now."""
ACK_LINGER_MS: Final = 5.0
"""Messages done within this time are acknowledged together; killed before, they come again."""
_log = logging.getLogger("hourwheel.integrations")


class LeasedQueue:
    """What one consumer of a queue holds. Belongs to one event loop."""

    def __init__(self, channel: Channel, topic: str, group: str, invisible_ms: int = 0) -> None:
        """Nothing is leased yet.

        Args:
            channel: to the nodes; it stays its owner's.
            topic: the queue.
            group: all workers of the queue.
            invisible_ms: how long a lease is, which is made longer at half its time; 0: as the
                group is set up.
        """
        self.topic = topic
        self._consumer = AsyncConsumer(
            channel,
            group=group,
            topic=topic,
            invisible_ms=invisible_ms,
            prefetch_messages=0,
            ack_linger_ms=ACK_LINGER_MS,
        )
        self._leases = LeaseKeeper(self._consumer, channel.clock, topic)

    @property
    def is_idle(self) -> bool:
        """Nothing of it is held."""
        return self._leases.is_idle

    async def receive(self, count: int, wait_ms: float) -> list[ReceivedMessage]:
        """Up to `count` messages, which are leased until `finish`.

        Raises:
            HourwheelError: nodes were out of reach for a minute, or trying again does not help.
        """
        try:
            found = await self._consumer.receive(count, wait_ms)
        except errors.UnknownTopic:
            await asyncio.sleep(min(ABSENT_TOPIC_WAIT_S, wait_ms / 1_000))
            return []
        for message in found:
            self._leases.add(message.batch)
        return found

    def ack_soon(self, message: ReceivedMessage) -> None:
        """It is done. What cannot be acknowledged before its lease ends comes again."""
        self._leases.remove(message.batch)
        self._consumer.ack_soon(message)

    async def give_back(
        self, messages: list[ReceivedMessage], delay_ms: int = 0, *, not_begun: bool = False
    ) -> None:
        """These come again, as another attempt, or as dead letters when none is left.

        `not_begun`: at once, and it was no attempt.
        """
        for message in messages:
            self._leases.remove(message.batch)
        if not messages:
            return
        try:
            await self._consumer.nack(messages, delay_ms, not_begun=not_begun)
        except errors.StaleReceipt:
            return  # their leases are over, and so they come again in any case
        except errors.HourwheelError as error:
            _log.warning("%s: messages come again when leases end: %s", self.topic, error)

    async def reject(self, message: ReceivedMessage, reason: str) -> None:
        """It is a dead letter at once. Raises as `AsyncConsumer.nack`; it is held still, then."""
        try:
            await self._consumer.nack([message], dead_letter=True, reason=reason)
        except errors.StaleReceipt:
            _log.warning("%s: %s comes again: its lease was over", self.topic, message.message_id)
        self._leases.remove(message.batch)

    def let_go(self, message: ReceivedMessage) -> None:
        """Hold it no more, and say nothing of it: it comes again when its lease ends."""
        self._leases.remove(message.batch)

    async def settle(self) -> None:
        """After a `receive` that was cancelled: nothing more is leased by it."""
        await self._consumer.settle()

    async def close(self) -> None:
        """End. What is held is not given back, and comes again when its lease ends."""
        await self._leases.close()
        try:
            await self._consumer.close()
        except errors.HourwheelError as error:
            _log.warning("%s: some messages come again: %s", self.topic, error)
