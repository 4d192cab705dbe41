"""Tests see effects; private names are their owner's business."""

import ast

import pytest

from tests.tidy.private_names import allowed, counted, find_faults, find_places, lowered


def test_tests_look_at_no_more_private_names_than_they_did() -> None:
    assert find_faults(counted(), allowed()) == [], "see tests/tidy/private_names.py"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("world.engine._pace = 1", 1),
        ("a._b._c()", 2),
        ("make()._b", 1),
        ('monkeypatch.setattr("node.shard.apply._ROWS_MIN", 2)', 1),
        ('monkeypatch.setattr(module, "_ROWS_MIN", 2)', 1),
        ('monkeypatch.setattr(module, "ROWS_MIN", "_2")', 0),
        ("self._a = super()._b + cls._c", 0),
        ("row._replace(a=1).__class__", 0),
    ],
)
def test_places_are_those_of_other_objects(text: str, count: int) -> None:
    assert len(list(find_places(ast.parse(text)))) == count


def test_list_only_shrinks() -> None:
    counts, limits = {"a": 2, "b": 5, "new": 1}, {"a": 3, "b": 4, "gone": 1}
    assert [one.split(":")[0] for one in find_faults(counts, limits)] == ["b", "new"]
    assert lowered(counts, limits) == {"a": 2, "b": 4}
