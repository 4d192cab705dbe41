from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ControlOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTROL_OUTCOME_UNSPECIFIED: _ClassVar[ControlOutcome]
    CONTROL_OUTCOME_OK: _ClassVar[ControlOutcome]
    CONTROL_OUTCOME_CONFLICT: _ClassVar[ControlOutcome]
    CONTROL_OUTCOME_REFUSED: _ClassVar[ControlOutcome]
    CONTROL_OUTCOME_UNKNOWN_VERSION: _ClassVar[ControlOutcome]
CONTROL_OUTCOME_UNSPECIFIED: ControlOutcome
CONTROL_OUTCOME_OK: ControlOutcome
CONTROL_OUTCOME_CONFLICT: ControlOutcome
CONTROL_OUTCOME_REFUSED: ControlOutcome
CONTROL_OUTCOME_UNKNOWN_VERSION: ControlOutcome

class ControlCommand(_message.Message):
    __slots__ = ("codec_version", "request_id", "noop", "bootstrap", "register_node", "elect_master", "change_isr", "put_topic", "delete_topic", "put_group", "delete_group", "note_ended")
    CODEC_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NOOP_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_FIELD_NUMBER: _ClassVar[int]
    REGISTER_NODE_FIELD_NUMBER: _ClassVar[int]
    ELECT_MASTER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ISR_FIELD_NUMBER: _ClassVar[int]
    PUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_FIELD_NUMBER: _ClassVar[int]
    NOTE_ENDED_FIELD_NUMBER: _ClassVar[int]
    codec_version: int
    request_id: bytes
    noop: NoopCommand
    bootstrap: BootstrapCommand
    register_node: RegisterNodeCommand
    elect_master: ElectMasterCommand
    change_isr: ChangeIsrCommand
    put_topic: PutObjectCommand
    delete_topic: DeleteObjectCommand
    put_group: PutObjectCommand
    delete_group: DeleteObjectCommand
    note_ended: NoteEndedCommand
    def __init__(self, codec_version: _Optional[int] = ..., request_id: _Optional[bytes] = ..., noop: _Optional[_Union[NoopCommand, _Mapping]] = ..., bootstrap: _Optional[_Union[BootstrapCommand, _Mapping]] = ..., register_node: _Optional[_Union[RegisterNodeCommand, _Mapping]] = ..., elect_master: _Optional[_Union[ElectMasterCommand, _Mapping]] = ..., change_isr: _Optional[_Union[ChangeIsrCommand, _Mapping]] = ..., put_topic: _Optional[_Union[PutObjectCommand, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteObjectCommand, _Mapping]] = ..., put_group: _Optional[_Union[PutObjectCommand, _Mapping]] = ..., delete_group: _Optional[_Union[DeleteObjectCommand, _Mapping]] = ..., note_ended: _Optional[_Union[NoteEndedCommand, _Mapping]] = ...) -> None: ...

class NoopCommand(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BootstrapCommand(_message.Message):
    __slots__ = ("cluster_id", "min_in_sync", "shard_count", "node_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    min_in_sync: int
    shard_count: int
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[bytes] = ..., min_in_sync: _Optional[int] = ..., shard_count: _Optional[int] = ..., node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterNodeCommand(_message.Message):
    __slots__ = ("node_id", "api_address", "data_address", "control_address", "boot_id", "software_version", "isr_is_sound", "seen", "feature_level")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    API_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DATA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ISR_IS_SOUND_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    api_address: str
    data_address: str
    control_address: str
    boot_id: bytes
    software_version: str
    isr_is_sound: bool
    seen: _containers.RepeatedCompositeFieldContainer[SeenEpoch]
    feature_level: int
    def __init__(self, node_id: _Optional[str] = ..., api_address: _Optional[str] = ..., data_address: _Optional[str] = ..., control_address: _Optional[str] = ..., boot_id: _Optional[bytes] = ..., software_version: _Optional[str] = ..., isr_is_sound: bool = ..., seen: _Optional[_Iterable[_Union[SeenEpoch, _Mapping]]] = ..., feature_level: _Optional[int] = ...) -> None: ...

class NoteEndedCommand(_message.Message):
    __slots__ = ("node_id", "boot_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    boot_id: bytes
    def __init__(self, node_id: _Optional[str] = ..., boot_id: _Optional[bytes] = ...) -> None: ...

class SeenEpoch(_message.Message):
    __slots__ = ("shard", "epoch", "master_node_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    master_node_id: str
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., master_node_id: _Optional[str] = ...) -> None: ...

class ElectMasterCommand(_message.Message):
    __slots__ = ("shard", "expected_epoch", "master_node_id", "master_boot_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    shard: int
    expected_epoch: int
    master_node_id: str
    master_boot_id: bytes
    def __init__(self, shard: _Optional[int] = ..., expected_epoch: _Optional[int] = ..., master_node_id: _Optional[str] = ..., master_boot_id: _Optional[bytes] = ...) -> None: ...

class ChangeIsrCommand(_message.Message):
    __slots__ = ("shard", "epoch", "expected_version", "isr")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    expected_version: int
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., expected_version: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("node_id", "boot_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    boot_id: bytes
    def __init__(self, node_id: _Optional[str] = ..., boot_id: _Optional[bytes] = ...) -> None: ...

class PutObjectCommand(_message.Message):
    __slots__ = ("name", "settings", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: bytes
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[bytes] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteObjectCommand(_message.Message):
    __slots__ = ("name", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class ControlResult(_message.Message):
    __slots__ = ("outcome", "reason", "version", "epoch", "object_id", "revision")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    outcome: ControlOutcome
    reason: str
    version: int
    epoch: int
    object_id: int
    revision: int
    def __init__(self, outcome: _Optional[_Union[ControlOutcome, str]] = ..., reason: _Optional[str] = ..., version: _Optional[int] = ..., epoch: _Optional[int] = ..., object_id: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class ControlStateData(_message.Message):
    __slots__ = ("codec_version", "cluster_id", "min_in_sync", "revision", "nodes", "shards", "topics", "groups", "next_topic_id", "next_group_id", "remembered")
    CODEC_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    codec_version: int
    cluster_id: bytes
    min_in_sync: int
    revision: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeData]
    shards: _containers.RepeatedCompositeFieldContainer[ShardData]
    topics: _containers.RepeatedCompositeFieldContainer[ObjectData]
    groups: _containers.RepeatedCompositeFieldContainer[ObjectData]
    next_topic_id: int
    next_group_id: int
    remembered: _containers.RepeatedCompositeFieldContainer[RememberedResult]
    def __init__(self, codec_version: _Optional[int] = ..., cluster_id: _Optional[bytes] = ..., min_in_sync: _Optional[int] = ..., revision: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeData, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ShardData, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., next_topic_id: _Optional[int] = ..., next_group_id: _Optional[int] = ..., remembered: _Optional[_Iterable[_Union[RememberedResult, _Mapping]]] = ...) -> None: ...

class NodeData(_message.Message):
    __slots__ = ("registered", "version", "ended_boot_id")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENDED_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    registered: RegisterNodeCommand
    version: int
    ended_boot_id: bytes
    def __init__(self, registered: _Optional[_Union[RegisterNodeCommand, _Mapping]] = ..., version: _Optional[int] = ..., ended_boot_id: _Optional[bytes] = ...) -> None: ...

class ShardData(_message.Message):
    __slots__ = ("shard", "epoch", "master_node_id", "master_boot_id", "isr", "version", "epoch_seen")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SEEN_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    master_node_id: str
    master_boot_id: bytes
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    version: int
    epoch_seen: int
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., master_node_id: _Optional[str] = ..., master_boot_id: _Optional[bytes] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., version: _Optional[int] = ..., epoch_seen: _Optional[int] = ...) -> None: ...

class ObjectData(_message.Message):
    __slots__ = ("name", "object_id", "settings", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    object_id: int
    settings: bytes
    version: int
    def __init__(self, name: _Optional[str] = ..., object_id: _Optional[int] = ..., settings: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class RememberedResult(_message.Message):
    __slots__ = ("request_id", "result")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    result: bytes
    def __init__(self, request_id: _Optional[bytes] = ..., result: _Optional[bytes] = ...) -> None: ...
