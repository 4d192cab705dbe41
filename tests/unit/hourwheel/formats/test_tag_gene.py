import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.tag_gene import (
    DEFAULT_SPEC,
    GENE_SPEC_NONE,
    GENE_SPEC_OF_TOPIC,
    GENE_UNKNOWN,
    GeneKind,
    GeneSpec,
    gene_of,
    item_bits,
    key_hash,
    property_bits,
    sparse_gene,
)

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
SPECS = st.builds(
    GeneSpec,
    st.sampled_from((GeneKind.SPARSE, GeneKind.BLOOM)),
    st.integers(0, 8),
    st.lists(st.sampled_from("abc"), unique=True, max_size=2).map(tuple),
) | st.sampled_from((GeneSpec(GeneKind.HASH_SET), GeneSpec(GeneKind.OR_GENE)))


def test_hashes_when_golden() -> None:
    # XXH3_64("paid") and XXH3_64("") are fixed by its specification: genes lie in the log.
    assert item_bits(GeneSpec(GeneKind.SPARSE, 3), "paid") == 1 << 10 | 1 << 18 | 1 << 21
    assert key_hash("") == 0x2D06800538D394C2


def test_spec_when_in_one_form() -> None:
    assert GeneSpec() == GeneSpec("sparse", 5) == DEFAULT_SPEC  # type: ignore[arg-type]
    assert GeneSpec(properties=("b", "a")) == GeneSpec(properties=("a", "b"))
    assert GeneSpec(GeneKind.BLOOM, properties=("b", "a")).text == "bloom/4 a,b"
    assert GeneSpec(GeneKind.OR_GENE).text == "or-gene"


@pytest.mark.parametrize(
    "arguments",
    [
        ("heavy",),
        ("sparse", 9),
        ("sparse", -1),
        ("hash-set", 1),
        ("or-gene", 0, ("a",)),
        ("sparse", 0, ("a", "a")),
        ("sparse", 0, ("",)),
        ("sparse", 0, ("a\n",)),
        ("sparse", 0, ("\ud800",)),
        ("sparse", 0, ("n" * 128,)),
        ("bloom", 0, tuple("abcdefghi")),
    ],
)
def test_spec_when_it_cannot_be(arguments: tuple[object, ...]) -> None:
    with pytest.raises(errors.InvalidArgument):
        GeneSpec(*arguments)  # type: ignore[arg-type]


def test_number_when_specs_differ() -> None:
    specs = [
        *(GeneSpec(kind, bits) for kind in ("sparse", "bloom") for bits in range(1, 9)),  # type: ignore[arg-type]
        *(GeneSpec(GeneKind.HASH_SET), GeneSpec(GeneKind.OR_GENE)),
        *(GeneSpec(properties=("a",)), GeneSpec(properties=("a", "b"))),
    ]
    numbers = {spec.number for spec in specs}
    assert len(numbers) == len(specs)
    assert numbers.isdisjoint({GENE_SPEC_NONE, GENE_SPEC_OF_TOPIC})


@given(SPECS)
def test_gene_of_when_there_is_nothing(spec: GeneSpec) -> None:
    assert gene_of(spec, ()) == gene_of(spec, (), (("other", "x"),)) == 0


@given(SPECS, st.lists(TEXT, max_size=10), st.dictionaries(st.sampled_from("abc"), TEXT))
def test_gene_of_when_it_must_say_maybe(
    spec: GeneSpec, tags: list[str], properties: dict[str, str]
) -> None:
    gene = gene_of(spec, tags, properties.items())
    assert 0 <= gene <= GENE_UNKNOWN
    items = [item_bits(spec, tag) for tag in tags]
    items += [
        property_bits(spec, name, properties[name])
        for name in spec.properties
        if name in properties
    ]
    assert all(gene & bits == bits for bits in items)
    if spec.bits_per_item:
        assert gene.bit_count() <= spec.bits_per_item * len(items)


def test_gene_of_when_bits_are_distinct() -> None:
    # A bloom's step is odd, so its positions never meet; those of a sparse gene may.
    for tag in map(str, range(200)):
        assert item_bits(GeneSpec(GeneKind.BLOOM, 8), tag).bit_count() == 8
        assert 1 <= item_bits(GeneSpec(GeneKind.SPARSE, 8), tag).bit_count() <= 8


def test_gene_of_when_a_hash_stands_for_one_tag() -> None:
    spec = GeneSpec(GeneKind.HASH_SET)
    assert gene_of(spec, ("a",)) == gene_of(spec, ("a", "a")) == item_bits(spec, "a")
    assert gene_of(spec, ("a", "b")) == GENE_UNKNOWN


def test_gene_of_when_a_property_looks_like_a_tag() -> None:
    spec = GeneSpec(properties=("a",))
    assert gene_of(spec, (), (("a", "b"), ("c", "d"))) == property_bits(spec, "a", "b")
    assert property_bits(spec, "a", "b") != item_bits(spec, "ab")
    assert property_bits(spec, "a", "x" * 300) == item_bits(spec, "a\0" + "x" * 300)


def test_sparse_gene_is_the_default() -> None:
    assert (
        sparse_gene(("a", "b"))
        == gene_of(DEFAULT_SPEC, ("a", "b"))
        == item_bits(DEFAULT_SPEC, "a") | item_bits(DEFAULT_SPEC, "b")
    )


@given(TEXT)
def test_key_hash_when_text_or_bytes(key: str) -> None:
    assert 0 < key_hash(key) == key_hash(key.encode()) < 1 << 64
