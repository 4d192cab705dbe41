from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FilterKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILTER_KIND_UNSPECIFIED: _ClassVar[FilterKind]
    FILTER_KIND_TAGS: _ClassVar[FilterKind]
    FILTER_KIND_SQL: _ClassVar[FilterKind]

class GeneKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GENE_KIND_UNSPECIFIED: _ClassVar[GeneKind]
    GENE_KIND_SPARSE: _ClassVar[GeneKind]
    GENE_KIND_HASH_SET: _ClassVar[GeneKind]
    GENE_KIND_OR_GENE: _ClassVar[GeneKind]
    GENE_KIND_BLOOM: _ClassVar[GeneKind]
FILTER_KIND_UNSPECIFIED: FilterKind
FILTER_KIND_TAGS: FilterKind
FILTER_KIND_SQL: FilterKind
GENE_KIND_UNSPECIFIED: GeneKind
GENE_KIND_SPARSE: GeneKind
GENE_KIND_HASH_SET: GeneKind
GENE_KIND_OR_GENE: GeneKind
GENE_KIND_BLOOM: GeneKind

class FilterExpression(_message.Message):
    __slots__ = ("kind", "text", "check_at_client")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHECK_AT_CLIENT_FIELD_NUMBER: _ClassVar[int]
    kind: FilterKind
    text: str
    check_at_client: bool
    def __init__(self, kind: _Optional[_Union[FilterKind, str]] = ..., text: _Optional[str] = ..., check_at_client: bool = ...) -> None: ...

class GeneSpec(_message.Message):
    __slots__ = ("kind", "bits_per_item", "properties")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BITS_PER_ITEM_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    kind: GeneKind
    bits_per_item: int
    properties: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[GeneKind, str]] = ..., bits_per_item: _Optional[int] = ..., properties: _Optional[_Iterable[str]] = ...) -> None: ...
