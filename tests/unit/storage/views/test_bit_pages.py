import numpy as np
import pytest

from hourwheel import errors
from storage.views.bit_pages import PAGE_BYTES, U64, BitPages, page_of

PAGE = 65_536


def u64(*values: int) -> U64:
    return np.array(values, np.uint64)


def test_contains_when_empty() -> None:
    assert BitPages().contains(u64(0, 5, 1 << 60)).tolist() == [False] * 3
    assert BitPages().contains(u64()).tolist() == []


def test_contains_when_around_members() -> None:
    pages = BitPages()
    pages.add(u64(0, 7, 8, PAGE - 1, PAGE, 5 * PAGE + 3))
    probes = [0, 1, 6, 7, 8, 9, PAGE - 2, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 3, 4 * PAGE + 3]
    expected = [True, False, False, True, True, False, False, True, True, False, True, False]
    assert pages.contains(u64(*probes)).tolist() == expected
    assert pages.page_count == 3
    assert pages.page_numbers().tolist() == [0, 1, 5]
    assert pages.member_count() == 6


def test_contains_when_far_outside_of_the_table() -> None:
    pages = BitPages()
    pages.add(u64(100 * PAGE + 1))
    probes = [1, 99 * PAGE + 1, 100 * PAGE + 1, 101 * PAGE + 1, 2**63, 2**64 - PAGE + 1]
    assert pages.contains(u64(*probes)).tolist() == [False, False, True, False, False, False]


def test_add_when_some_are_in_already() -> None:
    pages = BitPages()
    assert pages.add(u64(5, 3, 5)).tolist() == [3, 5]
    assert pages.add(u64(4, 5, 3, 4)).tolist() == [4]
    assert pages.add(u64(4)).tolist() == []
    assert pages.add(u64()).tolist() == []


def test_add_when_pages_grow_both_ways() -> None:
    rng = np.random.default_rng(1)
    pages, members = BitPages(), set[int]()
    for center in (1 << 30, 1 << 20, 1 << 32, 0):
        added = rng.integers(center, center + 50 * PAGE, 300).astype(np.uint64)
        pages.add(added)
        members |= set(added.tolist())
    everything = u64(*sorted(members))
    assert pages.contains(everything).all()
    assert not pages.contains(everything + np.uint64(60 * PAGE)).any()
    assert pages.member_count() == len(members)
    assert pages.page_numbers().tolist() == sorted({each >> 16 for each in members})


def test_add_when_too_far_apart() -> None:
    pages = BitPages()
    pages.add(u64(1))
    with pytest.raises(errors.InvariantViolated, match="too far apart"):
        pages.add(u64(1 << 50))


def test_put_when_a_page_is_listed_twice() -> None:
    pages = BitPages()
    pages.add(u64(PAGE + 1))
    bits = np.zeros((3, PAGE_BYTES), np.uint8)
    bits[0, 0], bits[1, 0], bits[2, 0] = 1, 2, 4
    pages.put(u64(1, 3, 1), bits)
    assert pages.contains(u64(PAGE, PAGE + 1, PAGE + 2, 3 * PAGE + 1)).tolist() == [0, 0, 1, 1]


def test_copy_of_when_a_page_does_not_exist() -> None:
    pages = BitPages()
    pages.add(u64(2 * PAGE))
    found = pages.copy_of(u64(1, 2))
    assert not found[0].any()
    assert found[1, 0] == 1


def test_drop_when_some_stay() -> None:
    pages = BitPages()
    pages.add(u64(1, PAGE + 1, 2 * PAGE + 1))
    pages.drop(u64(0, 2, 9))
    assert pages.contains(u64(1, PAGE + 1, 2 * PAGE + 1)).tolist() == [False, True, False]
    assert pages.exists(u64(0, 1, 2)).tolist() == [False, True, False]
    pages.add(u64(1))
    assert pages.page_numbers().tolist() == [0, 1]


def test_drop_when_none_stay() -> None:
    pages = BitPages()
    pages.add(u64(1))
    pages.drop(u64(0))
    assert pages.page_count == 0
    assert pages.contains(u64(1)).tolist() == [False]


def test_empty_pages_when_put_without_members() -> None:
    pages = BitPages()
    pages.put(u64(4, 2), np.zeros((2, PAGE_BYTES), np.uint8))
    pages.add(u64(3 * PAGE))
    assert pages.empty_pages().tolist() == [2, 4]


def test_page_of_when_at_a_border() -> None:
    assert page_of(u64(PAGE - 1, PAGE)).tolist() == [0, 1]


def test_members_when_removed_are_gone_and_an_empty_page_with_them() -> None:
    pages = BitPages()
    pages.add(u64(1, 2, 9, PAGE + 5, 2 * PAGE, 7 * PAGE + 8))
    pages.remove(0, u64(9, 1))
    assert pages.members_of(0).tolist() == [2]
    pages.remove(1, u64(PAGE + 5))
    pages.remove(7, u64(7 * PAGE + 8))
    assert pages.page_numbers().tolist() == [0, 2]
    assert pages.members_of(1).tolist() == []
    assert pages.contains(u64(1, 2, PAGE + 5, 2 * PAGE, 7 * PAGE + 8)).tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(errors.InvariantViolated):
        pages.remove(1, u64(PAGE + 5))


def test_members_when_added_and_removed_at_random_are_those_of_a_set() -> None:
    rng, pages, model = np.random.default_rng(5), BitPages(), set[int]()
    for turn in range(300):
        few = rng.integers(0, (200 if turn < 150 else 20) * PAGE, 9, dtype=np.uint64)
        pages.add(few)
        model |= set(few.tolist())
        for page in rng.choice(pages.page_numbers(), 2 if turn < 150 else 9).tolist():
            inside = pages.members_of(page)
            assert inside.tolist() == sorted(one for one in model if one // PAGE == page)
            gone = inside[rng.random(len(inside)) < 0.8]
            if len(gone):
                pages.remove(page, gone)
                model -= set(gone.tolist())
        assert pages.member_count() == len(model)
        assert pages.page_numbers().tolist() == sorted({one // PAGE for one in model})
        probes = np.array(sorted(model | {one ^ 1 for one in model}), np.uint64)
        assert pages.contains(probes).tolist() == [one in model for one in probes.tolist()]
