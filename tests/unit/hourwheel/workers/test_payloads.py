from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hourwheel.errors import InvalidArgument
from hourwheel.workers.payloads import InvalidPayload, decoder, encode


class Order(BaseModel):
    id: int
    lines: list[str] = []


@dataclass
class Point:
    x: int
    y: int


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(json_values | st.binary() | st.text())
def test_what_is_encoded_comes_back_for_a_handler_that_takes_anything(value: object) -> None:
    body, kind = encode(value)
    assert decoder(Any)(body, kind) == value


@given(st.binary(max_size=20), st.sampled_from([bytes, str, dict, list, int, Any, Order, Point]))
def test_any_body_is_decoded_or_refused(body: bytes, annotation: Any) -> None:
    try:
        decoder(annotation)(body, "application/json")
    except InvalidPayload:
        return


def test_models_and_dataclasses_come_back() -> None:
    order, point = Order(id=17, lines=["a"]), Point(1, 2)
    assert decoder(Order)(*encode(order)) == order
    assert decoder(Point)(*encode(point)) == point
    assert decoder(list[Order])(*encode([{"id": 1}])) == [Order(id=1)]


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (Order, b'{"id": "secret"}', "id: Input should be a valid integer"),
        (Order, b"{", "the body: Invalid JSON"),
        (dict, b"[1]", "the body is a list, and no dict"),
        (int, b"true", "the body is a bool, and no int"),
        (str, b"a\xff", "no UTF-8 at byte 1"),
        (Any, b"{", "no JSON at 1"),
        (dict, b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_with_a_body_is_told_without_its_content(
    annotation: Any, body: bytes, expected: str
) -> None:
    with pytest.raises(InvalidPayload, match=expected) as raised:
        decoder(annotation)(body, "application/json")
    assert "secret" not in str(raised.value)


def test_whole_numbers_are_floats_too() -> None:
    assert decoder(float)(b"3", "") == 3.0


@pytest.mark.parametrize("value", [object(), float("nan"), {1: {2}}])
def test_values_that_are_no_json_are_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="no JSON"):
        encode(value)


def test_an_annotation_that_nobody_can_read_is_refused() -> None:
    class Own: ...

    with pytest.raises(InvalidArgument, match="pydantic"):
        decoder(Own)


@pytest.mark.parametrize("value", ["\ud800", {"text": "\ud800"}, ["\udfff"]])
def test_half_a_surrogate_pair_is_no_body(value: object) -> None:
    with pytest.raises(InvalidArgument, match="surrogate"):
        encode(value)


def test_what_is_nested_too_deeply_is_no_body() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidArgument, match="no JSON"):
        encode(value)
