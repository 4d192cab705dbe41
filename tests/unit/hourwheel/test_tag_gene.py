from hypothesis import given
from hypothesis import strategies as st

from hourwheel.tag_gene import key_hash, sparse_gene, tag_bits

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def test_tag_bits_when_golden() -> None:
    # XXH3_64("paid") and XXH3_64("") are fixed by its specification: genes lie in the log.
    assert tag_bits("paid") == 1 << 10 | 1 << 18 | 1 << 21
    assert key_hash("") == 0x2D06800538D394C2


def test_sparse_gene_when_no_tags() -> None:
    assert sparse_gene(()) == 0


@given(st.lists(TEXT, max_size=10))
def test_sparse_gene_when_it_must_say_maybe(tags: list[str]) -> None:
    gene = sparse_gene(tuple(tags))
    assert gene < 1 << 64
    assert all(gene & tag_bits(tag) == tag_bits(tag) for tag in tags)
    assert gene.bit_count() <= 3 * len(tags)


@given(TEXT)
def test_key_hash_when_text_or_bytes(key: str) -> None:
    assert 0 < key_hash(key) == key_hash(key.encode()) < 1 << 64
