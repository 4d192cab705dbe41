from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListMembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Member(_message.Message):
    __slots__ = ("node_id", "control_address", "is_alive", "has_replica", "is_in_sync")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    HAS_REPLICA_FIELD_NUMBER: _ClassVar[int]
    IS_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    control_address: str
    is_alive: bool
    has_replica: bool
    is_in_sync: bool
    def __init__(self, node_id: _Optional[str] = ..., control_address: _Optional[str] = ..., is_alive: bool = ..., has_replica: bool = ..., is_in_sync: bool = ...) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("generation", "members", "former_node_ids", "is_changing", "cluster_id")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FORMER_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_CHANGING_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    former_node_ids: _containers.RepeatedScalarFieldContainer[str]
    is_changing: bool
    cluster_id: str
    def __init__(self, generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., former_node_ids: _Optional[_Iterable[str]] = ..., is_changing: bool = ..., cluster_id: _Optional[str] = ...) -> None: ...

class NewMember(_message.Message):
    __slots__ = ("node_id", "control_address")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    control_address: str
    def __init__(self, node_id: _Optional[str] = ..., control_address: _Optional[str] = ...) -> None: ...

class ChangeMembersRequest(_message.Message):
    __slots__ = ("add", "remove_node_ids", "expected_generation")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[NewMember]
    remove_node_ids: _containers.RepeatedScalarFieldContainer[str]
    expected_generation: int
    def __init__(self, add: _Optional[_Iterable[_Union[NewMember, _Mapping]]] = ..., remove_node_ids: _Optional[_Iterable[str]] = ..., expected_generation: _Optional[int] = ...) -> None: ...

class ChangeMembersResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...
