from hourwheel.v1 import filter_pb2 as _filter_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CancelPendingRequest(_message.Message):
    __slots__ = ("topic", "filter", "from_due_ms", "to_due_ms", "page_token", "key_prefix")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: _filter_pb2.FilterExpression
    from_due_ms: int
    to_due_ms: int
    page_token: bytes
    key_prefix: str
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., from_due_ms: _Optional[int] = ..., to_due_ms: _Optional[int] = ..., page_token: _Optional[bytes] = ..., key_prefix: _Optional[str] = ...) -> None: ...

class CancelPendingResponse(_message.Message):
    __slots__ = ("cancelled_count", "already_released_count", "scanned_count", "next_page_token", "corrupt_count")
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    cancelled_count: int
    already_released_count: int
    scanned_count: int
    next_page_token: bytes
    corrupt_count: int
    def __init__(self, cancelled_count: _Optional[int] = ..., already_released_count: _Optional[int] = ..., scanned_count: _Optional[int] = ..., next_page_token: _Optional[bytes] = ..., corrupt_count: _Optional[int] = ...) -> None: ...

class ReschedulePendingRequest(_message.Message):
    __slots__ = ("topic", "filter", "from_due_ms", "to_due_ms", "page_token", "key_prefix", "new_due_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    NEW_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: _filter_pb2.FilterExpression
    from_due_ms: int
    to_due_ms: int
    page_token: bytes
    key_prefix: str
    new_due_ms: int
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., from_due_ms: _Optional[int] = ..., to_due_ms: _Optional[int] = ..., page_token: _Optional[bytes] = ..., key_prefix: _Optional[str] = ..., new_due_ms: _Optional[int] = ...) -> None: ...

class ReschedulePendingResponse(_message.Message):
    __slots__ = ("rescheduled_count", "missed_count", "scanned_count", "next_page_token", "corrupt_count")
    RESCHEDULED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MISSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    rescheduled_count: int
    missed_count: int
    scanned_count: int
    next_page_token: bytes
    corrupt_count: int
    def __init__(self, rescheduled_count: _Optional[int] = ..., missed_count: _Optional[int] = ..., scanned_count: _Optional[int] = ..., next_page_token: _Optional[bytes] = ..., corrupt_count: _Optional[int] = ...) -> None: ...
