from hourwheel.v1 import filter_pb2 as _filter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigChange(_message.Message):
    __slots__ = ("put_topic", "delete_topic_id", "put_group", "delete_group_id", "put_subscription", "reset_subscription", "adopt_control_state", "control_revision")
    PUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PUT_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RESET_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ADOPT_CONTROL_STATE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_REVISION_FIELD_NUMBER: _ClassVar[int]
    put_topic: TopicConfig
    delete_topic_id: int
    put_group: GroupConfig
    delete_group_id: int
    put_subscription: Subscription
    reset_subscription: SubscriptionReset
    adopt_control_state: bool
    control_revision: int
    def __init__(self, put_topic: _Optional[_Union[TopicConfig, _Mapping]] = ..., delete_topic_id: _Optional[int] = ..., put_group: _Optional[_Union[GroupConfig, _Mapping]] = ..., delete_group_id: _Optional[int] = ..., put_subscription: _Optional[_Union[Subscription, _Mapping]] = ..., reset_subscription: _Optional[_Union[SubscriptionReset, _Mapping]] = ..., adopt_control_state: bool = ..., control_revision: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("topic_id", "name", "queue_count", "internal", "gene", "automatic", "description", "is_paused", "version", "dispatch_tolerance_ms", "retention_ms")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    GENE_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_TOLERANCE_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    name: str
    queue_count: int
    internal: bool
    gene: _filter_pb2.GeneSpec
    automatic: bool
    description: str
    is_paused: bool
    version: int
    dispatch_tolerance_ms: int
    retention_ms: int
    def __init__(self, topic_id: _Optional[int] = ..., name: _Optional[str] = ..., queue_count: _Optional[int] = ..., internal: bool = ..., gene: _Optional[_Union[_filter_pb2.GeneSpec, _Mapping]] = ..., automatic: bool = ..., description: _Optional[str] = ..., is_paused: bool = ..., version: _Optional[int] = ..., dispatch_tolerance_ms: _Optional[int] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class GroupConfig(_message.Message):
    __slots__ = ("group_id", "name", "attempts_max", "invisible_ms", "retry_delay_ms", "retry_delay_ms_max", "dead_letter_topic_id", "automatic", "description", "is_paused", "version", "retry_delays_ms", "retry_jitter_percent", "start_ms", "in_flight_max", "per_second_max", "order", "keeps_expired", "idle_ms_max", "member_token", "first_new_topic_id")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_JITTER_PERCENT_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    PER_SECOND_MAX_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    KEEPS_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    MEMBER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FIRST_NEW_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    name: str
    attempts_max: int
    invisible_ms: int
    retry_delay_ms: int
    retry_delay_ms_max: int
    dead_letter_topic_id: int
    automatic: bool
    description: str
    is_paused: bool
    version: int
    retry_delays_ms: _containers.RepeatedScalarFieldContainer[int]
    retry_jitter_percent: int
    start_ms: int
    in_flight_max: int
    per_second_max: int
    order: int
    keeps_expired: bool
    idle_ms_max: int
    member_token: int
    first_new_topic_id: int
    def __init__(self, group_id: _Optional[int] = ..., name: _Optional[str] = ..., attempts_max: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., retry_delay_ms: _Optional[int] = ..., retry_delay_ms_max: _Optional[int] = ..., dead_letter_topic_id: _Optional[int] = ..., automatic: bool = ..., description: _Optional[str] = ..., is_paused: bool = ..., version: _Optional[int] = ..., retry_delays_ms: _Optional[_Iterable[int]] = ..., retry_jitter_percent: _Optional[int] = ..., start_ms: _Optional[int] = ..., in_flight_max: _Optional[int] = ..., per_second_max: _Optional[int] = ..., order: _Optional[int] = ..., keeps_expired: bool = ..., idle_ms_max: _Optional[int] = ..., member_token: _Optional[int] = ..., first_new_topic_id: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("group_id", "topic_id", "retry_topic_id", "filter", "receipts_epoch", "receipts_lease_id", "reset_offset")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    RESET_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_id: int
    retry_topic_id: int
    filter: _filter_pb2.FilterExpression
    receipts_epoch: int
    receipts_lease_id: int
    reset_offset: int
    def __init__(self, group_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., retry_topic_id: _Optional[int] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., receipts_epoch: _Optional[int] = ..., receipts_lease_id: _Optional[int] = ..., reset_offset: _Optional[int] = ...) -> None: ...

class SubscriptionReset(_message.Message):
    __slots__ = ("group_id", "topic_id", "former_retry_topic_id", "retry_topic_id", "topic_queues", "positions", "receipts_epoch", "receipts_lease_id", "reset_offset")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FORMER_RETRY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUES_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    RESET_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_id: int
    former_retry_topic_id: int
    retry_topic_id: int
    topic_queues: _containers.RepeatedScalarFieldContainer[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    receipts_epoch: int
    receipts_lease_id: int
    reset_offset: int
    def __init__(self, group_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., former_retry_topic_id: _Optional[int] = ..., retry_topic_id: _Optional[int] = ..., topic_queues: _Optional[_Iterable[int]] = ..., positions: _Optional[_Iterable[int]] = ..., receipts_epoch: _Optional[int] = ..., receipts_lease_id: _Optional[int] = ..., reset_offset: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("node_id", "boot_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    boot_id: str
    def __init__(self, node_id: _Optional[str] = ..., boot_id: _Optional[str] = ...) -> None: ...

class RecurrenceChange(_message.Message):
    __slots__ = ("expected_version", "put", "delete_name", "pause_name", "resume_name")
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESUME_NAME_FIELD_NUMBER: _ClassVar[int]
    expected_version: int
    put: RecurrenceConfig
    delete_name: str
    pause_name: str
    resume_name: str
    def __init__(self, expected_version: _Optional[int] = ..., put: _Optional[_Union[RecurrenceConfig, _Mapping]] = ..., delete_name: _Optional[str] = ..., pause_name: _Optional[str] = ..., resume_name: _Optional[str] = ...) -> None: ...

class RecurrenceConfig(_message.Message):
    __slots__ = ("name", "topic", "cron", "zone", "every_ms", "start_ms", "end_ms", "count_max", "missed", "excluded_days", "meta", "body")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_DAYS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    cron: str
    zone: str
    every_ms: int
    start_ms: int
    end_ms: int
    count_max: int
    missed: int
    excluded_days: _containers.RepeatedScalarFieldContainer[int]
    meta: bytes
    body: bytes
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., every_ms: _Optional[int] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., count_max: _Optional[int] = ..., missed: _Optional[int] = ..., excluded_days: _Optional[_Iterable[int]] = ..., meta: _Optional[bytes] = ..., body: _Optional[bytes] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("applied_offset", "next_sequence", "feature_level", "store_ms", "cursor", "topics", "groups", "subscriptions", "next_topic_id", "next_group_id", "queues", "acks", "producers", "epochs", "sequence_index_count", "tombstone_file", "tombstone_bytes", "cancelled_count", "runs", "next_run_id", "hour_level_end_day", "pending_count", "delay_logs", "discarded_count", "sequence_floor", "key_run_ids", "next_key_run_id", "are_keys_complete", "moved", "transactions", "transactions_forgotten", "recurrences", "dedup_keys", "control_revision", "next_internal_topic_id", "expiring_topics")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_INDEX_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_FILE_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    HOUR_LEVEL_END_DAY_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_LOGS_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    KEY_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ARE_KEYS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEYS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_REVISION_FIELD_NUMBER: _ClassVar[int]
    NEXT_INTERNAL_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_TOPICS_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    next_sequence: int
    feature_level: int
    store_ms: int
    cursor: CursorState
    topics: _containers.RepeatedCompositeFieldContainer[TopicConfig]
    groups: _containers.RepeatedCompositeFieldContainer[GroupConfig]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    next_topic_id: int
    next_group_id: int
    queues: _containers.RepeatedCompositeFieldContainer[QueueState]
    acks: _containers.RepeatedCompositeFieldContainer[AckState]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerState]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochState]
    sequence_index_count: int
    tombstone_file: int
    tombstone_bytes: int
    cancelled_count: int
    runs: _containers.RepeatedCompositeFieldContainer[RunState]
    next_run_id: int
    hour_level_end_day: int
    pending_count: int
    delay_logs: _containers.RepeatedCompositeFieldContainer[DelayLogState]
    discarded_count: int
    sequence_floor: int
    key_run_ids: _containers.RepeatedScalarFieldContainer[int]
    next_key_run_id: int
    are_keys_complete: bool
    moved: bytes
    transactions: bytes
    transactions_forgotten: int
    recurrences: bytes
    dedup_keys: bytes
    control_revision: int
    next_internal_topic_id: int
    expiring_topics: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, applied_offset: _Optional[int] = ..., next_sequence: _Optional[int] = ..., feature_level: _Optional[int] = ..., store_ms: _Optional[int] = ..., cursor: _Optional[_Union[CursorState, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicConfig, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupConfig, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., next_topic_id: _Optional[int] = ..., next_group_id: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[QueueState, _Mapping]]] = ..., acks: _Optional[_Iterable[_Union[AckState, _Mapping]]] = ..., producers: _Optional[_Iterable[_Union[ProducerState, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochState, _Mapping]]] = ..., sequence_index_count: _Optional[int] = ..., tombstone_file: _Optional[int] = ..., tombstone_bytes: _Optional[int] = ..., cancelled_count: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[RunState, _Mapping]]] = ..., next_run_id: _Optional[int] = ..., hour_level_end_day: _Optional[int] = ..., pending_count: _Optional[int] = ..., delay_logs: _Optional[_Iterable[_Union[DelayLogState, _Mapping]]] = ..., discarded_count: _Optional[int] = ..., sequence_floor: _Optional[int] = ..., key_run_ids: _Optional[_Iterable[int]] = ..., next_key_run_id: _Optional[int] = ..., are_keys_complete: bool = ..., moved: _Optional[bytes] = ..., transactions: _Optional[bytes] = ..., transactions_forgotten: _Optional[int] = ..., recurrences: _Optional[bytes] = ..., dedup_keys: _Optional[bytes] = ..., control_revision: _Optional[int] = ..., next_internal_topic_id: _Optional[int] = ..., expiring_topics: _Optional[_Iterable[int]] = ...) -> None: ...

class Prepared(_message.Message):
    __slots__ = ("producer_group", "check_interval_ms", "checks_max", "age_max_ms", "batch", "delays_ms")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CHECK_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_FIELD_NUMBER: _ClassVar[int]
    AGE_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    check_interval_ms: int
    checks_max: int
    age_max_ms: int
    batch: bytes
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer_group: _Optional[str] = ..., check_interval_ms: _Optional[int] = ..., checks_max: _Optional[int] = ..., age_max_ms: _Optional[int] = ..., batch: _Optional[bytes] = ..., delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class CursorState(_message.Message):
    __slots__ = ("due_ms", "sequence", "released_count", "released_mix", "local_index")
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MIX_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    due_ms: int
    sequence: int
    released_count: int
    released_mix: int
    local_index: int
    def __init__(self, due_ms: _Optional[int] = ..., sequence: _Optional[int] = ..., released_count: _Optional[int] = ..., released_mix: _Optional[int] = ..., local_index: _Optional[int] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("topic_queue", "start_position", "end_position")
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    topic_queue: int
    start_position: int
    end_position: int
    def __init__(self, topic_queue: _Optional[int] = ..., start_position: _Optional[int] = ..., end_position: _Optional[int] = ...) -> None: ...

class AckState(_message.Message):
    __slots__ = ("group_id", "topic_queue", "floor_position", "resolved_range_deltas", "held_position_deltas", "held_failure_counts", "held_until_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    FLOOR_POSITION_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_RANGE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    HELD_POSITION_DELTAS_FIELD_NUMBER: _ClassVar[int]
    HELD_FAILURE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    HELD_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_queue: int
    floor_position: int
    resolved_range_deltas: _containers.RepeatedScalarFieldContainer[int]
    held_position_deltas: _containers.RepeatedScalarFieldContainer[int]
    held_failure_counts: _containers.RepeatedScalarFieldContainer[int]
    held_until_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group_id: _Optional[int] = ..., topic_queue: _Optional[int] = ..., floor_position: _Optional[int] = ..., resolved_range_deltas: _Optional[_Iterable[int]] = ..., held_position_deltas: _Optional[_Iterable[int]] = ..., held_failure_counts: _Optional[_Iterable[int]] = ..., held_until_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ProducerState(_message.Message):
    __slots__ = ("producer_id", "last_ms", "batches")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    last_ms: int
    batches: _containers.RepeatedCompositeFieldContainer[ProducerBatch]
    def __init__(self, producer_id: _Optional[int] = ..., last_ms: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[ProducerBatch, _Mapping]]] = ...) -> None: ...

class ProducerBatch(_message.Message):
    __slots__ = ("first_sequence", "count", "base_sequence", "store_ms", "epoch", "deduped")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DEDUPED_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    count: int
    base_sequence: int
    store_ms: int
    epoch: int
    deduped: bytes
    def __init__(self, first_sequence: _Optional[int] = ..., count: _Optional[int] = ..., base_sequence: _Optional[int] = ..., store_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., deduped: _Optional[bytes] = ...) -> None: ...

class EpochState(_message.Message):
    __slots__ = ("epoch", "start_offset", "start_sequence")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    start_sequence: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., start_sequence: _Optional[int] = ...) -> None: ...

class RunState(_message.Message):
    __slots__ = ("run_id", "covers_first", "level", "unit_count", "due_ms_min", "due_ms_max", "delay_log_first", "delay_log_last", "cascaded_days")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIRST_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    UNIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    DELAY_LOG_FIRST_FIELD_NUMBER: _ClassVar[int]
    DELAY_LOG_LAST_FIELD_NUMBER: _ClassVar[int]
    CASCADED_DAYS_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    covers_first: int
    level: int
    unit_count: int
    due_ms_min: int
    due_ms_max: int
    delay_log_first: int
    delay_log_last: int
    cascaded_days: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run_id: _Optional[int] = ..., covers_first: _Optional[int] = ..., level: _Optional[int] = ..., unit_count: _Optional[int] = ..., due_ms_min: _Optional[int] = ..., due_ms_max: _Optional[int] = ..., delay_log_first: _Optional[int] = ..., delay_log_last: _Optional[int] = ..., cascaded_days: _Optional[_Iterable[int]] = ...) -> None: ...

class DelayLogState(_message.Message):
    __slots__ = ("delay_log_id", "bytes", "due_ms_max")
    DELAY_LOG_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    delay_log_id: int
    bytes: int
    due_ms_max: int
    def __init__(self, delay_log_id: _Optional[int] = ..., bytes: _Optional[int] = ..., due_ms_max: _Optional[int] = ...) -> None: ...
