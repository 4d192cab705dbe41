from hourwheel.v1 import filter_pb2 as _filter_pb2
from hourwheel.v1 import groups_pb2 as _groups_pb2
from hourwheel.v1 import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReceiveFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECEIVE_FORMAT_UNSPECIFIED: _ClassVar[ReceiveFormat]
    RECEIVE_FORMAT_MESSAGES: _ClassVar[ReceiveFormat]
    RECEIVE_FORMAT_BATCH: _ClassVar[ReceiveFormat]

class ReceiptOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECEIPT_OUTCOME_UNSPECIFIED: _ClassVar[ReceiptOutcome]
    RECEIPT_OUTCOME_OK: _ClassVar[ReceiptOutcome]
    RECEIPT_OUTCOME_STALE: _ClassVar[ReceiptOutcome]
    RECEIPT_OUTCOME_INVALID: _ClassVar[ReceiptOutcome]
RECEIVE_FORMAT_UNSPECIFIED: ReceiveFormat
RECEIVE_FORMAT_MESSAGES: ReceiveFormat
RECEIVE_FORMAT_BATCH: ReceiveFormat
RECEIPT_OUTCOME_UNSPECIFIED: ReceiptOutcome
RECEIPT_OUTCOME_OK: ReceiptOutcome
RECEIPT_OUTCOME_STALE: ReceiptOutcome
RECEIPT_OUTCOME_INVALID: ReceiptOutcome

class ReceiveRequest(_message.Message):
    __slots__ = ("group", "topic", "max_messages", "max_bytes", "wait_ms", "invisible_ms", "format", "filter", "poller_id", "poll_number", "member_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    POLLER_ID_FIELD_NUMBER: _ClassVar[int]
    POLL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    format: ReceiveFormat
    filter: _filter_pb2.FilterExpression
    poller_id: int
    poll_number: int
    member_token: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., format: _Optional[_Union[ReceiveFormat, str]] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., poller_id: _Optional[int] = ..., poll_number: _Optional[int] = ..., member_token: _Optional[int] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("messages", "delivery_batch", "receipt", "invisible_until_ms", "receive_ms", "to_check", "topic", "queued_ms")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_BATCH_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_CHECK_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    delivery_batch: bytes
    receipt: str
    invisible_until_ms: int
    receive_ms: int
    to_check: _filter_pb2.FilterExpression
    topic: str
    queued_ms: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., delivery_batch: _Optional[bytes] = ..., receipt: _Optional[str] = ..., invisible_until_ms: _Optional[int] = ..., receive_ms: _Optional[int] = ..., to_check: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., topic: _Optional[str] = ..., queued_ms: _Optional[int] = ...) -> None: ...

class ReceivedMessage(_message.Message):
    __slots__ = ("message_id", "body", "meta", "due_ms", "store_ms", "attempt", "topic", "receipt")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    body: bytes
    meta: _meta_pb2.MessageMeta
    due_ms: int
    store_ms: int
    attempt: int
    topic: str
    receipt: str
    def __init__(self, message_id: _Optional[str] = ..., body: _Optional[bytes] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ..., due_ms: _Optional[int] = ..., store_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., topic: _Optional[str] = ..., receipt: _Optional[str] = ...) -> None: ...

class ReceiptRange(_message.Message):
    __slots__ = ("receipt", "first", "count")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    receipt: str
    first: int
    count: int
    def __init__(self, receipt: _Optional[str] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("group", "receipts", "ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[ReceiptRange]
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[ReceiptRange, _Mapping]]] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[ReceiptOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ReceiptOutcome, str]]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("group", "receipts", "ranges", "delay_ms", "dead_letter", "reason", "not_begun")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOT_BEGUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[ReceiptRange]
    delay_ms: int
    dead_letter: bool
    reason: str
    not_begun: bool
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[ReceiptRange, _Mapping]]] = ..., delay_ms: _Optional[int] = ..., dead_letter: bool = ..., reason: _Optional[str] = ..., not_begun: bool = ...) -> None: ...

class NackResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[ReceiptOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ReceiptOutcome, str]]] = ...) -> None: ...

class ChangeInvisibleRequest(_message.Message):
    __slots__ = ("group", "receipts", "ranges", "invisible_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[ReceiptRange]
    invisible_ms: int
    def __init__(self, group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[ReceiptRange, _Mapping]]] = ..., invisible_ms: _Optional[int] = ...) -> None: ...

class ChangeInvisibleResponse(_message.Message):
    __slots__ = ("outcomes", "invisible_until_ms")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[ReceiptOutcome]
    invisible_until_ms: int
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ReceiptOutcome, str]]] = ..., invisible_until_ms: _Optional[int] = ...) -> None: ...

class JoinBroadcastRequest(_message.Message):
    __slots__ = ("group", "topic", "member", "token", "start", "start_ms", "idle_ms", "filter")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    member: str
    token: int
    start: _groups_pb2.StartAt
    start_ms: int
    idle_ms: int
    filter: _filter_pb2.FilterExpression
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., member: _Optional[str] = ..., token: _Optional[int] = ..., start: _Optional[_Union[_groups_pb2.StartAt, str]] = ..., start_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ...) -> None: ...

class JoinBroadcastResponse(_message.Message):
    __slots__ = ("group", "member", "is_new", "idle_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    is_new: bool
    idle_ms: int
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., is_new: bool = ..., idle_ms: _Optional[int] = ...) -> None: ...

class LeaveBroadcastRequest(_message.Message):
    __slots__ = ("group", "token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    token: int
    def __init__(self, group: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class LeaveBroadcastResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
