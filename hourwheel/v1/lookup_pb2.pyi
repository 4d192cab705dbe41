from hourwheel.v1 import admin_pb2 as _admin_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_PUBLISHED: _ClassVar[EventKind]
    EVENT_KIND_CANCELLED: _ClassVar[EventKind]
    EVENT_KIND_RELEASED: _ClassVar[EventKind]
    EVENT_KIND_ACKED: _ClassVar[EventKind]
    EVENT_KIND_RETRIED: _ClassVar[EventKind]
    EVENT_KIND_DEAD: _ClassVar[EventKind]
    EVENT_KIND_FILTERED: _ClassVar[EventKind]
    EVENT_KIND_REDRIVEN: _ClassVar[EventKind]
    EVENT_KIND_SKIPPED: _ClassVar[EventKind]
    EVENT_KIND_RESCHEDULED: _ClassVar[EventKind]
    EVENT_KIND_REPLACED: _ClassVar[EventKind]
    EVENT_KIND_HELD: _ClassVar[EventKind]
    EVENT_KIND_FREED: _ClassVar[EventKind]
    EVENT_KIND_EXPIRED: _ClassVar[EventKind]
    EVENT_KIND_RESET: _ClassVar[EventKind]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_PUBLISHED: EventKind
EVENT_KIND_CANCELLED: EventKind
EVENT_KIND_RELEASED: EventKind
EVENT_KIND_ACKED: EventKind
EVENT_KIND_RETRIED: EventKind
EVENT_KIND_DEAD: EventKind
EVENT_KIND_FILTERED: EventKind
EVENT_KIND_REDRIVEN: EventKind
EVENT_KIND_SKIPPED: EventKind
EVENT_KIND_RESCHEDULED: EventKind
EVENT_KIND_REPLACED: EventKind
EVENT_KIND_HELD: EventKind
EVENT_KIND_FREED: EventKind
EVENT_KIND_EXPIRED: EventKind
EVENT_KIND_RESET: EventKind

class ListByKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "pending_only", "count_only", "page_size", "page_token", "from_due_ms", "to_due_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PENDING_ONLY_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FROM_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    pending_only: bool
    count_only: bool
    page_size: int
    page_token: bytes
    from_due_ms: int
    to_due_ms: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., pending_only: bool = ..., count_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., from_due_ms: _Optional[int] = ..., to_due_ms: _Optional[int] = ...) -> None: ...

class KeyMessage(_message.Message):
    __slots__ = ("message_id", "state", "due_ms")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    state: _admin_pb2.MessageState
    due_ms: int
    def __init__(self, message_id: _Optional[str] = ..., state: _Optional[_Union[_admin_pb2.MessageState, str]] = ..., due_ms: _Optional[int] = ...) -> None: ...

class ListByKeyResponse(_message.Message):
    __slots__ = ("messages", "matched_count", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MATCHED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[KeyMessage]
    matched_count: int
    next_page_token: bytes
    def __init__(self, messages: _Optional[_Iterable[_Union[KeyMessage, _Mapping]]] = ..., matched_count: _Optional[int] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("message_id", "topic", "page_token")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    page_token: bytes
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class MessageEvent(_message.Message):
    __slots__ = ("kind", "at_ms", "group", "attempt", "due_ms", "topic", "producer_id", "priority")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    kind: EventKind
    at_ms: int
    group: str
    attempt: int
    due_ms: int
    topic: str
    producer_id: int
    priority: int
    def __init__(self, kind: _Optional[_Union[EventKind, str]] = ..., at_ms: _Optional[int] = ..., group: _Optional[str] = ..., attempt: _Optional[int] = ..., due_ms: _Optional[int] = ..., topic: _Optional[str] = ..., producer_id: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("events", "is_complete", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[MessageEvent]
    is_complete: bool
    next_page_token: bytes
    def __init__(self, events: _Optional[_Iterable[_Union[MessageEvent, _Mapping]]] = ..., is_complete: bool = ..., next_page_token: _Optional[bytes] = ...) -> None: ...
