from hourwheel.v1 import filter_pb2 as _filter_pb2
from hourwheel.v1 import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetryPreset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRY_PRESET_UNSPECIFIED: _ClassVar[RetryPreset]
    RETRY_PRESET_ROCKETMQ: _ClassVar[RetryPreset]

class StartAt(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_AT_UNSPECIFIED: _ClassVar[StartAt]
    START_AT_FIRST: _ClassVar[StartAt]
    START_AT_NOW: _ClassVar[StartAt]
    START_AT_TIME: _ClassVar[StartAt]

class GroupOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_ORDER_UNSPECIFIED: _ClassVar[GroupOrder]
    GROUP_ORDER_NONE: _ClassVar[GroupOrder]
    GROUP_ORDER_BLOCK: _ClassVar[GroupOrder]
    GROUP_ORDER_DEAD_LETTER: _ClassVar[GroupOrder]

class UnblockAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNBLOCK_ACTION_UNSPECIFIED: _ClassVar[UnblockAction]
    UNBLOCK_ACTION_RETRY: _ClassVar[UnblockAction]
    UNBLOCK_ACTION_DEAD_LETTER: _ClassVar[UnblockAction]

class DeadLetterReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEAD_LETTER_REASON_UNSPECIFIED: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_ATTEMPTS_USED_UP: _ClassVar[DeadLetterReason]
    DEAD_LETTER_REASON_EXPIRED: _ClassVar[DeadLetterReason]
RETRY_PRESET_UNSPECIFIED: RetryPreset
RETRY_PRESET_ROCKETMQ: RetryPreset
START_AT_UNSPECIFIED: StartAt
START_AT_FIRST: StartAt
START_AT_NOW: StartAt
START_AT_TIME: StartAt
GROUP_ORDER_UNSPECIFIED: GroupOrder
GROUP_ORDER_NONE: GroupOrder
GROUP_ORDER_BLOCK: GroupOrder
GROUP_ORDER_DEAD_LETTER: GroupOrder
UNBLOCK_ACTION_UNSPECIFIED: UnblockAction
UNBLOCK_ACTION_RETRY: UnblockAction
UNBLOCK_ACTION_DEAD_LETTER: UnblockAction
DEAD_LETTER_REASON_UNSPECIFIED: DeadLetterReason
DEAD_LETTER_REASON_ATTEMPTS_USED_UP: DeadLetterReason
DEAD_LETTER_REASON_EXPIRED: DeadLetterReason

class RetryDelays(_message.Message):
    __slots__ = ("delays_ms", "preset")
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    preset: RetryPreset
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ..., preset: _Optional[_Union[RetryPreset, str]] = ...) -> None: ...

class GroupLag(_message.Message):
    __slots__ = ("topic", "unresolved_count", "leased_count", "damaged_count", "oldest_age_ms", "blocked_count", "blocked_message_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unresolved_count: int
    leased_count: int
    damaged_count: int
    oldest_age_ms: int
    blocked_count: int
    blocked_message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., unresolved_count: _Optional[int] = ..., leased_count: _Optional[int] = ..., damaged_count: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., blocked_count: _Optional[int] = ..., blocked_message_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SkipRequest(_message.Message):
    __slots__ = ("group", "topic", "before_ms", "positions", "message_ids", "action")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    before_ms: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    action: UnblockAction
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., before_ms: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., message_ids: _Optional[_Iterable[str]] = ..., action: _Optional[_Union[UnblockAction, str]] = ...) -> None: ...

class SkipResponse(_message.Message):
    __slots__ = ("skipped_count", "positions")
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    skipped_count: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, skipped_count: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("group", "topic", "to", "to_ms", "positions", "count_only")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    to: StartAt
    to_ms: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    count_only: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., to: _Optional[_Union[StartAt, str]] = ..., to_ms: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., count_only: bool = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ("again_count", "skipped_count", "retries_dropped_count", "unresolved_count", "positions")
    AGAIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETRIES_DROPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    again_count: int
    skipped_count: int
    retries_dropped_count: int
    unresolved_count: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, again_count: _Optional[int] = ..., skipped_count: _Optional[int] = ..., retries_dropped_count: _Optional[int] = ..., unresolved_count: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("group", "topic", "filter", "message_ids", "page_size", "page_token", "with_bodies")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITH_BODIES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    filter: _filter_pb2.FilterExpression
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: bytes
    with_bodies: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., message_ids: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., with_bodies: bool = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "scanned_count")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DeadLetterMessage]
    next_page_token: bytes
    scanned_count: int
    def __init__(self, messages: _Optional[_Iterable[_Union[DeadLetterMessage, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., scanned_count: _Optional[int] = ...) -> None: ...

class DeadLetterMessage(_message.Message):
    __slots__ = ("message_id", "topic", "due_ms", "last_due_ms", "attempts", "reason", "meta", "body_bytes", "body", "is_corrupt", "rejected_because")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IS_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    due_ms: int
    last_due_ms: int
    attempts: int
    reason: DeadLetterReason
    meta: _meta_pb2.MessageMeta
    body_bytes: int
    body: bytes
    is_corrupt: bool
    rejected_because: str
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., due_ms: _Optional[int] = ..., last_due_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., reason: _Optional[_Union[DeadLetterReason, str]] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ..., body_bytes: _Optional[int] = ..., body: _Optional[bytes] = ..., is_corrupt: bool = ..., rejected_because: _Optional[str] = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("group", "topic", "filter", "message_ids", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    filter: _filter_pb2.FilterExpression
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    page_token: bytes
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., message_ids: _Optional[_Iterable[str]] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    __slots__ = ("redriven_count", "unsubscribed_count", "corrupt_count", "scanned_count", "next_page_token")
    REDRIVEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    redriven_count: int
    unsubscribed_count: int
    corrupt_count: int
    scanned_count: int
    next_page_token: bytes
    def __init__(self, redriven_count: _Optional[int] = ..., unsubscribed_count: _Optional[int] = ..., corrupt_count: _Optional[int] = ..., scanned_count: _Optional[int] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...
