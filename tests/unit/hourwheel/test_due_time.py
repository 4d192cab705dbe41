import pytest

from hourwheel.delay_levels import RetryPreset
from hourwheel.due_time import Retries, When, parse_duration_ms, parse_retries, parse_when
from hourwheel.errors import InvalidDueTime

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("90s", 90 * SECOND),
        ("3d", 3 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1h, 30m", 90 * MINUTE),
        (" 2 hours 3 minutes ", 123 * MINUTE),
        ("1.5H", 90 * MINUTE),
        ("1w2d", 9 * DAY),
        ("250ms", 250),
        ("1s 500 ms", 1_500),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("0.1s", 100),
        ("0.0001s", 1),
        ("730d", 730 * DAY),
        ("0s", 0),
        ("now", 0),
        ("NOW", 0),
        ("level 3", 10 * SECOND),
        ("Level18", 2 * HOUR),
    ],
)
def test_parse_when_when_a_delay(text: str, delay_ms: int) -> None:
    assert parse_when(text) == When(delay_ms=delay_ms)
    assert parse_duration_ms(text) == delay_ms


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2027-03-01T09:00:00+01:00", 1_803_888_000_000),
        ("2027-03-01T08:00:00Z", 1_803_888_000_000),
        ("2027-03-01 08:00+00:00", 1_803_888_000_000),
        ("20270301T080000Z", 1_803_888_000_000),
        ("2027-03-01T08:00:00.123Z", 1_803_888_000_123),
        ("2027-03-01T08:00:00.123001Z", 1_803_888_000_124),
    ],
)
def test_parse_when_when_an_instant(text: str, due_ms: int) -> None:
    assert parse_when(text) == When(due_ms=due_ms)
    with pytest.raises(InvalidDueTime, match="instant"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "months and years have no fixed length") for text in ("2y", "1 month", "1.5Y")),
        *((text, "a delay is not negative") for text in ("-5s", "-1")),
        *((text, "a unit is missing") for text in ("90", "1.5")),
        ("soon", "no due time: write"),
    ],
)
def test_parse_when_when_it_is_a_common_mistake(text: str, why: str) -> None:
    with pytest.raises(InvalidDueTime, match=f"{why}.*such as 90s"):
        parse_when(text)


@pytest.mark.parametrize("text", ["2027-03-01T09:00:00", "2027-03-01", "2027-03-01 09:00"])
def test_parse_when_when_the_zone_is_missing(text: str) -> None:
    with pytest.raises(InvalidDueTime, match=r"no time zone.*Z for UTC"):
        parse_when(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "90",
            "1:30",
            "-5s",
            "+5s",
            "1mo",
            "1y",
            "1 month",
            "soon",
            "5 x",
            "s",
            "1e3s",
            "5s!",
        ),
        *(
            "30m1h",
            "1m1m",
            "tomorrow",
            "2027-13-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "9" * 30 + "w",
        ),
        "1s " * 50 + "!",
    ],
)
def test_parse_when_when_nonsense(text: str) -> None:
    with pytest.raises(InvalidDueTime) as refused:
        parse_when(text)
    assert refused.value.message


@pytest.mark.parametrize("text", ["level 0", "level 19", "level 123456789"])
def test_level_is_refused_when_there_is_none(text: str) -> None:
    with pytest.raises(InvalidDueTime, match="from 1 to 18"):
        parse_when(text)


@pytest.mark.parametrize(
    ("text", "retries"),
    [
        ("10s,1m, 10m", Retries([10_000, 60_000, 600_000])),
        ("level 3", Retries([10_000])),
        ("doubling", Retries([])),
        ("RocketMQ", Retries(RetryPreset.ROCKETMQ)),
        ("rocketmq + 20%", Retries(RetryPreset.ROCKETMQ, 20)),
        ("1s,2s+0", Retries([1_000, 2_000], 0)),
    ],
)
def test_retries_are_a_list_or_a_name(text: str, retries: Retries) -> None:
    assert parse_retries(text) == retries


@pytest.mark.parametrize(
    "text", ["", "10s,", "10", "unknown", "2027-03-01T08:00:00Z", "10s+", "10s+101%", "+5%"]
)
def test_retries_are_refused_when_they_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidDueTime):
        parse_retries(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "'soon' is no length of time: write one such as 90s, 1h30m or 3d"),
        ("5", "'5' is no length of time: a unit is missing; write one such as"),
        ("1m1h", "'1m1h' is no delay"),
    ],
)
def test_parse_duration_says_nothing_of_instants(text: str, why: str) -> None:
    with pytest.raises(InvalidDueTime) as caught:
        parse_duration_ms(text)
    assert caught.value.message.startswith(why)
