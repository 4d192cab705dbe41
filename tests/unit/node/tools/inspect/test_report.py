"""What an inspection found, as data."""

from collections.abc import Iterator

import pytest

from hourwheel import errors
from node.tools.inspect.report import Damage, Report, Row, instant


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000_123, "2027-01-15T08:00:00.123Z"),
        (-1, "-1"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_instants_are_written_for_people_where_they_can_be(ms: int, text: str) -> None:
    assert instant(ms) == text


def test_table_says_that_it_goes_on_when_rows_are_left_out() -> None:
    report = Report()
    report.add("a", "file", ({"n": number} for number in range(3)), limit=2)
    report.add("b", "file", ({"n": number} for number in range(2)), limit=2)
    assert [(len(table.rows), table.has_more) for table in report.tables] == [(2, True), (2, False)]


def test_rows_before_the_damage_are_kept_when_reading_fails() -> None:
    def rows() -> Iterator[Row]:
        yield {"n": 1}
        raise errors.CorruptFile("the-file: is bad", file="the-file", offset=9)

    report = Report()
    report.add("a", "folder", rows())
    assert report.tables[0].rows == [{"n": 1}]
    assert report.damage == [Damage("the-file", 9, "is bad")]


def test_damage_of_one_place_is_told_once() -> None:
    report = Report()
    report.damaged("a", 1, "first")
    report.damaged("a", 1, "second")
    report.damaged("a", None, "first")
    report.damaged("a", None, "second")
    report.damaged("a", None, "second")
    assert [damage.why for damage in report.damage] == ["first", "first", "second"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.CorruptLog("x", file="l", offset=900, position=7), ("l", 7, "x")),
        (errors.CorruptFile("x"), ("file", None, "x")),
        (FileNotFoundError("file"), ("file", None, "the file is missing")),
    ],
)
def test_errors_become_damage_with_the_place_that_they_know(
    error: Exception, told: tuple[str, int | None, str]
) -> None:
    report = Report()
    report.caught(error, "file")
    assert report.damage == [Damage(*told)]


def test_reports_join_and_become_json() -> None:
    report, other = Report(), Report()
    other.remark("note")
    other.remark("note")
    other.damaged("a", 1, "bad")
    report.take(other)
    report.add("t", "f", [{"n": 1}])
    assert report.as_json() == {
        "good": False,
        "damage": [{"file": "a", "offset": 1, "why": "bad"}],
        "remarks": ["note"],
        "tables": [{"title": "t", "file": "f", "has_more": False, "rows": [{"n": 1}]}],
    }
    assert str(report.damage[0]) == "a, byte 1: bad"
