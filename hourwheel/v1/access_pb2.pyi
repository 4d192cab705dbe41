from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AccessOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_OPERATION_UNSPECIFIED: _ClassVar[AccessOperation]
    ACCESS_OPERATION_PUBLISH: _ClassVar[AccessOperation]
    ACCESS_OPERATION_RECEIVE: _ClassVar[AccessOperation]
    ACCESS_OPERATION_CANCEL: _ClassVar[AccessOperation]
    ACCESS_OPERATION_LOOK: _ClassVar[AccessOperation]
    ACCESS_OPERATION_ADMINISTER: _ClassVar[AccessOperation]

class AccessResourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_RESOURCE_KIND_UNSPECIFIED: _ClassVar[AccessResourceKind]
    ACCESS_RESOURCE_KIND_TOPIC: _ClassVar[AccessResourceKind]
    ACCESS_RESOURCE_KIND_GROUP: _ClassVar[AccessResourceKind]
    ACCESS_RESOURCE_KIND_CLUSTER: _ClassVar[AccessResourceKind]
ACCESS_OPERATION_UNSPECIFIED: AccessOperation
ACCESS_OPERATION_PUBLISH: AccessOperation
ACCESS_OPERATION_RECEIVE: AccessOperation
ACCESS_OPERATION_CANCEL: AccessOperation
ACCESS_OPERATION_LOOK: AccessOperation
ACCESS_OPERATION_ADMINISTER: AccessOperation
ACCESS_RESOURCE_KIND_UNSPECIFIED: AccessResourceKind
ACCESS_RESOURCE_KIND_TOPIC: AccessResourceKind
ACCESS_RESOURCE_KIND_GROUP: AccessResourceKind
ACCESS_RESOURCE_KIND_CLUSTER: AccessResourceKind

class PutUserRequest(_message.Message):
    __slots__ = ("user", "secret", "expected_version")
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    user: str
    secret: str
    expected_version: int
    def __init__(self, user: _Optional[str] = ..., secret: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class PutUserResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("user", "expected_version")
    USER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    user: str
    expected_version: int
    def __init__(self, user: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class AccessUser(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users", "next_page_token")
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[AccessUser]
    next_page_token: bytes
    def __init__(self, users: _Optional[_Iterable[_Union[AccessUser, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class AccessGrant(_message.Message):
    __slots__ = ("principal", "kind", "resource", "operations", "version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    kind: AccessResourceKind
    resource: str
    operations: _containers.RepeatedScalarFieldContainer[AccessOperation]
    version: int
    def __init__(self, principal: _Optional[str] = ..., kind: _Optional[_Union[AccessResourceKind, str]] = ..., resource: _Optional[str] = ..., operations: _Optional[_Iterable[_Union[AccessOperation, str]]] = ..., version: _Optional[int] = ...) -> None: ...

class PutGrantRequest(_message.Message):
    __slots__ = ("grant", "expected_version")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    grant: AccessGrant
    expected_version: int
    def __init__(self, grant: _Optional[_Union[AccessGrant, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class PutGrantResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteGrantRequest(_message.Message):
    __slots__ = ("grant", "expected_version")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    grant: AccessGrant
    expected_version: int
    def __init__(self, grant: _Optional[_Union[AccessGrant, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteGrantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGrantsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListGrantsResponse(_message.Message):
    __slots__ = ("grants", "next_page_token")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[AccessGrant]
    next_page_token: bytes
    def __init__(self, grants: _Optional[_Iterable[_Union[AccessGrant, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class AccessQuota(_message.Message):
    __slots__ = ("principal", "messages_per_s", "bytes_per_s", "pending_messages", "topics", "groups", "connections", "calls_in_flight", "version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    messages_per_s: int
    bytes_per_s: int
    pending_messages: int
    topics: int
    groups: int
    connections: int
    calls_in_flight: int
    version: int
    def __init__(self, principal: _Optional[str] = ..., messages_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., pending_messages: _Optional[int] = ..., topics: _Optional[int] = ..., groups: _Optional[int] = ..., connections: _Optional[int] = ..., calls_in_flight: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class PutQuotaRequest(_message.Message):
    __slots__ = ("quota", "expected_version")
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    quota: AccessQuota
    expected_version: int
    def __init__(self, quota: _Optional[_Union[AccessQuota, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class PutQuotaResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class DeleteQuotaRequest(_message.Message):
    __slots__ = ("principal", "expected_version")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    expected_version: int
    def __init__(self, principal: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteQuotaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "next_page_token")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[AccessQuota]
    next_page_token: bytes
    def __init__(self, quotas: _Optional[_Iterable[_Union[AccessQuota, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...
