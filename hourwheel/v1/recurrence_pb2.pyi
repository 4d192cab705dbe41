from hourwheel.v1 import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MissedPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSED_POLICY_UNSPECIFIED: _ClassVar[MissedPolicy]
    MISSED_POLICY_ALL: _ClassVar[MissedPolicy]
    MISSED_POLICY_LAST: _ClassVar[MissedPolicy]
    MISSED_POLICY_NONE: _ClassVar[MissedPolicy]
MISSED_POLICY_UNSPECIFIED: MissedPolicy
MISSED_POLICY_ALL: MissedPolicy
MISSED_POLICY_LAST: MissedPolicy
MISSED_POLICY_NONE: MissedPolicy

class RecurrenceTimes(_message.Message):
    __slots__ = ("cron", "time_zone", "every_ms", "start_ms", "end_ms", "count_max", "excluded_dates")
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_DATES_FIELD_NUMBER: _ClassVar[int]
    cron: str
    time_zone: str
    every_ms: int
    start_ms: int
    end_ms: int
    count_max: int
    excluded_dates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cron: _Optional[str] = ..., time_zone: _Optional[str] = ..., every_ms: _Optional[int] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., count_max: _Optional[int] = ..., excluded_dates: _Optional[_Iterable[str]] = ...) -> None: ...

class PutRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "name", "times", "missed", "meta", "body", "expected_version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    times: RecurrenceTimes
    missed: MissedPolicy
    meta: _meta_pb2.MessageMeta
    body: bytes
    expected_version: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., times: _Optional[_Union[RecurrenceTimes, _Mapping]] = ..., missed: _Optional[_Union[MissedPolicy, str]] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ..., body: _Optional[bytes] = ..., expected_version: _Optional[int] = ...) -> None: ...

class PutRecurrenceResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Recurrence(_message.Message):
    __slots__ = ("topic", "name", "times", "missed", "version", "is_paused", "occurrence_count", "last_message_id", "last_due_ms", "body_bytes", "meta")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    times: RecurrenceTimes
    missed: MissedPolicy
    version: int
    is_paused: bool
    occurrence_count: int
    last_message_id: str
    last_due_ms: int
    body_bytes: int
    meta: _meta_pb2.MessageMeta
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., times: _Optional[_Union[RecurrenceTimes, _Mapping]] = ..., missed: _Optional[_Union[MissedPolicy, str]] = ..., version: _Optional[int] = ..., is_paused: bool = ..., occurrence_count: _Optional[int] = ..., last_message_id: _Optional[str] = ..., last_due_ms: _Optional[int] = ..., body_bytes: _Optional[int] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ...) -> None: ...

class GetRecurrenceResponse(_message.Message):
    __slots__ = ("recurrence",)
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    recurrence: Recurrence
    def __init__(self, recurrence: _Optional[_Union[Recurrence, _Mapping]] = ...) -> None: ...

class ListRecurrencesRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRecurrencesResponse(_message.Message):
    __slots__ = ("recurrences", "next_page_token")
    RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    recurrences: _containers.RepeatedCompositeFieldContainer[Recurrence]
    next_page_token: str
    def __init__(self, recurrences: _Optional[_Iterable[_Union[Recurrence, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PauseRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PauseRecurrenceResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ResumeRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ResumeRecurrenceResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteRecurrenceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNextTimesRequest(_message.Message):
    __slots__ = ("topic", "name", "times", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    times: RecurrenceTimes
    count: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., times: _Optional[_Union[RecurrenceTimes, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class ListNextTimesResponse(_message.Message):
    __slots__ = ("due_ms",)
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, due_ms: _Optional[_Iterable[int]] = ...) -> None: ...
