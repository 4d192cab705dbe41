from hourwheel.v1 import broker_pb2 as _broker_pb2
from hourwheel.v1 import consumer_pb2 as _consumer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionRequest(_message.Message):
    __slots__ = ("calls", "given_up", "credits")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[SessionCall]
    given_up: _containers.RepeatedScalarFieldContainer[int]
    credits: _containers.RepeatedCompositeFieldContainer[ReceiveCredits]
    def __init__(self, calls: _Optional[_Iterable[_Union[SessionCall, _Mapping]]] = ..., given_up: _Optional[_Iterable[int]] = ..., credits: _Optional[_Iterable[_Union[ReceiveCredits, _Mapping]]] = ...) -> None: ...

class SessionCall(_message.Message):
    __slots__ = ("call_id", "timeout_ms", "receive", "ack", "nack", "change_invisible", "cancel", "publish", "reschedule", "receive_stream")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    CHANGE_INVISIBLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_STREAM_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    timeout_ms: int
    receive: _consumer_pb2.ReceiveRequest
    ack: _consumer_pb2.AckRequest
    nack: _consumer_pb2.NackRequest
    change_invisible: _consumer_pb2.ChangeInvisibleRequest
    cancel: _broker_pb2.CancelRequest
    publish: _broker_pb2.PublishStreamRequest
    reschedule: _broker_pb2.RescheduleRequest
    receive_stream: ReceiveStreamRequest
    def __init__(self, call_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., receive: _Optional[_Union[_consumer_pb2.ReceiveRequest, _Mapping]] = ..., ack: _Optional[_Union[_consumer_pb2.AckRequest, _Mapping]] = ..., nack: _Optional[_Union[_consumer_pb2.NackRequest, _Mapping]] = ..., change_invisible: _Optional[_Union[_consumer_pb2.ChangeInvisibleRequest, _Mapping]] = ..., cancel: _Optional[_Union[_broker_pb2.CancelRequest, _Mapping]] = ..., publish: _Optional[_Union[_broker_pb2.PublishStreamRequest, _Mapping]] = ..., reschedule: _Optional[_Union[_broker_pb2.RescheduleRequest, _Mapping]] = ..., receive_stream: _Optional[_Union[ReceiveStreamRequest, _Mapping]] = ...) -> None: ...

class ReceiveStreamRequest(_message.Message):
    __slots__ = ("receive", "stream_id", "received_count", "credits")
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    receive: _consumer_pb2.ReceiveRequest
    stream_id: int
    received_count: int
    credits: int
    def __init__(self, receive: _Optional[_Union[_consumer_pb2.ReceiveRequest, _Mapping]] = ..., stream_id: _Optional[int] = ..., received_count: _Optional[int] = ..., credits: _Optional[int] = ...) -> None: ...

class ReceiveCredits(_message.Message):
    __slots__ = ("call_id", "received_count", "credits")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    received_count: int
    credits: int
    def __init__(self, call_id: _Optional[int] = ..., received_count: _Optional[int] = ..., credits: _Optional[int] = ...) -> None: ...

class ReceiveStreamEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("answers", "offers_receive_streams")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OFFERS_RECEIVE_STREAMS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[SessionAnswer]
    offers_receive_streams: bool
    def __init__(self, answers: _Optional[_Iterable[_Union[SessionAnswer, _Mapping]]] = ..., offers_receive_streams: bool = ...) -> None: ...

class SessionAnswer(_message.Message):
    __slots__ = ("call_id", "error", "receive", "ack", "nack", "change_invisible", "cancel", "publish", "reschedule", "receive_stream")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    CHANGE_INVISIBLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_STREAM_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    error: _broker_pb2.ErrorDetail
    receive: _consumer_pb2.ReceiveResponse
    ack: _consumer_pb2.AckResponse
    nack: _consumer_pb2.NackResponse
    change_invisible: _consumer_pb2.ChangeInvisibleResponse
    cancel: _broker_pb2.CancelResponse
    publish: _broker_pb2.PublishStreamResponse
    reschedule: _broker_pb2.RescheduleResponse
    receive_stream: ReceiveStreamEnd
    def __init__(self, call_id: _Optional[int] = ..., error: _Optional[_Union[_broker_pb2.ErrorDetail, _Mapping]] = ..., receive: _Optional[_Union[_consumer_pb2.ReceiveResponse, _Mapping]] = ..., ack: _Optional[_Union[_consumer_pb2.AckResponse, _Mapping]] = ..., nack: _Optional[_Union[_consumer_pb2.NackResponse, _Mapping]] = ..., change_invisible: _Optional[_Union[_consumer_pb2.ChangeInvisibleResponse, _Mapping]] = ..., cancel: _Optional[_Union[_broker_pb2.CancelResponse, _Mapping]] = ..., publish: _Optional[_Union[_broker_pb2.PublishStreamResponse, _Mapping]] = ..., reschedule: _Optional[_Union[_broker_pb2.RescheduleResponse, _Mapping]] = ..., receive_stream: _Optional[_Union[ReceiveStreamEnd, _Mapping]] = ...) -> None: ...
