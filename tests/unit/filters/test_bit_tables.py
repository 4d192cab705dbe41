import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.gene_mask import BitTables, bytes_of
from hourwheel.formats.tag_gene import GENE_UNKNOWN

WORDS = st.integers(0, 2**64 - 1)
FEW_BITS = st.lists(st.integers(0, 63), max_size=5).map(
    lambda places: sum({1 << at for at in places})
)


def found(sets: list[int], genes: list[int]) -> list[bool]:
    out = np.ones(len(genes), np.bool_)
    BitTables(sets).find(bytes_of(np.array(genes, np.uint64)).astype(np.intp), out)
    return out.tolist()


@given(st.lists(FEW_BITS | WORDS, min_size=1, max_size=70), st.lists(FEW_BITS | WORDS, max_size=20))
def test_find_is_who_has_all_bits_of_one_set(sets: list[int], genes: list[int]) -> None:
    genes = [*genes, 0, GENE_UNKNOWN, sets[-1], sets[0] | 1]
    expected = [any(gene & each == each for each in sets) for gene in genes]
    assert found(sets, genes) == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
def test_find_when_each_set_is_the_only_one_that_a_gene_has(count: int) -> None:
    sets = [1 << (number % 64) | 1 << ((number * 7 + 1) % 64) for number in range(count)]
    assert found(sets, [0, *sets]) == [False] + [True] * count
    assert BitTables(sets).size_bytes == -(-count // 64) * 16_384
