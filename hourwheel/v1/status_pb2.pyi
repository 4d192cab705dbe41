from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShardRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARD_ROLE_UNSPECIFIED: _ClassVar[ShardRole]
    SHARD_ROLE_FOLLOWER: _ClassVar[ShardRole]
    SHARD_ROLE_TAKING_OVER: _ClassVar[ShardRole]
    SHARD_ROLE_MASTER: _ClassVar[ShardRole]

class FollowerPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOLLOWER_PHASE_UNSPECIFIED: _ClassVar[FollowerPhase]
    FOLLOWER_PHASE_ABSENT: _ClassVar[FollowerPhase]
    FOLLOWER_PHASE_GREETED: _ClassVar[FollowerPhase]
    FOLLOWER_PHASE_BEGUN: _ClassVar[FollowerPhase]
    FOLLOWER_PHASE_REPLICATING: _ClassVar[FollowerPhase]
    FOLLOWER_PHASE_SNAPSHOT: _ClassVar[FollowerPhase]
SHARD_ROLE_UNSPECIFIED: ShardRole
SHARD_ROLE_FOLLOWER: ShardRole
SHARD_ROLE_TAKING_OVER: ShardRole
SHARD_ROLE_MASTER: ShardRole
FOLLOWER_PHASE_UNSPECIFIED: FollowerPhase
FOLLOWER_PHASE_ABSENT: FollowerPhase
FOLLOWER_PHASE_GREETED: FollowerPhase
FOLLOWER_PHASE_BEGUN: FollowerPhase
FOLLOWER_PHASE_REPLICATING: FollowerPhase
FOLLOWER_PHASE_SNAPSHOT: FollowerPhase

class ControlStatus(_message.Message):
    __slots__ = ("leader_node_id", "term", "has_majority", "revision", "generation")
    LEADER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    HAS_MAJORITY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    leader_node_id: str
    term: int
    has_majority: bool
    revision: int
    generation: int
    def __init__(self, leader_node_id: _Optional[str] = ..., term: _Optional[int] = ..., has_majority: bool = ..., revision: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node_id", "address", "started_ms", "clock_ms", "read_only_reason", "boot_id", "is_alive", "is_ready", "version", "epoch", "log_end_offset", "heard_ms_ago", "is_heard", "feature_level")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_REASON_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    IS_HEARD_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    started_ms: int
    clock_ms: int
    read_only_reason: str
    boot_id: str
    is_alive: bool
    is_ready: bool
    version: str
    epoch: int
    log_end_offset: int
    heard_ms_ago: int
    is_heard: bool
    feature_level: int
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., started_ms: _Optional[int] = ..., clock_ms: _Optional[int] = ..., read_only_reason: _Optional[str] = ..., boot_id: _Optional[str] = ..., is_alive: bool = ..., is_ready: bool = ..., version: _Optional[str] = ..., epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., heard_ms_ago: _Optional[int] = ..., is_heard: bool = ..., feature_level: _Optional[int] = ...) -> None: ...

class FollowerStatus(_message.Message):
    __slots__ = ("node_id", "phase", "acked_end_offset", "lag_bytes", "applied_offset", "heard_ms_ago", "clock_offset_ms", "is_full")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ACKED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    phase: FollowerPhase
    acked_end_offset: int
    lag_bytes: int
    applied_offset: int
    heard_ms_ago: int
    clock_offset_ms: float
    is_full: bool
    def __init__(self, node_id: _Optional[str] = ..., phase: _Optional[_Union[FollowerPhase, str]] = ..., acked_end_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., applied_offset: _Optional[int] = ..., heard_ms_ago: _Optional[int] = ..., clock_offset_ms: _Optional[float] = ..., is_full: bool = ...) -> None: ...

class DeliveryStatus(_message.Message):
    __slots__ = ("delivered_count", "acknowledged_count", "redelivered_count", "dead_lettered_count", "early_count", "lateness_bounds_ms", "lateness_counts")
    DELIVERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    EARLY_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATENESS_BOUNDS_MS_FIELD_NUMBER: _ClassVar[int]
    LATENESS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    delivered_count: int
    acknowledged_count: int
    redelivered_count: int
    dead_lettered_count: int
    early_count: int
    lateness_bounds_ms: _containers.RepeatedScalarFieldContainer[float]
    lateness_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delivered_count: _Optional[int] = ..., acknowledged_count: _Optional[int] = ..., redelivered_count: _Optional[int] = ..., dead_lettered_count: _Optional[int] = ..., early_count: _Optional[int] = ..., lateness_bounds_ms: _Optional[_Iterable[float]] = ..., lateness_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("shard", "epoch", "master", "log_start_offset", "log_end_offset", "high_watermark", "applied_offset", "checkpoint_offset", "published_count", "pending_count", "released_count", "cancelled_count", "tick", "local_index", "next_due_ms", "run_count", "disk_bytes", "in_sync", "version", "role", "may_act", "lease_left_ms", "followers", "append_cursor_ms", "append_cursor_sequence", "clock_offset_ms", "feature_level", "delivery")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MAY_ACT_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    APPEND_CURSOR_MS_FIELD_NUMBER: _ClassVar[int]
    APPEND_CURSOR_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    master: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    applied_offset: int
    checkpoint_offset: int
    published_count: int
    pending_count: int
    released_count: int
    cancelled_count: int
    tick: int
    local_index: int
    next_due_ms: int
    run_count: int
    disk_bytes: int
    in_sync: _containers.RepeatedScalarFieldContainer[str]
    version: int
    role: ShardRole
    may_act: bool
    lease_left_ms: int
    followers: _containers.RepeatedCompositeFieldContainer[FollowerStatus]
    append_cursor_ms: int
    append_cursor_sequence: int
    clock_offset_ms: float
    feature_level: int
    delivery: DeliveryStatus
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., master: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., applied_offset: _Optional[int] = ..., checkpoint_offset: _Optional[int] = ..., published_count: _Optional[int] = ..., pending_count: _Optional[int] = ..., released_count: _Optional[int] = ..., cancelled_count: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., next_due_ms: _Optional[int] = ..., run_count: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., in_sync: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ..., role: _Optional[_Union[ShardRole, str]] = ..., may_act: bool = ..., lease_left_ms: _Optional[int] = ..., followers: _Optional[_Iterable[_Union[FollowerStatus, _Mapping]]] = ..., append_cursor_ms: _Optional[int] = ..., append_cursor_sequence: _Optional[int] = ..., clock_offset_ms: _Optional[float] = ..., feature_level: _Optional[int] = ..., delivery: _Optional[_Union[DeliveryStatus, _Mapping]] = ...) -> None: ...
