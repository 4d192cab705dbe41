from hourwheel.internal.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShardReport(_message.Message):
    __slots__ = ("shard", "epoch", "last_epoch", "log_end", "high_watermark", "is_ready", "is_resigning", "hand_over_to", "is_low", "has_retired", "is_serving")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    IS_RESIGNING_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_TO_FIELD_NUMBER: _ClassVar[int]
    IS_LOW_FIELD_NUMBER: _ClassVar[int]
    HAS_RETIRED_FIELD_NUMBER: _ClassVar[int]
    IS_SERVING_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    last_epoch: int
    log_end: int
    high_watermark: int
    is_ready: bool
    is_resigning: bool
    hand_over_to: str
    is_low: bool
    has_retired: bool
    is_serving: bool
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., log_end: _Optional[int] = ..., high_watermark: _Optional[int] = ..., is_ready: bool = ..., is_resigning: bool = ..., hand_over_to: _Optional[str] = ..., is_low: bool = ..., has_retired: bool = ..., is_serving: bool = ...) -> None: ...

class NodeReport(_message.Message):
    __slots__ = ("node_id", "boot_id", "broker_alive", "shards", "ended_boot_id", "rules")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ALIVE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    boot_id: bytes
    broker_alive: bool
    shards: _containers.RepeatedCompositeFieldContainer[ShardReport]
    ended_boot_id: bytes
    rules: int
    def __init__(self, node_id: _Optional[str] = ..., boot_id: _Optional[bytes] = ..., broker_alive: bool = ..., shards: _Optional[_Iterable[_Union[ShardReport, _Mapping]]] = ..., ended_boot_id: _Optional[bytes] = ..., rules: _Optional[int] = ...) -> None: ...

class LinkHello(_message.Message):
    __slots__ = ("version", "node_id", "boot_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    node_id: str
    boot_id: bytes
    def __init__(self, version: _Optional[int] = ..., node_id: _Optional[str] = ..., boot_id: _Optional[bytes] = ...) -> None: ...

class LinkProposal(_message.Message):
    __slots__ = ("call_id", "command", "timeout_ms")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    command: bytes
    timeout_ms: int
    def __init__(self, call_id: _Optional[int] = ..., command: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class LinkAnswer(_message.Message):
    __slots__ = ("call_id", "result", "error_reason", "error_message")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    result: _control_pb2.ControlResult
    error_reason: str
    error_message: str
    def __init__(self, call_id: _Optional[int] = ..., result: _Optional[_Union[_control_pb2.ControlResult, _Mapping]] = ..., error_reason: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class LinkLeader(_message.Message):
    __slots__ = ("leader_node_id", "term", "has_majority")
    LEADER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    HAS_MAJORITY_FIELD_NUMBER: _ClassVar[int]
    leader_node_id: str
    term: int
    has_majority: bool
    def __init__(self, leader_node_id: _Optional[str] = ..., term: _Optional[int] = ..., has_majority: bool = ...) -> None: ...

class LinkPing(_message.Message):
    __slots__ = ("stall_count", "stall_ms_max")
    STALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    STALL_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    stall_count: int
    stall_ms_max: float
    def __init__(self, stall_count: _Optional[int] = ..., stall_ms_max: _Optional[float] = ...) -> None: ...

class LinkState(_message.Message):
    __slots__ = ("state", "change")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    state: _control_pb2.ControlStateData
    change: LinkStateChange
    def __init__(self, state: _Optional[_Union[_control_pb2.ControlStateData, _Mapping]] = ..., change: _Optional[_Union[LinkStateChange, _Mapping]] = ...) -> None: ...

class LinkStateChange(_message.Message):
    __slots__ = ("deleted_topics", "deleted_groups")
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    deleted_topics: _containers.RepeatedScalarFieldContainer[str]
    deleted_groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, deleted_topics: _Optional[_Iterable[str]] = ..., deleted_groups: _Optional[_Iterable[str]] = ...) -> None: ...

class LinkReports(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[NodeReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[NodeReport, _Mapping]]] = ...) -> None: ...

class LinkPartition(_message.Message):
    __slots__ = ("blocked_in", "blocked_out")
    BLOCKED_IN_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_OUT_FIELD_NUMBER: _ClassVar[int]
    blocked_in: _containers.RepeatedScalarFieldContainer[str]
    blocked_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, blocked_in: _Optional[_Iterable[str]] = ..., blocked_out: _Optional[_Iterable[str]] = ...) -> None: ...

class BrokerFrame(_message.Message):
    __slots__ = ("hello", "report", "proposal", "ping", "partition")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    hello: LinkHello
    report: NodeReport
    proposal: LinkProposal
    ping: LinkPing
    partition: LinkPartition
    def __init__(self, hello: _Optional[_Union[LinkHello, _Mapping]] = ..., report: _Optional[_Union[NodeReport, _Mapping]] = ..., proposal: _Optional[_Union[LinkProposal, _Mapping]] = ..., ping: _Optional[_Union[LinkPing, _Mapping]] = ..., partition: _Optional[_Union[LinkPartition, _Mapping]] = ...) -> None: ...

class ControlFrame(_message.Message):
    __slots__ = ("state", "answer", "leader", "ping", "reports")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    state: LinkState
    answer: LinkAnswer
    leader: LinkLeader
    ping: LinkPing
    reports: LinkReports
    def __init__(self, state: _Optional[_Union[LinkState, _Mapping]] = ..., answer: _Optional[_Union[LinkAnswer, _Mapping]] = ..., leader: _Optional[_Union[LinkLeader, _Mapping]] = ..., ping: _Optional[_Union[LinkPing, _Mapping]] = ..., reports: _Optional[_Union[LinkReports, _Mapping]] = ...) -> None: ...
