import pytest

from spark_jobs.runtime.instants import exact_instant_text, span_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (1_803_000_001_234, "2027-02-19 01:20:01.234"),
        (-1, "1969-12-31 23:59:59.999"),
    ],
)
def test_instants_are_exact(ms: int, text: str) -> None:
    assert exact_instant_text(ms) == text


@pytest.mark.parametrize("ms", [-(1 << 63), (1 << 63) - 1, 1 << 80])
def test_instants_are_a_text_whatever_they_are(ms: int) -> None:
    assert exact_instant_text(ms)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (-12, "-12 ms"),
        (1_000, "1.0 s"),
        (61_240, "61.2 s"),
        (120_000, "2 min"),
        (7_500_000, "2 h 5 min"),
        (3_600_000, "1 h"),
        (86_400_000 * 3 + 3_600_000, "3 d 1 h"),
        (-7_500_000, "-2 h 5 min"),
    ],
)
def test_spans_are_short(ms: int, text: str) -> None:
    assert span_text(ms) == text
