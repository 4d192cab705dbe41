from hourwheel.v1 import broker_pb2 as _broker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_STATE_OPEN: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ROLLED_BACK: _ClassVar[TransactionState]
    TRANSACTION_STATE_EXPIRED: _ClassVar[TransactionState]
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_STATE_OPEN: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ROLLED_BACK: TransactionState
TRANSACTION_STATE_EXPIRED: TransactionState

class PreparedMessages(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[_broker_pb2.OutgoingMessage]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_broker_pb2.OutgoingMessage, _Mapping]]] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("producer_group", "parts", "token", "delays_from_prepare", "check_interval_ms", "checks_max", "age_ms_max")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DELAYS_FROM_PREPARE_FIELD_NUMBER: _ClassVar[int]
    CHECK_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    parts: _containers.RepeatedCompositeFieldContainer[PreparedMessages]
    token: bytes
    delays_from_prepare: bool
    check_interval_ms: int
    checks_max: int
    age_ms_max: int
    def __init__(self, producer_group: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[PreparedMessages, _Mapping]]] = ..., token: _Optional[bytes] = ..., delays_from_prepare: bool = ..., check_interval_ms: _Optional[int] = ..., checks_max: _Optional[int] = ..., age_ms_max: _Optional[int] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ("transaction_id", "duplicate")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    duplicate: bool
    def __init__(self, transaction_id: _Optional[str] = ..., duplicate: bool = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("transaction_id", "topics", "commit")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    commit: bool
    def __init__(self, transaction_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., commit: bool = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("state", "messages", "duplicate")
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    state: TransactionState
    messages: _containers.RepeatedCompositeFieldContainer[_broker_pb2.PublishedMessage]
    duplicate: bool
    def __init__(self, state: _Optional[_Union[TransactionState, str]] = ..., messages: _Optional[_Iterable[_Union[_broker_pb2.PublishedMessage, _Mapping]]] = ..., duplicate: bool = ...) -> None: ...

class PollChecksRequest(_message.Message):
    __slots__ = ("producer_group", "topics", "wait_ms", "max_checks")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHECKS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    wait_ms: int
    max_checks: int
    def __init__(self, producer_group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., wait_ms: _Optional[int] = ..., max_checks: _Optional[int] = ...) -> None: ...

class TransactionCheck(_message.Message):
    __slots__ = ("transaction_id", "parts", "prepared_ms", "number", "checks_max")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    parts: _containers.RepeatedCompositeFieldContainer[PreparedMessages]
    prepared_ms: int
    number: int
    checks_max: int
    def __init__(self, transaction_id: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[PreparedMessages, _Mapping]]] = ..., prepared_ms: _Optional[int] = ..., number: _Optional[int] = ..., checks_max: _Optional[int] = ...) -> None: ...

class PollChecksResponse(_message.Message):
    __slots__ = ("checks",)
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[TransactionCheck]
    def __init__(self, checks: _Optional[_Iterable[_Union[TransactionCheck, _Mapping]]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("producer_group", "open_only", "page_size", "page_token")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    open_only: bool
    page_size: int
    page_token: bytes
    def __init__(self, producer_group: _Optional[str] = ..., open_only: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class TransactionInfo(_message.Message):
    __slots__ = ("transaction_id", "state", "producer_group", "topics", "message_count", "prepared_ms", "checks", "checks_max", "checked_ms", "check_interval_ms", "age_ms_max", "decided_ms", "size_bytes")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_MAX_FIELD_NUMBER: _ClassVar[int]
    CHECKED_MS_FIELD_NUMBER: _ClassVar[int]
    CHECK_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    state: TransactionState
    producer_group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    message_count: int
    prepared_ms: int
    checks: int
    checks_max: int
    checked_ms: int
    check_interval_ms: int
    age_ms_max: int
    decided_ms: int
    size_bytes: int
    def __init__(self, transaction_id: _Optional[str] = ..., state: _Optional[_Union[TransactionState, str]] = ..., producer_group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., message_count: _Optional[int] = ..., prepared_ms: _Optional[int] = ..., checks: _Optional[int] = ..., checks_max: _Optional[int] = ..., checked_ms: _Optional[int] = ..., check_interval_ms: _Optional[int] = ..., age_ms_max: _Optional[int] = ..., decided_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token", "open_count")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionInfo]
    next_page_token: bytes
    open_count: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionInfo, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., open_count: _Optional[int] = ...) -> None: ...

class GetTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class GetTransactionResponse(_message.Message):
    __slots__ = ("transaction", "messages")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionInfo
    messages: _containers.RepeatedCompositeFieldContainer[_broker_pb2.PublishedMessage]
    def __init__(self, transaction: _Optional[_Union[TransactionInfo, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_broker_pb2.PublishedMessage, _Mapping]]] = ...) -> None: ...
