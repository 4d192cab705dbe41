import random

import numpy as np
import pytest

from filters.meta_columns import Values
from filters.number_columns import Numbers, read_numbers
from filters.packed_bytes import PackedBytes
from hourwheel.filter_language.values import read_number


def numbers(texts: list[str | None]) -> Numbers:
    raws = [b"" if text is None else text.encode() for text in texts]
    sizes = np.array([len(raw) for raw in raws], np.int64)
    packed = PackedBytes(b"".join(raws), np.cumsum(sizes) - sizes, sizes)
    lengths = np.array([-1 if text is None else len(text.encode()) for text in texts], np.int64)
    return read_numbers(packed, Values(packed.starts, lengths))


def check(texts: list[str | None]) -> None:
    found = numbers(texts)
    for row, text in enumerate(texts):
        expected = None if text is None else read_number(text)
        assert found.is_known[row] == (expected is not None), text
        if expected is None:
            continue
        assert found.is_whole[row] == isinstance(expected, int), text
        assert float(found.real[row]) == float(expected), text
        if isinstance(expected, int):
            assert int(found.whole[row]) == expected, text


EDGES = [
    *("0", "-0", "+7", "12345678", "123456789", "-1234567890123456", "12345678901234567"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "0000000000000000001"),
    *("5.", ".5", "-.5", "1.25", "123456789012.345", "0.000000000000001", "99999999999999.9"),
    *(
        "9999999999999999.9",
        "1e3",
        "1E-3",
        "1e999",
        "1.5e",
        "1.2.3",
        ".",
        "+",
        "-",
        "",
        "1-2",
        "--1",
    ),
    *(
        "1 ",
        " 1",
        "1_0",
        "/",
        ":",
        "12a",
        "1\x00",
        "nan",
        "inf",
        "é",
        "1é",
        "٣",
        "5" * 64,
        "5" * 65,
    ),
    *("1.7976931348623157e308", "2.2250738585072014e-308", "9007199254740993", "x" * 10_000),
]


def test_read_numbers_when_at_an_edge() -> None:
    check([None, *EDGES, None])


@pytest.mark.parametrize("text", EDGES)
def test_read_numbers_when_alone(text: str) -> None:
    check([text])


def test_read_numbers_when_random() -> None:
    rng = random.Random(5)
    texts: list[str | None] = []
    for _ in range(3_000):
        digits = "".join(rng.choices("0123456789", k=rng.randrange(1, 21)))
        point = rng.choice(("", ".", ".", "e"))
        at = rng.randrange(len(digits) + 1)
        texts.append(rng.choice(("", "+", "-")) + digits[:at] + point + digits[at:])
    check(texts)


def test_read_numbers_when_there_are_none() -> None:
    found = numbers([])
    assert len(found.real) == len(found.is_known) == 0
