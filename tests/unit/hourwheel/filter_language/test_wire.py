import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import (
    Sql,
    Tags,
    as_filter,
    filter_from_wire,
    filter_to_wire,
    gene_from_wire,
    gene_to_wire,
)
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.v1 import filter_pb2


@pytest.mark.parametrize("wanted", [Tags("a || b"), Sql("a = 5", check_at_client=True)])
def test_filter_when_there_and_back(wanted: FilterExpression) -> None:
    assert filter_from_wire(filter_to_wire(wanted)) == wanted


def test_filter_when_nothing_is_said() -> None:
    assert filter_from_wire(filter_pb2.FilterExpression()).is_everything


def test_filter_when_the_kind_is_unknown() -> None:
    message = filter_pb2.FilterExpression()
    message.kind = 9  # type: ignore[assignment]
    with pytest.raises(errors.InvalidArgument):
        filter_from_wire(message)


@pytest.mark.parametrize(
    "spec",
    [
        GeneSpec(),
        GeneSpec(GeneKind.HASH_SET),
        GeneSpec(GeneKind.OR_GENE),
        GeneSpec(GeneKind.BLOOM, 7, ("region", "a")),
    ],
)
def test_gene_when_there_and_back(spec: GeneSpec) -> None:
    assert gene_from_wire(gene_to_wire(spec)) == spec


def test_gene_when_nothing_is_said() -> None:
    assert gene_from_wire(None) == gene_from_wire(filter_pb2.GeneSpec()) == DEFAULT_SPEC


def test_gene_when_it_cannot_be() -> None:
    message = filter_pb2.GeneSpec()
    message.kind = 9  # type: ignore[assignment]
    for bad in (message, filter_pb2.GeneSpec(bits_per_item=9)):
        with pytest.raises(errors.InvalidArgument):
            gene_from_wire(bad)


def test_as_filter() -> None:
    assert as_filter(None) is None
    assert as_filter("a") == Tags("a")
    assert as_filter(Sql("a")) == Sql("a")
