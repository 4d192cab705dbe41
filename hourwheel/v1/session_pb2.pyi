from hourwheel.v1 import broker_pb2 as _broker_pb2
from hourwheel.v1 import consumer_pb2 as _consumer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionRequest(_message.Message):
    __slots__ = ("calls", "given_up")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[SessionCall]
    given_up: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, calls: _Optional[_Iterable[_Union[SessionCall, _Mapping]]] = ..., given_up: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionCall(_message.Message):
    __slots__ = ("call_id", "timeout_ms", "receive", "ack", "nack", "change_invisible", "cancel", "publish", "reschedule")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    CHANGE_INVISIBLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    timeout_ms: int
    receive: _consumer_pb2.ReceiveRequest
    ack: _consumer_pb2.AckRequest
    nack: _consumer_pb2.NackRequest
    change_invisible: _consumer_pb2.ChangeInvisibleRequest
    cancel: _broker_pb2.CancelRequest
    publish: _broker_pb2.PublishStreamRequest
    reschedule: _broker_pb2.RescheduleRequest
    def __init__(self, call_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., receive: _Optional[_Union[_consumer_pb2.ReceiveRequest, _Mapping]] = ..., ack: _Optional[_Union[_consumer_pb2.AckRequest, _Mapping]] = ..., nack: _Optional[_Union[_consumer_pb2.NackRequest, _Mapping]] = ..., change_invisible: _Optional[_Union[_consumer_pb2.ChangeInvisibleRequest, _Mapping]] = ..., cancel: _Optional[_Union[_broker_pb2.CancelRequest, _Mapping]] = ..., publish: _Optional[_Union[_broker_pb2.PublishStreamRequest, _Mapping]] = ..., reschedule: _Optional[_Union[_broker_pb2.RescheduleRequest, _Mapping]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[SessionAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[SessionAnswer, _Mapping]]] = ...) -> None: ...

class SessionAnswer(_message.Message):
    __slots__ = ("call_id", "error", "receive", "ack", "nack", "change_invisible", "cancel", "publish", "reschedule")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    CHANGE_INVISIBLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    error: _broker_pb2.ErrorDetail
    receive: _consumer_pb2.ReceiveResponse
    ack: _consumer_pb2.AckResponse
    nack: _consumer_pb2.NackResponse
    change_invisible: _consumer_pb2.ChangeInvisibleResponse
    cancel: _broker_pb2.CancelResponse
    publish: _broker_pb2.PublishStreamResponse
    reschedule: _broker_pb2.RescheduleResponse
    def __init__(self, call_id: _Optional[int] = ..., error: _Optional[_Union[_broker_pb2.ErrorDetail, _Mapping]] = ..., receive: _Optional[_Union[_consumer_pb2.ReceiveResponse, _Mapping]] = ..., ack: _Optional[_Union[_consumer_pb2.AckResponse, _Mapping]] = ..., nack: _Optional[_Union[_consumer_pb2.NackResponse, _Mapping]] = ..., change_invisible: _Optional[_Union[_consumer_pb2.ChangeInvisibleResponse, _Mapping]] = ..., cancel: _Optional[_Union[_broker_pb2.CancelResponse, _Mapping]] = ..., publish: _Optional[_Union[_broker_pb2.PublishStreamResponse, _Mapping]] = ..., reschedule: _Optional[_Union[_broker_pb2.RescheduleResponse, _Mapping]] = ...) -> None: ...
