from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicateRequest(_message.Message):
    __slots__ = ("hello", "begin", "log", "beat", "leases")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    hello: MasterHello
    begin: BeginFrom
    log: LogPart
    beat: SyncBeat
    leases: LeaseTable
    def __init__(self, hello: _Optional[_Union[MasterHello, _Mapping]] = ..., begin: _Optional[_Union[BeginFrom, _Mapping]] = ..., log: _Optional[_Union[LogPart, _Mapping]] = ..., beat: _Optional[_Union[SyncBeat, _Mapping]] = ..., leases: _Optional[_Union[LeaseTable, _Mapping]] = ...) -> None: ...

class MasterHello(_message.Message):
    __slots__ = ("protocol", "cluster_id", "shard", "epoch", "node_id", "boot_id", "follower_id", "ended_boot_ids")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_ID_FIELD_NUMBER: _ClassVar[int]
    ENDED_BOOT_IDS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    cluster_id: bytes
    shard: int
    epoch: int
    node_id: str
    boot_id: str
    follower_id: str
    ended_boot_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., cluster_id: _Optional[bytes] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ..., node_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., follower_id: _Optional[str] = ..., ended_boot_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BeginFrom(_message.Message):
    __slots__ = ("epoch", "offset", "epochs", "take_snapshot")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TAKE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochMark]
    take_snapshot: bool
    def __init__(self, epoch: _Optional[int] = ..., offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochMark, _Mapping]]] = ..., take_snapshot: bool = ...) -> None: ...

class EpochMark(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class LogPart(_message.Message):
    __slots__ = ("epoch", "offset", "batch_epoch", "batches", "high_watermark")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    offset: int
    batch_epoch: int
    batches: bytes
    high_watermark: int
    def __init__(self, epoch: _Optional[int] = ..., offset: _Optional[int] = ..., batch_epoch: _Optional[int] = ..., batches: _Optional[bytes] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class SyncBeat(_message.Message):
    __slots__ = ("epoch", "tick", "local_index", "append_cursor_ms", "append_cursor_sequence", "log_end_offset", "high_watermark", "clock_ms", "sent_us", "lease_ms", "releases_lease")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPEND_CURSOR_MS_FIELD_NUMBER: _ClassVar[int]
    APPEND_CURSOR_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_LEASE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    tick: int
    local_index: int
    append_cursor_ms: int
    append_cursor_sequence: int
    log_end_offset: int
    high_watermark: int
    clock_ms: int
    sent_us: int
    lease_ms: int
    releases_lease: bool
    def __init__(self, epoch: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., append_cursor_ms: _Optional[int] = ..., append_cursor_sequence: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., clock_ms: _Optional[int] = ..., sent_us: _Optional[int] = ..., lease_ms: _Optional[int] = ..., releases_lease: bool = ...) -> None: ...

class LeaseTable(_message.Message):
    __slots__ = ("epoch", "ranges", "delivered", "sparse", "passed_over", "answers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    ranges: _containers.RepeatedCompositeFieldContainer[HeldRange]
    delivered: _containers.RepeatedCompositeFieldContainer[DeliveredTo]
    sparse: _containers.RepeatedCompositeFieldContainer[SparseLease]
    passed_over: _containers.RepeatedCompositeFieldContainer[PassedOver]
    answers: _containers.RepeatedCompositeFieldContainer[PollAnswer]
    def __init__(self, epoch: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[HeldRange, _Mapping]]] = ..., delivered: _Optional[_Iterable[_Union[DeliveredTo, _Mapping]]] = ..., sparse: _Optional[_Iterable[_Union[SparseLease, _Mapping]]] = ..., passed_over: _Optional[_Iterable[_Union[PassedOver, _Mapping]]] = ..., answers: _Optional[_Iterable[_Union[PollAnswer, _Mapping]]] = ...) -> None: ...

class PollAnswer(_message.Message):
    __slots__ = ("group_id", "topic_id", "poller_id", "poll_number", "topic_queue", "first", "end", "stream_owner")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    POLLER_ID_FIELD_NUMBER: _ClassVar[int]
    POLL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STREAM_OWNER_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_id: int
    poller_id: int
    poll_number: int
    topic_queue: int
    first: int
    end: int
    stream_owner: str
    def __init__(self, group_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., poller_id: _Optional[int] = ..., poll_number: _Optional[int] = ..., topic_queue: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., stream_owner: _Optional[str] = ...) -> None: ...

class HeldRange(_message.Message):
    __slots__ = ("group_id", "topic_queue", "first", "end", "until_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_queue: int
    first: int
    end: int
    until_ms: int
    def __init__(self, group_id: _Optional[int] = ..., topic_queue: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class DeliveredTo(_message.Message):
    __slots__ = ("group_id", "topic_queue", "position", "ahead_deltas")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AHEAD_DELTAS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_queue: int
    position: int
    ahead_deltas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group_id: _Optional[int] = ..., topic_queue: _Optional[int] = ..., position: _Optional[int] = ..., ahead_deltas: _Optional[_Iterable[int]] = ...) -> None: ...

class SparseLease(_message.Message):
    __slots__ = ("group_id", "topic_queue", "epoch", "lease_id", "first", "end", "position_deltas", "parts", "keeps_gaps")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POSITION_DELTAS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_GAPS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_queue: int
    epoch: int
    lease_id: int
    first: int
    end: int
    position_deltas: _containers.RepeatedScalarFieldContainer[int]
    parts: _containers.RepeatedCompositeFieldContainer[HeldPart]
    keeps_gaps: bool
    def __init__(self, group_id: _Optional[int] = ..., topic_queue: _Optional[int] = ..., epoch: _Optional[int] = ..., lease_id: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., position_deltas: _Optional[_Iterable[int]] = ..., parts: _Optional[_Iterable[_Union[HeldPart, _Mapping]]] = ..., keeps_gaps: bool = ...) -> None: ...

class HeldPart(_message.Message):
    __slots__ = ("first", "end", "until_ms")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    until_ms: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class PassedOver(_message.Message):
    __slots__ = ("group_id", "topic_queue", "first", "end", "are_expired")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ARE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    topic_queue: int
    first: int
    end: int
    are_expired: bool
    def __init__(self, group_id: _Optional[int] = ..., topic_queue: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., are_expired: bool = ...) -> None: ...

class ReplicateResponse(_message.Message):
    __slots__ = ("hello", "ack", "refused")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    hello: FollowerHello
    ack: FollowerAck
    refused: Refused
    def __init__(self, hello: _Optional[_Union[FollowerHello, _Mapping]] = ..., ack: _Optional[_Union[FollowerAck, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class FollowerHello(_message.Message):
    __slots__ = ("epoch", "boot_id", "log_start_offset", "log_end_offset", "applied_offset", "epochs")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    boot_id: str
    log_start_offset: int
    log_end_offset: int
    applied_offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochMark]
    def __init__(self, epoch: _Optional[int] = ..., boot_id: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., applied_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochMark, _Mapping]]] = ...) -> None: ...

class FollowerAck(_message.Message):
    __slots__ = ("epoch", "flushed_end_offset", "applied_offset", "released_count", "released_mix", "echo_us", "echo_age_us", "clock_ms", "is_full")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MIX_FIELD_NUMBER: _ClassVar[int]
    ECHO_US_FIELD_NUMBER: _ClassVar[int]
    ECHO_AGE_US_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    flushed_end_offset: int
    applied_offset: int
    released_count: int
    released_mix: int
    echo_us: int
    echo_age_us: int
    clock_ms: float
    is_full: bool
    def __init__(self, epoch: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., applied_offset: _Optional[int] = ..., released_count: _Optional[int] = ..., released_mix: _Optional[int] = ..., echo_us: _Optional[int] = ..., echo_age_us: _Optional[int] = ..., clock_ms: _Optional[float] = ..., is_full: bool = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("epoch", "master", "why", "wait_ms", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    master: str
    why: str
    wait_ms: int
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., master: _Optional[str] = ..., why: _Optional[str] = ..., wait_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "shard", "epoch")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    shard: int
    epoch: int
    def __init__(self, cluster_id: _Optional[bytes] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("head", "bytes", "end")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    head: SnapshotHead
    bytes: SnapshotBytes
    end: SnapshotEnd
    def __init__(self, head: _Optional[_Union[SnapshotHead, _Mapping]] = ..., bytes: _Optional[_Union[SnapshotBytes, _Mapping]] = ..., end: _Optional[_Union[SnapshotEnd, _Mapping]] = ...) -> None: ...

class SnapshotHead(_message.Message):
    __slots__ = ("epoch", "applied_offset", "log_start_offset", "epochs", "files")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    applied_offset: int
    log_start_offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochMark]
    files: _containers.RepeatedCompositeFieldContainer[SnapshotFile]
    def __init__(self, epoch: _Optional[int] = ..., applied_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochMark, _Mapping]]] = ..., files: _Optional[_Iterable[_Union[SnapshotFile, _Mapping]]] = ...) -> None: ...

class SnapshotFile(_message.Message):
    __slots__ = ("name", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class SnapshotBytes(_message.Message):
    __slots__ = ("file", "position", "data", "crc")
    FILE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    file: int
    position: int
    data: bytes
    crc: int
    def __init__(self, file: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ..., crc: _Optional[int] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("total_bytes",)
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    total_bytes: int
    def __init__(self, total_bytes: _Optional[int] = ...) -> None: ...

class FetchMessagesRequest(_message.Message):
    __slots__ = ("cluster_id", "shard", "messages")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    shard: int
    messages: _containers.RepeatedCompositeFieldContainer[WantedMessage]
    def __init__(self, cluster_id: _Optional[bytes] = ..., shard: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[WantedMessage, _Mapping]]] = ...) -> None: ...

class WantedMessage(_message.Message):
    __slots__ = ("due_ms", "sequence", "topic_queue", "queue_position", "crc", "meta_bytes", "body_bytes")
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    META_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    due_ms: int
    sequence: int
    topic_queue: int
    queue_position: int
    crc: int
    meta_bytes: int
    body_bytes: int
    def __init__(self, due_ms: _Optional[int] = ..., sequence: _Optional[int] = ..., topic_queue: _Optional[int] = ..., queue_position: _Optional[int] = ..., crc: _Optional[int] = ..., meta_bytes: _Optional[int] = ..., body_bytes: _Optional[int] = ...) -> None: ...

class FetchMessagesResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FetchedMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[FetchedMessage, _Mapping]]] = ...) -> None: ...

class FetchedMessage(_message.Message):
    __slots__ = ("ordinal", "blob")
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    ordinal: int
    blob: bytes
    def __init__(self, ordinal: _Optional[int] = ..., blob: _Optional[bytes] = ...) -> None: ...

class FetchLogRequest(_message.Message):
    __slots__ = ("cluster_id", "shard", "offset", "bytes_max")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    shard: int
    offset: int
    bytes_max: int
    def __init__(self, cluster_id: _Optional[bytes] = ..., shard: _Optional[int] = ..., offset: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class FetchLogResponse(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: bytes
    def __init__(self, batches: _Optional[bytes] = ...) -> None: ...
