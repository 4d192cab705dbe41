import pytest

from hourwheel.filter_language.values import plain_number, read_boolean, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("-12", -12),
        ("5.", 5.0),
        (".5", 0.5),
        ("2e3", 2000.0),
        ("1E-2", 0.01),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2.0**63),
        ("9007199254740993", 2**53 + 1),
        ("9007199254740993.0", 2.0**53),  # written with a point: the nearest float64
        ("9007199254740993e0", 2.0**53),
        ("-9223372036854775808", -(2**63)),
        ("1" * 64, float("1" * 64)),
        ("1" * 65, None),
        ("1e999", None),
        ("", None),
        (".", None),
        ("-", None),
        ("e5", None),
        (" 5", None),
        ("5\n", None),
        ("1_000", None),
        ("0x10", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
    ],
)
def test_read_number(text: str, number: float | None) -> None:
    found = read_number(text)
    assert found == number
    assert type(found) is type(number)


def test_plain_number_when_whole() -> None:
    assert type(plain_number(5.0)) is int
    assert type(plain_number(2.0**63)) is float
    assert type(plain_number(-(2.0**63))) is int
    assert plain_number(0.5) == 0.5


def test_read_boolean() -> None:
    assert read_boolean("tRuE") is True
    assert read_boolean("FALSE") is False
    assert [read_boolean(text) for text in ("", "1", "true ", "\u017frue", "yes")] == [None] * 5
