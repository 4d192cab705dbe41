"""Long tests come first, and the list of them names tests that exist."""

import random

import pytest

from tests.support.long_first import LONG, long_first
from tests.tidy import tree


def ids_of(count: int) -> list[str]:
    return [f"tests/test_short.py::test_{number}" for number in range(count)]


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_every_test_stands_once_in_the_order(workers: int) -> None:
    chooser = random.Random(workers)
    for count in range(60):
        ids = ids_of(count)
        known = {one: chooser.random() for one in chooser.sample(ids, chooser.randint(0, count))}
        assert sorted(long_first(ids, known, workers)) == list(range(count))


def test_each_slice_begins_with_its_share_of_the_long_ones() -> None:
    ids = ids_of(40)
    ids[20:23] = ["tests/test_long.py::test_a[1]", "tests/test_long.py::test_a[2]", "t.py::test_b"]
    ids[7] = "tests/test_all.py::test_c"
    ids[9] = "tests/tidy/test_d.py::test_e"
    known = {"tests/test_long.py::test_a": 9.0, "t.py::test_b": 5.0, "tests/test_all.py": 4.0}
    order = long_first(ids, known | {"tests/tidy": 3.0}, 2)
    assert order[:3] == [20, 21, 9]
    assert order[20:22] == [22, 7]


def test_the_list_names_tests_that_exist() -> None:
    existing = set(tree.files()).union(one.rpartition("/")[0] for one in tree.files())
    for name in LONG:
        path, _, test = name.partition("::")
        assert path in existing, name
        assert not test or f"def {test}(" in tree.text(path), name
