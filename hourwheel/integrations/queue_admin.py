"""What a queue of another library has of calls beside sending and receiving."""

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin


async def count_ready(admin: AsyncAdmin, topic: str, group: str) -> int:
    """How many messages are due and not leased."""
    try:
        unresolved, leased = await _count(admin, topic, group)
    except errors.UnknownTopic:
        return 0
    return unresolved - leased


async def count_unfinished(admin: AsyncAdmin, topic: str, group: str) -> int:
    """How many messages are to be done: later, now, and those that are being worked on."""
    try:
        pending = await admin.count_pending(topic)
        unresolved, _ = await _count(admin, topic, group)
    except errors.UnknownTopic:
        return 0
    return pending.matched_count + unresolved


async def _count(admin: AsyncAdmin, topic: str, group: str) -> tuple[int, int]:
    """Released messages that a group has still to do; how many of them are leased."""
    try:
        lags = (await admin.get_group(group)).lags
    except errors.UnknownGroup:
        lags = ()
    for lag in lags:
        if lag.topic == topic:
            return lag.unresolved_count, lag.leased_count
    return (await admin.get_topic(topic)).released_count, 0  # no group has received from it


async def purge(admin: AsyncAdmin, topic: str, group: str) -> int:
    """Take back what is pending and let the group go on behind the rest; gives how many."""
    await admin.put_subscription(group, topic)
    cancelled = await admin.cancel_pending(topic, "*")
    skipped = await admin.skip(group, topic)
    return cancelled.cancelled_count + skipped.skipped_count
