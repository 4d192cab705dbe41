from hourwheel.v1 import filter_pb2 as _filter_pb2
from hourwheel.v1 import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IfPending(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IF_PENDING_UNSPECIFIED: _ClassVar[IfPending]
    IF_PENDING_REJECT: _ClassVar[IfPending]
    IF_PENDING_KEEP: _ClassVar[IfPending]
    IF_PENDING_REPLACE: _ClassVar[IfPending]

class DedupOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEDUP_OUTCOME_UNSPECIFIED: _ClassVar[DedupOutcome]
    DEDUP_OUTCOME_REJECTED: _ClassVar[DedupOutcome]
    DEDUP_OUTCOME_KEPT: _ClassVar[DedupOutcome]
    DEDUP_OUTCOME_REPLACED: _ClassVar[DedupOutcome]

class CancelOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_OUTCOME_UNSPECIFIED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_CANCELLED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_ALREADY_RELEASED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_UNKNOWN: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_EXPIRED: _ClassVar[CancelOutcome]

class RescheduleOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESCHEDULE_OUTCOME_UNSPECIFIED: _ClassVar[RescheduleOutcome]
    RESCHEDULE_OUTCOME_RESCHEDULED: _ClassVar[RescheduleOutcome]
    RESCHEDULE_OUTCOME_ALREADY_RELEASED: _ClassVar[RescheduleOutcome]
    RESCHEDULE_OUTCOME_UNKNOWN: _ClassVar[RescheduleOutcome]
    RESCHEDULE_OUTCOME_EXPIRED: _ClassVar[RescheduleOutcome]
    RESCHEDULE_OUTCOME_CANCELLED: _ClassVar[RescheduleOutcome]
IF_PENDING_UNSPECIFIED: IfPending
IF_PENDING_REJECT: IfPending
IF_PENDING_KEEP: IfPending
IF_PENDING_REPLACE: IfPending
DEDUP_OUTCOME_UNSPECIFIED: DedupOutcome
DEDUP_OUTCOME_REJECTED: DedupOutcome
DEDUP_OUTCOME_KEPT: DedupOutcome
DEDUP_OUTCOME_REPLACED: DedupOutcome
CANCEL_OUTCOME_UNSPECIFIED: CancelOutcome
CANCEL_OUTCOME_CANCELLED: CancelOutcome
CANCEL_OUTCOME_ALREADY_RELEASED: CancelOutcome
CANCEL_OUTCOME_UNKNOWN: CancelOutcome
CANCEL_OUTCOME_EXPIRED: CancelOutcome
RESCHEDULE_OUTCOME_UNSPECIFIED: RescheduleOutcome
RESCHEDULE_OUTCOME_RESCHEDULED: RescheduleOutcome
RESCHEDULE_OUTCOME_ALREADY_RELEASED: RescheduleOutcome
RESCHEDULE_OUTCOME_UNKNOWN: RescheduleOutcome
RESCHEDULE_OUTCOME_EXPIRED: RescheduleOutcome
RESCHEDULE_OUTCOME_CANCELLED: RescheduleOutcome

class OutgoingMessage(_message.Message):
    __slots__ = ("body", "due_ms", "delay_ms", "meta", "dedup_key", "if_pending")
    BODY_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    IF_PENDING_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    due_ms: int
    delay_ms: int
    meta: _meta_pb2.MessageMeta
    dedup_key: str
    if_pending: IfPending
    def __init__(self, body: _Optional[bytes] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ..., dedup_key: _Optional[str] = ..., if_pending: _Optional[_Union[IfPending, str]] = ...) -> None: ...

class ProducerPosition(_message.Message):
    __slots__ = ("producer_id", "first_sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_sequence: int
    def __init__(self, producer_id: _Optional[int] = ..., first_sequence: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "messages", "producer")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[OutgoingMessage]
    producer: ProducerPosition
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[OutgoingMessage, _Mapping]]] = ..., producer: _Optional[_Union[ProducerPosition, _Mapping]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("messages", "knows_dedup_keys")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    KNOWS_DEDUP_KEYS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PublishedMessage]
    knows_dedup_keys: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[PublishedMessage, _Mapping]]] = ..., knows_dedup_keys: bool = ...) -> None: ...

class PublishedMessage(_message.Message):
    __slots__ = ("message_id", "due_ms", "dedup_outcome", "pending_message_id")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PENDING_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    due_ms: int
    dedup_outcome: DedupOutcome
    pending_message_id: str
    def __init__(self, message_id: _Optional[str] = ..., due_ms: _Optional[int] = ..., dedup_outcome: _Optional[_Union[DedupOutcome, str]] = ..., pending_message_id: _Optional[str] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("topic", "record_batch", "topics", "counts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORD_BATCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    record_batch: bytes
    topics: _containers.RepeatedScalarFieldContainer[str]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., record_batch: _Optional[bytes] = ..., topics: _Optional[_Iterable[str]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class PublishStreamResponse(_message.Message):
    __slots__ = ("published", "error")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    published: PublishedBatch
    error: ErrorDetail
    def __init__(self, published: _Optional[_Union[PublishedBatch, _Mapping]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class PublishedBatch(_message.Message):
    __slots__ = ("shard", "epoch", "base_sequence", "count", "store_ms", "duplicate", "expected_gene", "topic_count_max", "dedup_ordinals", "dedup_outcomes", "dedup_message_ids")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_GENE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    DEDUP_ORDINALS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    DEDUP_MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    base_sequence: int
    count: int
    store_ms: int
    duplicate: bool
    expected_gene: _filter_pb2.GeneSpec
    topic_count_max: int
    dedup_ordinals: _containers.RepeatedScalarFieldContainer[int]
    dedup_outcomes: _containers.RepeatedScalarFieldContainer[DedupOutcome]
    dedup_message_ids: bytes
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ..., count: _Optional[int] = ..., store_ms: _Optional[int] = ..., duplicate: bool = ..., expected_gene: _Optional[_Union[_filter_pb2.GeneSpec, _Mapping]] = ..., topic_count_max: _Optional[int] = ..., dedup_ordinals: _Optional[_Iterable[int]] = ..., dedup_outcomes: _Optional[_Iterable[_Union[DedupOutcome, str]]] = ..., dedup_message_ids: _Optional[bytes] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "reason", "message", "params")
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    params: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., params: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("message_ids", "packed_message_ids", "topic", "keys")
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    PACKED_MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    packed_message_ids: bytes
    topic: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ..., packed_message_ids: _Optional[bytes] = ..., topic: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("outcomes", "cancelled_counts")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[CancelOutcome]
    cancelled_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[CancelOutcome, str]]] = ..., cancelled_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("message_ids", "packed_message_ids", "topic", "keys", "due_ms", "delay_ms")
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    PACKED_MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    packed_message_ids: bytes
    topic: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ..., packed_message_ids: _Optional[bytes] = ..., topic: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., due_ms: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("outcomes", "due_ms", "rescheduled_counts")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[RescheduleOutcome]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    rescheduled_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[RescheduleOutcome, str]]] = ..., due_ms: _Optional[_Iterable[int]] = ..., rescheduled_counts: _Optional[_Iterable[int]] = ...) -> None: ...
