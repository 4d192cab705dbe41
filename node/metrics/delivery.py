"""The metrics of what is handed out, and of what filters skip. Part of the table."""

from typing import Final

from node.metrics.family import shard_counter

FAMILIES: Final = (
    shard_counter(
        "hourwheel_lease_expirations_total",
        "Leases that ran out.",
        lambda it: it.stats.lease_expirations,
    ),
    shard_counter(
        "hourwheel_expired_messages_total",
        "Messages that expired before a group got them, once for each group.",
        lambda it: it.stats.expired,
    ),
    shard_counter(
        "hourwheel_filter_skipped_messages_total",
        "Queue entries that filters of subscriptions skipped by their genes, unread.",
        lambda it: it.stats.filter_masked,
    ),
    shard_counter(
        "hourwheel_filter_checked_messages_total",
        "Messages that were read because a filter could not tell from their genes.",
        lambda it: it.stats.filter_read,
    ),
    shard_counter(
        "hourwheel_filter_false_positives_total",
        "Those of them that did not match.",
        lambda it: it.stats.filter_refused,
    ),
)
