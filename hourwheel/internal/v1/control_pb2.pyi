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
    CONTROL_OUTCOME_GENERATION_ENDED: _ClassVar[ControlOutcome]
CONTROL_OUTCOME_UNSPECIFIED: ControlOutcome
CONTROL_OUTCOME_OK: ControlOutcome
CONTROL_OUTCOME_CONFLICT: ControlOutcome
CONTROL_OUTCOME_REFUSED: ControlOutcome
CONTROL_OUTCOME_UNKNOWN_VERSION: ControlOutcome
CONTROL_OUTCOME_GENERATION_ENDED: ControlOutcome

class ControlCommand(_message.Message):
    __slots__ = ("codec_version", "request_id", "noop", "bootstrap", "register_node", "elect_master", "change_isr", "put_topic", "delete_topic", "put_group", "delete_group", "note_ended", "set_rules", "put_user", "delete_user", "put_grant", "delete_grant", "put_quota", "delete_quota", "set_access_control", "batch", "note_members", "change_members", "change_replicas", "raise_min_in_sync", "import_catalog", "expire_topic", "expire_group")
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
    SET_RULES_FIELD_NUMBER: _ClassVar[int]
    PUT_USER_FIELD_NUMBER: _ClassVar[int]
    DELETE_USER_FIELD_NUMBER: _ClassVar[int]
    PUT_GRANT_FIELD_NUMBER: _ClassVar[int]
    DELETE_GRANT_FIELD_NUMBER: _ClassVar[int]
    PUT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    DELETE_QUOTA_FIELD_NUMBER: _ClassVar[int]
    SET_ACCESS_CONTROL_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NOTE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RAISE_MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    IMPORT_CATALOG_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_GROUP_FIELD_NUMBER: _ClassVar[int]
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
    set_rules: SetRulesCommand
    put_user: PutUserCommand
    delete_user: DeleteUserCommand
    put_grant: PutGrantCommand
    delete_grant: DeleteGrantCommand
    put_quota: PutQuotaCommand
    delete_quota: DeleteQuotaCommand
    set_access_control: SetAccessControlCommand
    batch: BatchCommand
    note_members: NoteMembersCommand
    change_members: ChangeMembersCommand
    change_replicas: ChangeReplicasCommand
    raise_min_in_sync: RaiseMinInSyncCommand
    import_catalog: ImportCatalogCommand
    expire_topic: ExpireObjectCommand
    expire_group: ExpireObjectCommand
    def __init__(self, codec_version: _Optional[int] = ..., request_id: _Optional[bytes] = ..., noop: _Optional[_Union[NoopCommand, _Mapping]] = ..., bootstrap: _Optional[_Union[BootstrapCommand, _Mapping]] = ..., register_node: _Optional[_Union[RegisterNodeCommand, _Mapping]] = ..., elect_master: _Optional[_Union[ElectMasterCommand, _Mapping]] = ..., change_isr: _Optional[_Union[ChangeIsrCommand, _Mapping]] = ..., put_topic: _Optional[_Union[PutObjectCommand, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteObjectCommand, _Mapping]] = ..., put_group: _Optional[_Union[PutObjectCommand, _Mapping]] = ..., delete_group: _Optional[_Union[DeleteObjectCommand, _Mapping]] = ..., note_ended: _Optional[_Union[NoteEndedCommand, _Mapping]] = ..., set_rules: _Optional[_Union[SetRulesCommand, _Mapping]] = ..., put_user: _Optional[_Union[PutUserCommand, _Mapping]] = ..., delete_user: _Optional[_Union[DeleteUserCommand, _Mapping]] = ..., put_grant: _Optional[_Union[PutGrantCommand, _Mapping]] = ..., delete_grant: _Optional[_Union[DeleteGrantCommand, _Mapping]] = ..., put_quota: _Optional[_Union[PutQuotaCommand, _Mapping]] = ..., delete_quota: _Optional[_Union[DeleteQuotaCommand, _Mapping]] = ..., set_access_control: _Optional[_Union[SetAccessControlCommand, _Mapping]] = ..., batch: _Optional[_Union[BatchCommand, _Mapping]] = ..., note_members: _Optional[_Union[NoteMembersCommand, _Mapping]] = ..., change_members: _Optional[_Union[ChangeMembersCommand, _Mapping]] = ..., change_replicas: _Optional[_Union[ChangeReplicasCommand, _Mapping]] = ..., raise_min_in_sync: _Optional[_Union[RaiseMinInSyncCommand, _Mapping]] = ..., import_catalog: _Optional[_Union[ImportCatalogCommand, _Mapping]] = ..., expire_topic: _Optional[_Union[ExpireObjectCommand, _Mapping]] = ..., expire_group: _Optional[_Union[ExpireObjectCommand, _Mapping]] = ...) -> None: ...

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

class SetRulesCommand(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: int
    def __init__(self, rules: _Optional[int] = ...) -> None: ...

class PutUserCommand(_message.Message):
    __slots__ = ("name", "secret_hash", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECRET_HASH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    secret_hash: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., secret_hash: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteUserCommand(_message.Message):
    __slots__ = ("name", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class GrantKey(_message.Message):
    __slots__ = ("principal", "kind", "name")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    principal: str
    kind: str
    name: str
    def __init__(self, principal: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PutGrantCommand(_message.Message):
    __slots__ = ("key", "operations", "expected_version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    key: GrantKey
    operations: _containers.RepeatedScalarFieldContainer[str]
    expected_version: int
    def __init__(self, key: _Optional[_Union[GrantKey, _Mapping]] = ..., operations: _Optional[_Iterable[str]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteGrantCommand(_message.Message):
    __slots__ = ("key", "expected_version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    key: GrantKey
    expected_version: int
    def __init__(self, key: _Optional[_Union[GrantKey, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class QuotaLimits(_message.Message):
    __slots__ = ("messages_per_s", "bytes_per_s", "pending_messages", "topics", "groups", "connections", "calls_in_flight")
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    messages_per_s: int
    bytes_per_s: int
    pending_messages: int
    topics: int
    groups: int
    connections: int
    calls_in_flight: int
    def __init__(self, messages_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., pending_messages: _Optional[int] = ..., topics: _Optional[int] = ..., groups: _Optional[int] = ..., connections: _Optional[int] = ..., calls_in_flight: _Optional[int] = ...) -> None: ...

class PutQuotaCommand(_message.Message):
    __slots__ = ("principal", "limits", "expected_version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    limits: QuotaLimits
    expected_version: int
    def __init__(self, principal: _Optional[str] = ..., limits: _Optional[_Union[QuotaLimits, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteQuotaCommand(_message.Message):
    __slots__ = ("principal", "expected_version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    expected_version: int
    def __init__(self, principal: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class SetAccessControlCommand(_message.Message):
    __slots__ = ("is_on", "expected_version")
    IS_ON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    is_on: bool
    expected_version: int
    def __init__(self, is_on: bool = ..., expected_version: _Optional[int] = ...) -> None: ...

class BatchCommand(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[ControlCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[ControlCommand, _Mapping]]] = ...) -> None: ...

class MemberData(_message.Message):
    __slots__ = ("node_id", "control_address")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    control_address: str
    def __init__(self, node_id: _Optional[str] = ..., control_address: _Optional[str] = ...) -> None: ...

class NoteMembersCommand(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[MemberData]
    def __init__(self, members: _Optional[_Iterable[_Union[MemberData, _Mapping]]] = ...) -> None: ...

class ChangeMembersCommand(_message.Message):
    __slots__ = ("expected_generation", "members")
    EXPECTED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    expected_generation: int
    members: _containers.RepeatedCompositeFieldContainer[MemberData]
    def __init__(self, expected_generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberData, _Mapping]]] = ...) -> None: ...

class ChangeReplicasCommand(_message.Message):
    __slots__ = ("shard", "epoch", "expected_version", "node_ids")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    expected_version: int
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., expected_version: _Optional[int] = ..., node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RaiseMinInSyncCommand(_message.Message):
    __slots__ = ("min_in_sync",)
    MIN_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    min_in_sync: int
    def __init__(self, min_in_sync: _Optional[int] = ...) -> None: ...

class ImportCatalogCommand(_message.Message):
    __slots__ = ("shard", "epoch", "piece", "revision_floor", "topics", "groups", "next_topic_id", "next_group_id", "is_last")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FLOOR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    piece: int
    revision_floor: int
    topics: _containers.RepeatedCompositeFieldContainer[ObjectData]
    groups: _containers.RepeatedCompositeFieldContainer[ObjectData]
    next_topic_id: int
    next_group_id: int
    is_last: bool
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., piece: _Optional[int] = ..., revision_floor: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., next_topic_id: _Optional[int] = ..., next_group_id: _Optional[int] = ..., is_last: bool = ...) -> None: ...

class ExpireObjectCommand(_message.Message):
    __slots__ = ("name", "expected_version", "shard", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    shard: int
    epoch: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ControlResult(_message.Message):
    __slots__ = ("outcome", "reason", "version", "epoch", "object_id", "revision", "results")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    outcome: ControlOutcome
    reason: str
    version: int
    epoch: int
    object_id: int
    revision: int
    results: _containers.RepeatedCompositeFieldContainer[ControlResult]
    def __init__(self, outcome: _Optional[_Union[ControlOutcome, str]] = ..., reason: _Optional[str] = ..., version: _Optional[int] = ..., epoch: _Optional[int] = ..., object_id: _Optional[int] = ..., revision: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ControlResult, _Mapping]]] = ...) -> None: ...

class ControlStateData(_message.Message):
    __slots__ = ("codec_version", "cluster_id", "min_in_sync", "revision", "nodes", "shards", "topics", "groups", "next_topic_id", "next_group_id", "remembered", "access", "membership", "min_in_sync_goal", "catalog_import")
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
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    MIN_IN_SYNC_GOAL_FIELD_NUMBER: _ClassVar[int]
    CATALOG_IMPORT_FIELD_NUMBER: _ClassVar[int]
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
    access: AccessData
    membership: MembershipData
    min_in_sync_goal: int
    catalog_import: CatalogImportData
    def __init__(self, codec_version: _Optional[int] = ..., cluster_id: _Optional[bytes] = ..., min_in_sync: _Optional[int] = ..., revision: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeData, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ShardData, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[ObjectData, _Mapping]]] = ..., next_topic_id: _Optional[int] = ..., next_group_id: _Optional[int] = ..., remembered: _Optional[_Iterable[_Union[RememberedResult, _Mapping]]] = ..., access: _Optional[_Union[AccessData, _Mapping]] = ..., membership: _Optional[_Union[MembershipData, _Mapping]] = ..., min_in_sync_goal: _Optional[int] = ..., catalog_import: _Optional[_Union[CatalogImportData, _Mapping]] = ...) -> None: ...

class CatalogImportData(_message.Message):
    __slots__ = ("pieces", "is_done")
    PIECES_FIELD_NUMBER: _ClassVar[int]
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    pieces: int
    is_done: bool
    def __init__(self, pieces: _Optional[int] = ..., is_done: bool = ...) -> None: ...

class MembershipData(_message.Message):
    __slots__ = ("generation", "members", "former_node_ids", "next_members")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FORMER_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[MemberData]
    former_node_ids: _containers.RepeatedScalarFieldContainer[str]
    next_members: _containers.RepeatedCompositeFieldContainer[MemberData]
    def __init__(self, generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberData, _Mapping]]] = ..., former_node_ids: _Optional[_Iterable[str]] = ..., next_members: _Optional[_Iterable[_Union[MemberData, _Mapping]]] = ...) -> None: ...

class AccessData(_message.Message):
    __slots__ = ("is_on", "switch_version", "version", "users", "grants", "quotas")
    IS_ON_FIELD_NUMBER: _ClassVar[int]
    SWITCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    is_on: bool
    switch_version: int
    version: int
    users: _containers.RepeatedCompositeFieldContainer[UserData]
    grants: _containers.RepeatedCompositeFieldContainer[GrantData]
    quotas: _containers.RepeatedCompositeFieldContainer[QuotaData]
    def __init__(self, is_on: bool = ..., switch_version: _Optional[int] = ..., version: _Optional[int] = ..., users: _Optional[_Iterable[_Union[UserData, _Mapping]]] = ..., grants: _Optional[_Iterable[_Union[GrantData, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[QuotaData, _Mapping]]] = ...) -> None: ...

class UserData(_message.Message):
    __slots__ = ("name", "secret_hash", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECRET_HASH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    secret_hash: str
    version: int
    def __init__(self, name: _Optional[str] = ..., secret_hash: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GrantData(_message.Message):
    __slots__ = ("key", "operations", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: GrantKey
    operations: _containers.RepeatedScalarFieldContainer[str]
    version: int
    def __init__(self, key: _Optional[_Union[GrantKey, _Mapping]] = ..., operations: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ...) -> None: ...

class QuotaData(_message.Message):
    __slots__ = ("principal", "limits", "version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    limits: QuotaLimits
    version: int
    def __init__(self, principal: _Optional[str] = ..., limits: _Optional[_Union[QuotaLimits, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("shard", "epoch", "master_node_id", "master_boot_id", "isr", "version", "epoch_seen", "replica_node_ids")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SEEN_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    master_node_id: str
    master_boot_id: bytes
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    version: int
    epoch_seen: int
    replica_node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., master_node_id: _Optional[str] = ..., master_boot_id: _Optional[bytes] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., version: _Optional[int] = ..., epoch_seen: _Optional[int] = ..., replica_node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

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
