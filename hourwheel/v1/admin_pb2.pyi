from hourwheel.v1 import filter_pb2 as _filter_pb2
from hourwheel.v1 import groups_pb2 as _groups_pb2
from hourwheel.v1 import members_pb2 as _members_pb2
from hourwheel.v1 import meta_pb2 as _meta_pb2
from hourwheel.v1 import pending_pb2 as _pending_pb2
from hourwheel.v1 import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_PENDING: _ClassVar[MessageState]
    MESSAGE_STATE_RELEASED: _ClassVar[MessageState]
    MESSAGE_STATE_CANCELLED: _ClassVar[MessageState]
    MESSAGE_STATE_UNKNOWN: _ClassVar[MessageState]
    MESSAGE_STATE_EXPIRED: _ClassVar[MessageState]
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_PENDING: MessageState
MESSAGE_STATE_RELEASED: MessageState
MESSAGE_STATE_CANCELLED: MessageState
MESSAGE_STATE_UNKNOWN: MessageState
MESSAGE_STATE_EXPIRED: MessageState

class TopicSettings(_message.Message):
    __slots__ = ("queue_count", "gene")
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    GENE_FIELD_NUMBER: _ClassVar[int]
    queue_count: int
    gene: _filter_pb2.GeneSpec
    def __init__(self, queue_count: _Optional[int] = ..., gene: _Optional[_Union[_filter_pb2.GeneSpec, _Mapping]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "settings", "released_count", "description", "is_paused", "version", "dispatch_tolerance_ms", "retention_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_TOLERANCE_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: TopicSettings
    released_count: int
    description: str
    is_paused: bool
    version: int
    dispatch_tolerance_ms: int
    retention_ms: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., released_count: _Optional[int] = ..., description: _Optional[str] = ..., is_paused: bool = ..., version: _Optional[int] = ..., dispatch_tolerance_ms: _Optional[int] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "settings", "retention_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: TopicSettings
    retention_ms: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("include_internal", "page_size", "page_token")
    INCLUDE_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    include_internal: bool
    page_size: int
    page_token: bytes
    def __init__(self, include_internal: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class GroupSettings(_message.Message):
    __slots__ = ("attempts_max", "invisible_ms", "retry_delay_ms", "retry_delay_ms_max", "retry_delays", "retry_jitter_percent", "start_at", "start_ms", "in_flight_max", "per_second_max", "order", "keeps_expired")
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAYS_FIELD_NUMBER: _ClassVar[int]
    RETRY_JITTER_PERCENT_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    PER_SECOND_MAX_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    KEEPS_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    attempts_max: int
    invisible_ms: int
    retry_delay_ms: int
    retry_delay_ms_max: int
    retry_delays: _groups_pb2.RetryDelays
    retry_jitter_percent: int
    start_at: _groups_pb2.StartAt
    start_ms: int
    in_flight_max: int
    per_second_max: int
    order: _groups_pb2.GroupOrder
    keeps_expired: bool
    def __init__(self, attempts_max: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., retry_delay_ms: _Optional[int] = ..., retry_delay_ms_max: _Optional[int] = ..., retry_delays: _Optional[_Union[_groups_pb2.RetryDelays, _Mapping]] = ..., retry_jitter_percent: _Optional[int] = ..., start_at: _Optional[_Union[_groups_pb2.StartAt, str]] = ..., start_ms: _Optional[int] = ..., in_flight_max: _Optional[int] = ..., per_second_max: _Optional[int] = ..., order: _Optional[_Union[_groups_pb2.GroupOrder, str]] = ..., keeps_expired: bool = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "settings", "lags", "subscriptions", "description", "is_paused", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    LAGS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: GroupSettings
    lags: _containers.RepeatedCompositeFieldContainer[_groups_pb2.GroupLag]
    subscriptions: _containers.RepeatedCompositeFieldContainer[GroupSubscription]
    description: str
    is_paused: bool
    version: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., lags: _Optional[_Iterable[_Union[_groups_pb2.GroupLag, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[GroupSubscription, _Mapping]]] = ..., description: _Optional[str] = ..., is_paused: bool = ..., version: _Optional[int] = ...) -> None: ...

class GroupSubscription(_message.Message):
    __slots__ = ("topic", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: _filter_pb2.FilterExpression
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ...) -> None: ...

class PutGroupRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: GroupSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[GroupSettings, _Mapping]] = ...) -> None: ...

class PutGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("name", "description", "is_paused", "expected_version", "dispatch_tolerance_ms", "retention_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_TOLERANCE_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    is_paused: bool
    expected_version: int
    dispatch_tolerance_ms: int
    retention_ms: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., is_paused: bool = ..., expected_version: _Optional[int] = ..., dispatch_tolerance_ms: _Optional[int] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("name", "description", "is_paused", "settings", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    is_paused: bool
    settings: GroupSettings
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., is_paused: bool = ..., settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class UpdateGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class PutSubscriptionRequest(_message.Message):
    __slots__ = ("group", "topic", "filter")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    filter: _filter_pb2.FilterExpression
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ...) -> None: ...

class PutSubscriptionResponse(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: GroupSubscription
    def __init__(self, subscription: _Optional[_Union[GroupSubscription, _Mapping]] = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ("topic", "filter", "from_due_ms", "to_due_ms", "page_size", "page_token", "with_bodies", "count_only", "key_prefix")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TO_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITH_BODIES_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: _filter_pb2.FilterExpression
    from_due_ms: int
    to_due_ms: int
    page_size: int
    page_token: bytes
    with_bodies: bool
    count_only: bool
    key_prefix: str
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.FilterExpression, _Mapping]] = ..., from_due_ms: _Optional[int] = ..., to_due_ms: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., with_bodies: bool = ..., count_only: bool = ..., key_prefix: _Optional[str] = ...) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "scanned_count", "matched_count", "corrupt_count", "key_prefix")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PendingMessage]
    next_page_token: bytes
    scanned_count: int
    matched_count: int
    corrupt_count: int
    key_prefix: str
    def __init__(self, messages: _Optional[_Iterable[_Union[PendingMessage, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ..., scanned_count: _Optional[int] = ..., matched_count: _Optional[int] = ..., corrupt_count: _Optional[int] = ..., key_prefix: _Optional[str] = ...) -> None: ...

class PendingMessage(_message.Message):
    __slots__ = ("message_id", "due_ms", "store_ms", "meta", "body_bytes", "body", "is_corrupt")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_MS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IS_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    due_ms: int
    store_ms: int
    meta: _meta_pb2.MessageMeta
    body_bytes: int
    body: bytes
    is_corrupt: bool
    def __init__(self, message_id: _Optional[str] = ..., due_ms: _Optional[int] = ..., store_ms: _Optional[int] = ..., meta: _Optional[_Union[_meta_pb2.MessageMeta, _Mapping]] = ..., body_bytes: _Optional[int] = ..., body: _Optional[bytes] = ..., is_corrupt: bool = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: bytes
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("group", "next_page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: Group
    next_page_token: bytes
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next_page_token: bytes
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("cluster_id", "version", "nodes", "shards", "answered_by", "control")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    version: str
    nodes: _containers.RepeatedCompositeFieldContainer[_status_pb2.NodeStatus]
    shards: _containers.RepeatedCompositeFieldContainer[_status_pb2.ShardStatus]
    answered_by: str
    control: _status_pb2.ControlStatus
    def __init__(self, cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[_status_pb2.NodeStatus, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[_status_pb2.ShardStatus, _Mapping]]] = ..., answered_by: _Optional[str] = ..., control: _Optional[_Union[_status_pb2.ControlStatus, _Mapping]] = ...) -> None: ...

class TransferMasterRequest(_message.Message):
    __slots__ = ("shard", "to_node_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    shard: int
    to_node_id: str
    def __init__(self, shard: _Optional[int] = ..., to_node_id: _Optional[str] = ...) -> None: ...

class TransferMasterResponse(_message.Message):
    __slots__ = ("master", "epoch")
    MASTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    master: str
    epoch: int
    def __init__(self, master: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class DescribeMessageRequest(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class DescribeMessageResponse(_message.Message):
    __slots__ = ("message_id", "state", "due_ms", "is_damaged", "dead_letters", "dead_letter_search_is_complete")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_SEARCH_IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    state: MessageState
    due_ms: int
    is_damaged: bool
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    dead_letter_search_is_complete: bool
    def __init__(self, message_id: _Optional[str] = ..., state: _Optional[_Union[MessageState, str]] = ..., due_ms: _Optional[int] = ..., is_damaged: bool = ..., dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., dead_letter_search_is_complete: bool = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("group", "topic", "attempts", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    attempts: int
    reason: _groups_pb2.DeadLetterReason
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., attempts: _Optional[int] = ..., reason: _Optional[_Union[_groups_pb2.DeadLetterReason, str]] = ...) -> None: ...

class ListDamagedRequest(_message.Message):
    __slots__ = ("group", "topic", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    page_size: int
    page_token: bytes
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListDamagedResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DamagedMessage]
    next_page_token: bytes
    def __init__(self, messages: _Optional[_Iterable[_Union[DamagedMessage, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class DamagedMessage(_message.Message):
    __slots__ = ("message_id", "group", "topic", "stands_in", "due_ms", "attempt", "body_bytes", "place", "found_ms", "tries")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STANDS_IN_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOUND_MS_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    group: str
    topic: str
    stands_in: str
    due_ms: int
    attempt: int
    body_bytes: int
    place: str
    found_ms: int
    tries: int
    def __init__(self, message_id: _Optional[str] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., stands_in: _Optional[str] = ..., due_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., body_bytes: _Optional[int] = ..., place: _Optional[str] = ..., found_ms: _Optional[int] = ..., tries: _Optional[int] = ...) -> None: ...

class DiscardDamagedRequest(_message.Message):
    __slots__ = ("group", "topic", "message_ids", "all")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., all: bool = ...) -> None: ...

class DiscardDamagedResponse(_message.Message):
    __slots__ = ("messages", "left_count")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_COUNT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DamagedMessage]
    left_count: int
    def __init__(self, messages: _Optional[_Iterable[_Union[DamagedMessage, _Mapping]]] = ..., left_count: _Optional[int] = ...) -> None: ...

class DescribeWheelRequest(_message.Message):
    __slots__ = ("bounds_ms",)
    BOUNDS_MS_FIELD_NUMBER: _ClassVar[int]
    bounds_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeWheelResponse(_message.Message):
    __slots__ = ("counts", "are_estimates", "earlier_count", "later_count", "pending_count", "cancelled_count", "clock_ms")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ARE_ESTIMATES_FIELD_NUMBER: _ClassVar[int]
    EARLIER_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    are_estimates: _containers.RepeatedScalarFieldContainer[bool]
    earlier_count: int
    later_count: int
    pending_count: int
    cancelled_count: int
    clock_ms: int
    def __init__(self, counts: _Optional[_Iterable[int]] = ..., are_estimates: _Optional[_Iterable[bool]] = ..., earlier_count: _Optional[int] = ..., later_count: _Optional[int] = ..., pending_count: _Optional[int] = ..., cancelled_count: _Optional[int] = ..., clock_ms: _Optional[int] = ...) -> None: ...
