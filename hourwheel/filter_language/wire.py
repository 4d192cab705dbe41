"""Filters and gene specs as protobuf messages (proto/hourwheel/v1/filter.proto), there and back."""

from typing import Final

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression, FilterKind
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.v1 import filter_pb2

Tags: Final = FilterExpression.tags
"""`Tags("paid && !test")`: a filter by tags."""
Sql: Final = FilterExpression.sql
"""`Sql("amount > 100")`: a filter by SQL conditions on properties."""

_FILTER_KINDS: Final = {
    FilterKind.TAGS: filter_pb2.FILTER_KIND_TAGS,
    FilterKind.SQL: filter_pb2.FILTER_KIND_SQL,
}
_FILTER_KIND_OF: Final = {
    filter_pb2.FILTER_KIND_UNSPECIFIED: FilterKind.TAGS,
    **{number: kind for kind, number in _FILTER_KINDS.items()},
}
_GENE_KINDS: Final = {
    GeneKind.SPARSE: filter_pb2.GENE_KIND_SPARSE,
    GeneKind.HASH_SET: filter_pb2.GENE_KIND_HASH_SET,
    GeneKind.OR_GENE: filter_pb2.GENE_KIND_OR_GENE,
    GeneKind.BLOOM: filter_pb2.GENE_KIND_BLOOM,
}
_GENE_KIND_OF: Final = {
    filter_pb2.GENE_KIND_UNSPECIFIED: GeneKind.SPARSE,
    **{number: kind for kind, number in _GENE_KINDS.items()},
}


def as_filter(wanted: str | FilterExpression | None) -> FilterExpression | None:
    """What a user gave as a filter: a text is one by tags."""
    return FilterExpression.tags(wanted) if isinstance(wanted, str) else wanted


def filter_to_wire(expression: FilterExpression) -> filter_pb2.FilterExpression:
    """The message that says the same."""
    return filter_pb2.FilterExpression(
        kind=_FILTER_KINDS[expression.kind],
        text=expression.text,
        check_at_client=expression.check_at_client,
    )


def filter_from_wire(message: filter_pb2.FilterExpression) -> FilterExpression:
    """The expression that a message says; its text is not read yet.

    Raises:
        InvalidArgument: a kind that this version does not know.
    """
    kind = _FILTER_KIND_OF.get(message.kind)
    if kind is None:
        raise errors.InvalidArgument("an unknown kind of filter", kind=int(message.kind))
    return FilterExpression(kind, message.text, message.check_at_client)


def gene_to_wire(spec: GeneSpec) -> filter_pb2.GeneSpec:
    """The message that says the same, the number of bits written out."""
    return filter_pb2.GeneSpec(
        kind=_GENE_KINDS[spec.kind], bits_per_item=spec.bits_per_item, properties=spec.properties
    )


def gene_from_wire(message: filter_pb2.GeneSpec | None) -> GeneSpec:
    """The spec that a message says; the default for None or a message that says nothing.

    Raises:
        InvalidArgument: a kind that this version does not know, or as `GeneSpec`.
    """
    if message is None:
        return DEFAULT_SPEC
    kind = _GENE_KIND_OF.get(message.kind)
    if kind is None:
        raise errors.InvalidArgument("an unknown kind of gene", kind=int(message.kind))
    return GeneSpec(kind, message.bits_per_item, tuple(message.properties))
