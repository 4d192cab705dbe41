"""Every limit that a client or a peer can run into, by name (docs/LIMITS.md lists them for users).

These are the hard limits of the formats. A node may be configured to be stricter, never laxer.
"""

from typing import Final

MESSAGE_BODY_BYTES_MAX: Final = 4 * 1024 * 1024
MESSAGE_BODY_BYTES_DEFAULT: Final = MESSAGE_BODY_BYTES_MAX - 64 * 1024
"""What a node accepts by default: with the largest metadata and all that is around
them, an answer with one such message is below 4 MiB, the most that gRPC clients receive by default.
"""
MESSAGE_META_BYTES_MAX: Final = 32 * 1024
"""Tags, keys and properties of one message, encoded. Fits the u16 that index entries keep."""
MESSAGE_TAG_COUNT_MAX: Final = 64
MESSAGE_KEY_COUNT_MAX: Final = 16
MESSAGE_PROPERTY_COUNT_MAX: Final = 128
NAME_BYTES_MAX: Final = 127
"""Length of a topic's or group's name; also of a tag."""
KEY_BYTES_MAX: Final = 255
PROPERTY_NAME_BYTES_MAX: Final = 127
PROPERTY_VALUE_BYTES_MAX: Final = 16 * 1024

BATCH_MESSAGE_COUNT_MAX: Final = 16_384
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
BATCH_TOPIC_COUNT_MAX: Final = 1_024
"""Topics that the messages of one batch are for."""
CANCEL_COUNT_MAX: Final = 16_384
MOVED_COUNT_MAX: Final = 2_097_152
"""Messages of a shard that were moved to another due time and are not past: 24 bytes of memory, and
of each checkpoint, for each."""
TRANSACTIONS_OPEN_MAX: Final = 16_384
"""Transactions of a shard that are prepared and not decided: some hundred bytes of memory, and of
each checkpoint, for each."""
TRANSACTIONS_OPEN_BYTES_MAX: Final = 1 << 30
"""Bytes of their PREPARE records together: the log keeps them."""
TRANSACTIONS_DECIDED_MAX: Final = 65_536
"""Transactions of a shard that were decided last, and whose outcome is known: apply goes by it."""
TRANSACTION_TOPICS_MAX: Final = 16
PRODUCER_GROUP_BYTES_MAX: Final = 127
TRANSACTION_CHECK_INTERVAL_MS_MAX: Final = 86_400_000
TRANSACTION_CHECKS_MAX: Final = 100
TRANSACTION_AGE_MS_MAX: Final = 3 * 86_400_000
"""The log keeps what is behind an open transaction so long, at most."""
TRANSACTIONS_PAGE_SIZE_MAX: Final = 1_000
RECURRENCE_COUNT_MAX: Final = 200_000
"""Recurrences of a shard, and"""
RECURRENCES_BYTES_MAX: Final = 128 * 1024 * 1024
"""bytes of their definitions, bodies included: in memory, and in each checkpoint."""
RECURRENCE_BODY_BYTES_MAX: Final = 64 * 1024
RECURRENCE_NAME_BYTES_MAX: Final = 128
RECURRENCE_INTERVAL_MS_MIN: Final = 1_000
"""Between two occurrences of a recurrence that ends, by `count_max` or `end_ms`, and"""
RECURRENCE_ENDLESS_INTERVAL_MS_MIN: Final = 5_000
"""of one that does not."""
RECURRENCE_MISSED_MS: Final = 60_000
"""An occurrence that is later than this has fallen into an outage."""
RECURRENCE_PAGE_SIZE_MAX: Final = 200
CRON_CHARS_MAX: Final = 256
TIME_ZONE_CHARS_MAX: Final = 64
EXCLUDED_DATE_COUNT_MAX: Final = 1_000
NEXT_TIME_COUNT_MAX: Final = 100
DEDUP_KEY_COUNT_MAX: Final = 1_048_576
"""Dedup keys that a shard keeps in memory: of pending messages, and of some that are past. About
150 bytes of memory, and 32 of each checkpoint, for each."""
DEDUP_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of what a shard remembers that it answered producers about dedup keys: 16 bytes a message."""
MEMBER_IDLE_MS_MIN: Final = 10_000
MEMBER_IDLE_MS_MAX: Final = 7 * 86_400_000
MEMBER_IDLE_MS_DEFAULT: Final = 300_000
"""How long the member of a broadcast may be away until it is forgotten."""
RECEIPT_COUNT_MAX: Final = 16_384
RECEIVE_MESSAGE_COUNT_MAX: Final = 16_384
RECEIVE_BYTES_MAX: Final = 8 * 1024 * 1024
RECEIVE_WAIT_MS_MAX: Final = 60_000
INVISIBLE_MS_MIN: Final = 100
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
NACK_DELAY_MS_MAX: Final = 30 * 86_400_000
NACK_REASON_BYTES_MAX: Final = 1_024
"""Of why a consumer rejects a message."""
RETRY_DELAY_COUNT_MAX: Final = 32
"""Steps of a group's retry delays."""
DISPATCH_TOLERANCE_MS_MAX: Final = 600_000
"""Longest time over which a topic's hot moment is spread."""
RETENTION_MS_MIN: Final = 60_000
RETENTION_MS_MAX: Final = 3_650 * 86_400_000
"""A topic's own retention: as what `log.retention_ms` may be."""
GROUP_IN_FLIGHT_MAX: Final = 1_000_000
"""Highest limit of what a group's consumers may hold."""
GROUP_PER_SECOND_MAX: Final = 1_000_000
"""Highest limit of what they get in a second."""
PENDING_PAGE_SIZE_MAX: Final = 1_000
"""Messages of one page of a pending listing."""
WHEEL_BOUND_COUNT_MAX: Final = 4_096
"""Bounds of ranges of due times that one call counts messages for."""
LIST_PAGE_SIZE_MAX: Final = 1_000
"""Topics or groups of one page of a list."""
LIST_BYTES_MAX: Final = 2 * 1024 * 1024
"""A list that is asked for without pages is refused when it is longer."""
DAMAGED_PAGE_SIZE_MAX: Final = 1_000
"""Messages of one page of a listing of damaged ones, and those that one call discards."""
DEAD_LETTER_PAGE_SIZE_MAX: Final = 1_000
"""Messages of one page of a listing of dead letters, and ids that one call names."""
PRODUCER_BATCHES_REMEMBERED: Final = 5
"""How many of a producer's latest batches are known again when they are sent twice."""
PRODUCER_IDLE_MS_MIN: Final = 600_000
"""A node remembers a silent producer for so long, however it is configured."""
DELIVERY_TIMEOUT_MS_MAX: Final = 300_000
"""A client tries a batch for so long at most: well below `PRODUCER_IDLE_MS_MIN`, so that what may
have been taken is known again whenever it is sent again."""
GRPC_MESSAGE_BYTES_MAX: Final = BATCH_BYTES_MAX + RECEIVE_BYTES_MAX + 65_536
"""Cap of one gRPC message in either direction; nothing larger is read from a socket."""
DESCRIPTION_BYTES_MAX: Final = 256
"""Of a topic or group."""
FILTER_BYTES_MAX: Final = 4_096
"""A filter's text, as it is written and in canonical form."""
FILTER_DEPTH_MAX: Final = 32
"""Parentheses and negations around a condition."""
FILTER_TERM_COUNT_MAX: Final = 512
"""Tags, properties, negations and BETWEENs in a filter."""
FILTER_LIST_COUNT_MAX: Final = 256
"""Values of one IN."""
FILTER_NUMBER_CHARS_MAX: Final = 64
"""A longer property or constant is no number."""
GENE_PROPERTY_COUNT_MAX: Final = 8
GENE_BITS_PER_ITEM_MAX: Final = 8
