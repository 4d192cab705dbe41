import pytest

from hourwheel.webhooks.answers import Answer, Decision, decide, find_delay_ms

NOW_MS = 1_800_000_000_000.0
"""2027-01-15 08:00:00 UTC, a Friday."""


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_what_is_done(status: int) -> None:
    assert decide(Answer(status, "60"), NOW_MS, 1_000) == Decision(True)


@pytest.mark.parametrize("status", [199, 300, 301, 302, 307, 400, 401, 404, 410, 429, 500, 503])
def test_what_comes_again(status: int) -> None:
    assert decide(Answer(status), NOW_MS, 1_000) == Decision(False, None)
    assert decide(Answer(status, "60"), NOW_MS, 100_000) == Decision(False, 60_000)
    assert decide(Answer(status, "60"), NOW_MS, 1_000) == Decision(False, 1_000)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        *[("", None), ("soon", None), ("-1", None), ("1.5", None), ("٣", None), ("0", 0)],
        *[(" 7 ", 7_000), ("9" * 5_000, 999_999_999_000)],
        ("Fri, 15 Jan 2027 08:00:05 GMT", 5_000),
        ("Fri, 15 Jan 2027 08:00:05", 5_000),
        ("Fri, 15 Jan 2021 08:00:05 GMT", 0),
        ("Fri, 99 Jan 2027 08:00:05 GMT", None),
    ],
)
def test_when_to_try_again(text: str, delay_ms: int | None) -> None:
    assert find_delay_ms(text, NOW_MS) == delay_ms
