import xml.etree.ElementTree as ET

import numpy as np
import pytest

from spark_jobs.audit import plots
from spark_jobs.audit.plots import Caption, Columns, Series

CAPTION = Caption('a "title" <&>', "what it shows", "x", "y")


def svg(text: str) -> ET.Element:
    return ET.fromstring(text)


def texts(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter("text")]


def ints(*values: int) -> plots.I64:
    return np.array(values, np.int64)


def test_steps_are_joined_without_losing_a_message() -> None:
    start = 1_000 * np.array([0, 1, 2, 5_000, 100_000], np.int64)
    columns = plots.join_steps(start, 1_000, [ints(1, 2, 3, 4, 5), ints(0, 0, 0, 0, 9)], 100)
    assert columns.step_ms == 1_800_000
    assert len(columns.start_ms) <= 100
    assert [int(each.sum()) for each in columns.values] == [15, 9]
    assert np.diff(columns.start_ms).tolist() == [1_800_000] * (len(columns.start_ms) - 1)
    assert columns.values[0][0] == 6


@pytest.mark.parametrize("span", [1, 479, 480, 481, 10_000, 86_400 * 400, 86_400 * 36_500])
def test_there_are_never_too_many_columns(span: int) -> None:
    start = 1_000 * np.array([0, span], np.int64) + 1_800_000_000_000
    columns = plots.join_steps(start, 1_000, [ints(1, 1)], 480)
    assert 1 <= len(columns.start_ms) <= 481
    assert int(columns.values[0].sum()) == 2


def test_nothing_at_all_can_be_drawn() -> None:
    empty = plots.join_steps(ints(), 1_000, [ints()])
    assert svg(plots.lines(CAPTION, empty, [Series("due", ints(), is_area=True)])) is not None
    assert svg(plots.time_bars(CAPTION, empty)) is not None
    assert svg(plots.bars(CAPTION, [], ints())) is not None


def test_a_plot_says_what_it_shows_to_those_who_cannot_see_it() -> None:
    root = svg(plots.bars(CAPTION, ["0", "1"], ints(5, 0)))
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'a "title" <&>: what it shows'
    assert [each.text for each in (root.find("title"), root.find("desc")) if each is not None] == [
        'a "title" <&>',
        "what it shows",
    ]


def test_one_in_a_million_is_seen() -> None:
    root = svg(plots.bars(CAPTION, ["0", "late"], ints(1_000_000, 1)))
    heights = [float(each.get("height") or 0) for each in root.iter("rect")]
    assert len(heights) == 2
    assert heights[0] > heights[1] > 10
    assert [rect.findtext("title") for rect in root.iter("rect")] == ["0: 1,000,000", "late: 1"]


def test_lines_reach_as_high_as_their_values() -> None:
    columns = Columns(ints(0, 1_000), 1_000, [])
    root = svg(
        plots.lines(
            CAPTION, columns, [Series("due", ints(10, 5), is_area=True), Series("out", ints(0, 10))]
        )
    )
    due, out = (
        [p.split(",") for p in (e.get("points") or "").split()] for e in root.iter("polyline")
    )
    assert due[0][1] == out[2][1]
    assert float(due[2][1]) > float(due[0][1])
    assert len(list(root.iter("polygon"))) == 1
    assert {"due", "out"} <= set(texts(root))


def test_labels_of_time_are_round_and_do_not_overlap() -> None:
    start = 1_803_000_000_000 + 60_000 * np.arange(180, dtype=np.int64)
    root = svg(plots.time_bars(CAPTION, Columns(start, 60_000, [np.ones(180, np.int64)])))
    labels = [text for text in texts(root) if ":" in text]
    assert labels[0].startswith("2027-02-19 ")
    assert 3 <= len(labels) <= 9
    assert all(label.endswith(("00", "30")) for label in labels)


@pytest.mark.parametrize(
    "starts",
    [(-(2**63), 2**63 - 1), (-(2**63) + 5, 0, 2**63 - 808), (0, 2**62), (2**63 - 5_000, 2**63 - 1)],
)
def test_steps_when_times_are_as_far_apart_as_they_can_be_are_drawn(starts: tuple[int]) -> None:
    columns = plots.join_steps(ints(*starts), 1_000, [np.ones(len(starts), np.int64)])
    assert int(columns.values[0].sum()) == len(starts)
    assert len(columns.start_ms) <= 481
    svg(plots.time_bars(CAPTION, columns))
    svg(plots.lines(CAPTION, columns, [Series("due", columns.values[0])]))


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01 00:00"),
        (1_000, "1970-01-01 00:00:01"),
        (1 << 70, "146140482-04-24 15:36:27"),
    ],
)
def test_instants_are_texts_however_far(ms: int, text: str) -> None:
    assert plots.instant_text(ms) == text
    assert plots.instant_text(-(1 << 63)).startswith("-146136543-")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1_500, "1.5 k"), (20_000_000, "20 M")]
)
def test_counts_are_short_on_an_axis(value: int, text: str) -> None:
    assert plots.short_count(value) == text


def test_tables_escape_what_they_show() -> None:
    text = plots.table(("a<b", "n"), [("<script>", 1_000), ("x", True)], caption="c&d")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert '<td class="n">1,000</td>' in text
    assert "<td>True</td>" in text
